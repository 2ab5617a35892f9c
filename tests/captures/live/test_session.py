"""A live capture without a network: frames come from a list, and the session does what it does with them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from playbook import Capture, Wire, nfs3
from playbook.capture import frame_batches
from playbook.rpcrdma import call, reply
from rdmascope import CaptureError
from rdmascope.captures.live import CaptureSettings, Device, session as live_session
from rdmascope.captures.live.session import Ending, LiveSession, bounded
from rdmascope.cli.commands import live as live_command
from rdmascope.cli.main import main
from rdmascope.dissect.audit.rule import Finding
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.rpcrdma.rpcs import Rpc


class Replay:
    """``Live`` of batches that are there at once, and then of nothing, or of an error."""

    link_type, snaplen, words, received, dropped = 1, 262144, "", 0, 0
    device = Device("lo", "interface", "lo")

    def __init__(self, batches: list[FrameBatch], damage: str = "") -> None:
        self._batches, self._damage = batches, damage
        self._read, self._write = os.pipe()
        os.write(self._write, b"x")

    def fileno(self) -> int:
        return self._read

    def read(self) -> FrameBatch | None:
        if self._batches:
            return self._batches.pop(0)
        if self._damage:
            raise CaptureError(self._damage)
        return None

    def refuse(self) -> None: ...

    def count(self) -> None:
        """Nothing is dropped."""

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def batches() -> Iterator[list[FrameBatch]]:
    """Five RPCs, the last of which has no reply."""
    wire = Wire()
    talk = wire.connect()
    for _ in range(4):
        reply(call(talk, nfs3.null()), nfs3.null_reply())
    call(talk, nfs3.null())
    yield frame_batches(Capture(wire).frames, (3, 9))


def watched(batches: list[FrameBatch], damage: str = "", **options: object) -> tuple[LiveSession, list[Rpc]]:
    live = Replay(batches, damage)
    rpcs: list[Rpc] = []
    turns: list[int] = []
    findings: list[Finding] = []
    session = LiveSession(
        live,
        bounded(Options()),
        on_rpcs=rpcs.extend,
        on_finding=findings.append,
        on_turn=lambda: turns.append(len(rpcs)),
        **options,  # type: ignore[arg-type]
    )
    session.run(200_000_000)
    live.close()
    assert turns == sorted(turns) and turns
    return session, rpcs


def test_rpcs_are_given_as_they_end(batches: list[FrameBatch]) -> None:
    session, rpcs = watched(batches)
    assert [rpc.number for rpc in rpcs] == [1, 2, 3, 4, 5]
    assert [rpc.state for rpc in rpcs] == ["complete"] * 4 + ["no reply"]
    assert session.ending.why == "duration" and session.rpcs == 5 and session.gathered.statistics.calls == 5
    assert session.record()["ended_by"] == "duration"


def test_it_ends_after_as_many_as_were_wanted(batches: list[FrameBatch]) -> None:
    session, rpcs = watched(batches, wanted=2)
    assert [rpc.number for rpc in rpcs] == [1, 2] and session.ending.why == "count"


def test_it_can_be_ended_from_outside(batches: list[FrameBatch]) -> None:
    ending = Ending()
    ending.because("quit")
    session, rpcs = watched_once(batches, ending)
    assert session.ending.why == "quit" and len(rpcs) == 5


@pytest.mark.parametrize("devices", (1, 2))
def test_a_signal_while_devices_are_opened_ends_it(
    devices: int, batches: list[FrameBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first the session is not made by then."""

    def opened(name: str, settings: CaptureSettings) -> Replay:
        if name == "lo":
            signal.raise_signal(signal.SIGINT)
        return Replay([*batches])

    monkeypatch.setattr(live_command, "open_live", opened)
    watched = CliRunner().invoke(main, ["live", *("lo", "br0")[:devices], "--json", "--duration", "20s"])
    assert watched.exit_code == 0
    endings = [record for record in map(json.loads, watched.stdout.splitlines()) if record.get("ended_by")]
    assert [(record["ended_by"], record["rpcs"]) for record in endings] == [("SIGINT", 5)] * devices


def watched_once(batches: list[FrameBatch], ending: Ending) -> tuple[LiveSession, list[Rpc]]:
    """Ended before it began: what is there by then is taken all the same."""
    live = Replay(batches)
    rpcs: list[Rpc] = []
    session = LiveSession(live, Options(), ending=ending, on_rpcs=rpcs.extend)
    session.run(None)
    live.close()
    return session, rpcs


def test_damage_loses_nothing_that_was_there(batches: list[FrameBatch]) -> None:
    session, rpcs = watched(batches, damage="the interface is down")
    assert len(rpcs) == 5 and session.ending.why == "error"
    assert str(session.damage) == "the interface is down"


def test_trouble_with_the_device_is_said_once(batches: list[FrameBatch], monkeypatch: pytest.MonkeyPatch) -> None:
    troubles = iter(["", "down", "down", ""])
    monkeypatch.setattr(live_session, "trouble_of", lambda device: next(troubles, ""))
    monkeypatch.setattr(live_session, "LOOKS", 0.0)
    said: list[str] = []
    watched(batches, on_trouble=said.append)
    assert said == ["down", "it is up again"]


def test_frames_that_the_kernel_still_holds_are_awaited(
    batches: list[FrameBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine gives the last block late; the counters say that there is one."""

    class Slow(Replay):
        received = sum(map(len, batches))
        late = 5

        def read(self) -> FrameBatch | None:
            if len(self._batches) == 1 and self.late:
                self.late -= 1
                return None
            return super().read()

    monkeypatch.setattr(live_session, "HELD", 0.0)
    monkeypatch.setattr(live_session, "WAIT", 1)
    live = Slow(list(batches))
    ending = Ending()
    ending.because("quit")
    session = LiveSession(live, bounded(Options()), ending=ending)
    session.run(None)
    live.close()
    assert session.analyzer.frames == Slow.received
