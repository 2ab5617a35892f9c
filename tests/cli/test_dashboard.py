"""The picture fits its terminal, and says what it must."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console, ConsoleDimensions

from rdmascope.cli.views import live
from rdmascope.cli.views.live import CONNECTION_ORDERS, OPERATION_ORDERS, Look, Row, Snapshot, page
from rdmascope.dissect.audit.rule import Finding, all_rules
from rdmascope.dissect.measure.live_window import BusyProcedure, LiveWindow, Rate
from rdmascope.dissect.measure.statistics import ProcedureKey, SlowRpc
from rdmascope.dissect.percentiles import Distribution
from rdmascope.dissect.transport.connection import Connection, Endpoint

NOW = 1_000_000_000_000
READ = ProcedureKey(100003, 4, 1, 1, ("SEQUENCE", "PUTFH", "READ"), False, "COMPOUND")
LOOKUP = ProcedureKey(100003, 3, None, 3, (), False, "LOOKUP")


def row(number: int, rate: float = 10.0, retransmitted: int = 0, outstanding: int = 3) -> Row:
    return Row(
        number,
        f"10.0.0.{number}",
        "10.0.0.1:20049",
        True,
        False,
        Rate(rate, 1e6, 2e6),
        outstanding,
        64,
        retransmitted,
        0,
        0,
    )


def line(number: int) -> SlowRpc:
    took = number * 1000
    return SlowRpc(took, None, number, 1, number, READ, "complete", "OK", 1, 2, 100, 4096, 0, NOW - number * 10**9)


def spread(median: int) -> Distribution:
    return Distribution(10, 1, median, 2 * median, 3 * median, 4 * median, 10 * median)


def finding(number: int) -> Finding:
    rule = replace(all_rules()["V1-VERSION"], id=f"V1-RULE-{number}")
    connection = Connection(1, "RoCEv2", (Endpoint("10.0.0.2", 17), Endpoint("10.0.0.1", 18)))
    words = "thing " * 9, "", ""
    return Finding(rule, "violation", connection, 1, "responder", (), NOW - 10**9, None, None, *words, "error")


FULL = Snapshot(
    "rxe0 (eth0)", NOW, 3725.0, 12345, 678, 9, 0, 12345, Rate(74.0, 1e6, 2e4), tuple(Rate(n) for n in range(60)),
    tuple(row(n, n, n % 3) for n in range(1, 41)), 7,
    tuple(BusyProcedure(LOOKUP._replace(name=f"PROC{n}"), n, n % 2, spread(n * 1000)) for n in range(1, 31)),
    tuple(line(n) for n in range(1, 41)), tuple(line(n) for n in range(20, 0, -1)),
    [(finding(n), n) for n in range(1, 9)],
)  # fmt: skip
EMPTY = Snapshot("eth0", NOW, 1.0, 0, 0, 0, 0, 0, Rate(), (), (), 0, (), (), (), ())


def drawn(snapshot: Snapshot, look: Look, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, color_system=None, highlight=False, markup=False)
    with console.capture() as captured:
        console.print(page(snapshot, look, width, height))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [60, 80, 100, 139, 140, 160, 220])
@pytest.mark.parametrize("height", [20, 24, 36, 50, 70])
@pytest.mark.parametrize("snapshot", [FULL, EMPTY], ids=["full", "empty"])
def test_it_fits(snapshot: Snapshot, width: int, height: int) -> None:
    lines = drawn(snapshot, Look(keys=True), width, height)
    assert len(lines) <= height
    assert all(len(one.rstrip()) <= width for one in lines)
    text = "\n".join(lines)
    for section in ("Connections", "Last minute", "Newest RPCs", "Slowest", "Findings"):
        assert section in text


@pytest.mark.parametrize("width", [40, 50, 80, 160])
@pytest.mark.parametrize("height", [8, 10, 12, 15])
def test_on_a_low_screen_the_newest_rpcs_stay(width: int, height: int) -> None:
    for trouble in ("", "the interface is down"):
        lines = drawn(replace(FULL, trouble=trouble), Look(keys=True), width, height)
        assert len(lines) <= height and all(len(one.rstrip()) <= width for one in lines)
        newest = [one for one in lines if " NFSv4.1 READ " in one and "µs" in one]
        assert len(newest) >= 3 and newest[-1].startswith("40 ")
        assert (trouble in "\n".join(lines)) and lines[0].startswith("rxe0 (eth0)")


def test_on_a_narrow_screen_no_row_takes_two_lines() -> None:
    lines = drawn(FULL, Look(keys=True), 40, 40)
    for section, row in (("Connections", "40 10.0.0.40"), ("Last minute", "NFSv3 PROC30"), ("Findings", "V1-RULE-1")):
        at = next(at for at, one in enumerate(lines) if one.startswith(section))
        assert lines[at + 1].startswith(row)


def test_trouble_with_the_device_comes_first() -> None:
    lines = drawn(replace(FULL, trouble="the RDMA device was removed"), Look(), 80, 24)
    assert lines[2].startswith("the RDMA device was removed  12,345 frames")


@pytest.mark.parametrize("width, height", [(80, 24), (160, 50)])
def test_it_says_what_it_must(width: int, height: int) -> None:
    lines = drawn(FULL, Look(keys=True), width, height)
    assert lines[0].startswith("rxe0 (eth0)  1:02:05  678 RPCs, 9 errors")
    assert lines[1].startswith("74 RPC/s  ↑ 977 KiB/s  ↓ 19.5 KiB/s")
    assert "12,345 frames, none dropped by the kernel" in lines[2]
    assert lines[3].rstrip() == "p pause  s sort: time  S sort: rpcs  c connection: all  q quit"
    text = "\n".join(lines)
    assert "40 10.0.0.40 → 10.0.0.1:20049" in text
    assert "3/64" in text
    assert "PROC30" in text
    assert "40 NFSv4.1 READ" in text


def test_drops_are_reported_in_red() -> None:
    lines = drawn(replace(FULL, dropped=617, received=12345), Look(), 100, 30)
    assert "617 dropped by the kernel (5%): RPCs are missing or damaged" in lines[2]


def test_paused_and_picked() -> None:
    lines = drawn(replace(FULL, picked=3, agreed=("credits: 128 asked",)), Look(paused=True, keys=True), 100, 30)
    assert "connection 3" in lines[0] and "PAUSED" in lines[0]
    assert lines[3].startswith("p resume")
    assert lines[5].strip() == "credits: 128 asked"


def test_without_a_keyboard_it_says_how_to_end() -> None:
    assert drawn(EMPTY, Look(), 80, 24)[3].rstrip() == "Ctrl-C ends with the report"


@pytest.mark.parametrize("order, first", [("rpcs", 40), ("retransmitted", 2), ("number", 1)])
def test_connections_are_sorted(order: str, first: int) -> None:
    lines = drawn(FULL, Look(connections=order), 100, 40)
    at = next(at for at, one in enumerate(lines) if one.startswith("Connections"))
    assert lines[at + 1].startswith(f"{first} ")


def test_every_order_works() -> None:
    for operations in OPERATION_ORDERS:
        for connections in CONNECTION_ORDERS:
            assert drawn(FULL, Look(operations, connections), 100, 40)


def test_what_ended_stands_behind_and_what_was_evicted_is_reported() -> None:
    rows = (replace(row(1, 99), ended=True), row(2, 1))
    lines = drawn(replace(FULL, connections=rows), Look(), 100, 40)
    at = next(at for at, one in enumerate(lines) if one.startswith("Connections"))
    assert [one.split()[0] for one in lines[at + 1 : at + 3]] == ["2", "1"]
    assert lines[at + 3].startswith("7 earlier connections evicted")


def test_after_a_resize_nothing_of_the_old_picture_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=80, height=24, legacy_windows=False)
    monkeypatch.setattr(live, "console", lambda: terminal)
    monkeypatch.setattr(live, "take_snapshot", lambda session: FULL)
    monkeypatch.setattr(live, "REFRESH", 1e9)
    shown = live.Dashboard(SimpleNamespace(recent=LiveWindow()), Look(), None)  # type: ignore[arg-type]
    clear, home = "\x1b[2J", "\x1b[H"
    with shown._screen:
        shown.look(False)
        assert clear not in screen.getvalue() and "678 RPCs" in screen.getvalue()
        before = len(screen.getvalue())
        terminal.size = ConsoleDimensions(60, 20)
        shown.look(False)
        drawn_anew = screen.getvalue()[before:]
        assert drawn_anew.startswith(clear + home) and "678 RPCs" in drawn_anew
        before = len(screen.getvalue())
        shown.look(False)
        assert len(screen.getvalue()) == before
