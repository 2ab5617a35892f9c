"""Calls that hang while a capture runs: on the screen, in the metrics, and what waits for something slow."""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections.abc import Iterator

import pytest
from rich.console import Console

from playbook import hangs
from playbook.capture import frame_batches, write_pcap
from playbook.commands import PROGRAM
from playbook.hangs import SECOND
from playbook.wire import Wire
from rdmascope.captures.live import Device
from rdmascope.captures.live.keep import HANGS, Trigger, Wanted
from rdmascope.captures.live.session import LiveSession, bounded
from rdmascope.cli.views.live import Look, page, take_snapshot
from rdmascope.dissect.rpcrdma.analyzer import Options

from .test_session import Replay


class Stream(Replay):
    """Its clock is that of its frames."""

    device = Device("-", "stream", "-")


def session(*stories: object, **options: object) -> LiveSession:
    """Of a server that hung 46 s ago, as frames of others tell."""
    wire = Wire()
    hangs.one_call(wire)
    return LiveSession(Stream(frame_batches(wire.frames(), [])), bounded(Options()), **options)  # type: ignore[arg-type]


@pytest.fixture
def hung() -> Iterator[LiveSession]:
    made = session()
    made._take(made.live.read())  # type: ignore[arg-type]
    yield made


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (80, 10)])
def test_the_oldest_call_is_on_the_screen(hung: LiveSession, width: int, height: int) -> None:
    console = Console(width=width, height=height, color_system=None, file=io.StringIO())
    console.print(page(take_snapshot(hung), Look(), width, height))
    assert re.search(r">4[67]\.\d s  CREATE", console.file.getvalue())  # type: ignore[attr-defined]


def test_where_none_is_outstanding_the_screen_says_so() -> None:
    wire = Wire()
    hangs.healthy(wire)
    made = LiveSession(Stream(frame_batches(wire.frames(), [])), bounded(Options()))
    made._take(made.live.read())  # type: ignore[arg-type]
    assert take_snapshot(made).oldest is None


@pytest.mark.parametrize(
    ("wanted", "trigger"),
    [(Wanted(5 * SECOND), "slower-than"), (Wanted(rules=frozenset({HANGS})), "finding")],
)
def test_it_triggers_while_it_hangs(wanted: Wanted, trigger: str) -> None:
    happened: list[dict[str, object]] = []
    made = session(trigger=Trigger(wanted, on_trigger=happened.append))
    made.run(60 * SECOND)
    made.live.close()
    (one,) = happened
    assert (one["trigger"], one["rpc"], one["latency_ns"]) == (trigger, 22, None)
    assert int(str(one["waiting_ns"])) > 5 * SECOND
    assert made.ending.why == ("finding" if trigger == "finding" else "trigger")


@pytest.mark.parametrize("wanted", [Wanted(5 * SECOND), Wanted(rules=frozenset({HANGS}))])
def test_it_triggers_where_the_client_gave_up_before_it_was_looked_at(wanted: Wanted) -> None:
    wire = Wire()
    hangs.hung_server(wire)
    happened: list[dict[str, object]] = []
    trigger = Trigger(wanted, on_trigger=happened.append)
    made = LiveSession(Stream(frame_batches(wire.frames(), [])), bounded(Options()), trigger=trigger)
    made.run(SECOND)
    made.live.close()
    assert [(one["rpc"], one["others"]) for one in happened] == [(22, 0)]


def test_it_triggers_once() -> None:
    happened: list[dict[str, object]] = []
    made = session(trigger=Trigger(Wanted(5 * SECOND), every=True, on_trigger=happened.append))
    made.run(SECOND)
    made.live.close()
    assert [(one["rpc"], one["others"]) for one in happened] == [(22, 0)]


def test_nothing_triggers_on_healthy_traffic() -> None:
    wire = Wire()
    hangs.healthy(wire)
    trigger = Trigger(Wanted(5 * SECOND, rules=frozenset({HANGS})))
    made = LiveSession(Stream(frame_batches(wire.frames(), [])), bounded(Options()), trigger=trigger)
    made.run(SECOND // 5)
    made.live.close()
    assert not trigger.happened


@pytest.mark.parametrize("option", [("--until-slower-than", "5s"), ("--until-rule",), ("--until-rule", HANGS)])
def test_the_command_ends_with_it(tmp_path_factory: pytest.TempPathFactory, option: tuple[str, ...]) -> None:
    wire = Wire()
    hangs.one_call(wire)
    path = tmp_path_factory.mktemp("live") / "hung.pcap"
    write_pcap(wire.frames(), path)
    done = subprocess.run(
        [*PROGRAM, "live", "-", "--json", *option], input=path.read_bytes(), capture_output=True, timeout=120
    )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1, done.stderr
    (trigger,) = [one for one in records if one["type"] == "trigger"]
    assert trigger["rpc"] == 22
