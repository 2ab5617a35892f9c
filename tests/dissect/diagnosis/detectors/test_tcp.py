"""What holds NFS over TCP up beside losses: delayed acknowledgements, closed windows, connections used unequally."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from playbook.capture import frame_batches
from playbook.facts import found, silent, speaks
from playbook.packets import Frame
from playbook.rpc import opaque, u32
from playbook.segments import EPOCH, Talk, pattern, write
from rdmascope.dissect.diagnosis.facts import Gathered
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

MS = 1_000_000
KINDS = "delayed-acknowledgements", "receive-window-closed", "unequal-connections", "slow-start-after-idle"


def record(message: bytes) -> bytes:
    return u32(1 << 31 | len(message)) + message


def call(xid: int, size: int = 0) -> bytes:
    return record(u32(xid, 0, 2, 100003, 3, 7) + u32(0, 0, 0, 0) + opaque(b"handle") + u32(0, 0, size, 0) + (
        opaque(pattern(xid, size))))  # fmt: skip


def reply(xid: int) -> bytes:
    return record(u32(xid, 1, 0, 0, 0, 0, 0) + u32(0, 0, 0, 0) + bytes(8))


class Timed:
    """A conversation whose segments have times, in milliseconds from one to the next."""

    def __init__(self, port: int = 40000, begin: int = 0) -> None:
        self.talk, self.times, self.windows = Talk(ports=(port, 2049)), [begin * MS] * 3, dict[int, int]()
        self.talk.open()

    def put(self, sender: int, data: bytes, after: float = 0.1) -> None:
        """In one segment; without data an acknowledgement."""
        if data:
            self.talk.put(sender, data)
        else:
            last = self.talk.segments[-1]
            ends = self.talk.sides[sender].next, self.talk.sides[1 - sender].next
            self.talk.segments.append(replace(last, sender=sender, seq=ends[0], ack=ends[1], payload=b"", flags=16))
        self.times.append(self.times[-1] + round(after * MS))

    def frames(self) -> list[Frame]:
        made = self.talk.frames()
        return [replace(one, time=EPOCH + time) for one, time in zip(made, self.times, strict=True)]


def said(frames: Sequence[Frame], cuts: Sequence[int] = ()) -> dict[str, str]:
    analyzer, gathered = Analyzer(), Gathered()
    for batch in frame_batches(sorted(frames, key=lambda one: one.time), cuts):
        gathered.add_table(RpcTable(analyzer.feed(batch)))
    gathered.add_table(RpcTable(analyzer.finish()))
    return {one.kind: one.cause.text for one in found(gathered.facts(analyzer)) if one.kind in KINDS}


def writes(pause: float, held: bool = True) -> Timed:
    """WRITEs in two segments each; the second waits so long for the acknowledgement of the first, or does not wait."""
    made = Timed()
    for number in range(6):
        data = call(number + 1, 2000)
        made.put(0, data[:1448])
        if held:
            made.put(1, b"", pause)
            made.put(0, data[1448:], 0.05)
        else:
            made.put(0, data[1448:], 0.05)
            made.put(1, b"", pause)
        made.put(1, reply(number + 1), 0.5)
    return made


@speaks(KINDS[0])
@pytest.mark.parametrize("pause", [40, 200])
@pytest.mark.parametrize("cuts", [[], [4], [4, 5, 6], [*range(30)]])
def test_a_sender_that_waits_for_a_delayed_acknowledgement(pause: float, cuts: list[int]) -> None:
    total = f"{6 * pause} ms" if pause == 40 else "1.20 s"
    assert said(writes(pause).frames(), cuts) == {
        KINDS[0]: f"6 pauses until a delayed acknowledgement came, {total} in all"
    }


@silent(*KINDS)
@pytest.mark.parametrize(("pause", "held"), [(0.1, True), (10, True), (80, True), (40, False)])
def test_other_acknowledgements_hold_nobody_up(pause: float, held: bool) -> None:
    assert said(writes(pause, held).frames()) == {}


MSS = 1448


def after_idle(
    first: int = 10, idle: float = 300, pause: float = 5, growth: float = 2, mss: int = MSS, offload: int = 1,
    acknowledged: bool = True,
) -> Timed:  # fmt: skip
    """WRITEs of 180 segments, some behind an idle time, sent in bursts with pauses for acknowledgements."""
    made = Timed()
    for number in range(3):
        data = call(number + 1, 180 * mss - 84 - 40)
        at, window, after = 0, first, idle
        while at < len(data):
            burst = data[at : at + window * mss]
            for start in range(0, len(burst), offload * mss):
                made.put(0, burst[start : start + offload * mss], after if not start else 0.01)
            if acknowledged:
                made.put(1, b"", pause)
            at, window, after = at + len(burst), round(window * growth), 0.01 if acknowledged else pause
        made.put(1, reply(number + 1), 0.5)
    return made


@speaks(KINDS[3])
@pytest.mark.parametrize(
    ("mss", "offload", "cuts"),
    [(*size, cuts) for size in ((MSS, 1), (8948, 1), (MSS, 5)) for cuts in ([], [40], [14, 15, 16, 30])]
    + [(MSS, 1, [*range(700)])],
)
def test_a_sender_whose_window_begins_anew(mss: int, offload: int, cuts: list[int]) -> None:
    # 10, 20, 40, 80 segments, and what is left; nothing shows that the connection was idle before the first.
    assert said(after_idle(mss=mss, offload=offload).frames(), cuts) == {
        KINDS[3]: "8 pauses for acknowledgements after idle times, 40.1 ms in all"
    }


@silent(KINDS[3])
@pytest.mark.parametrize(
    "other",
    [
        {"idle": 150},  # less than a timeout
        {"first": 180},  # no window stops it
        {"first": 9},
        {"growth": 1},  # the receive window
        {"growth": 4},
        {"pause": 0.1},
        {"acknowledged": False},  # the application's
    ],
)
def test_other_pauses_are_no_slow_start(other: dict[str, float]) -> None:
    assert KINDS[3] not in said(after_idle(**other).frames())  # type: ignore[arg-type]


def test_a_sender_over_iwarp_whose_window_begins_anew() -> None:
    made = Timed()
    made.talk = Talk(ports=(40000, 20049))
    made.talk.open()
    made.talk.greet()
    made.times = [0] * 5
    data, at = [write(7, place, pattern(place, 1408)) for place in range(0, 75 * 1408, 1408)], 0
    for window in (5, 10, 20, 40):
        for fpdu in data[at : at + window]:
            made.talk.say(0, fpdu)
            made.times.append(made.times[-1] + round((0.01 if fpdu != data[at] else 300 if window == 10 else 5) * MS))
        at += window
        made.put(1, b"", 0.01)
    analyzer = Analyzer()
    for batch in frame_batches(made.frames(), ()):
        analyzer.feed(batch)
    analyzer.finish()
    (health,) = Gathered().facts(analyzer).healths.values()
    assert health.transport == "iWARP"
    assert [one.restarts.number for one in health.directions] == [2, 0]
    assert health.directions[0].restarts.waited == pytest.approx(2 * 5.01 * MS, rel=0.01)


def closing(count: int) -> dict[str, str]:
    """Where so many acknowledgements close the window."""
    made = writes(0.1)
    frames, window = made.frames(), slice(14 + 20 + 14, 14 + 20 + 16)
    acknowledging = [at for at, one in enumerate(made.talk.segments) if one.sender and not one.payload][2:]
    for at in acknowledging[:count]:
        data = bytearray(frames[at].data)
        data[window] = bytes(2)
        frames[at] = replace(frames[at], data=bytes(data))
    return said(frames)


@speaks(KINDS[1])
def test_a_window_of_zero() -> None:
    assert closing(4) == {KINDS[1]: "4 segments with a window of zero; 18 packets sent"}


@silent(KINDS[1])
def test_a_window_that_was_closed_once() -> None:
    assert closing(1) == {}


@pytest.mark.parametrize(("shares", "speaks"), [((500, 500, 500), False), ((1400, 50, 50), True)])
def test_connections_of_one_client_that_are_used_unequally(shares: tuple[int, ...], speaks: bool) -> None:
    frames: list[Frame] = []
    for number, share in enumerate(shares):
        made = Timed(40000 + number)
        for xid in range(share):
            made.put(0, call(xid + 1), 1500 / share)
            made.put(1, reply(xid + 1), 0.1)
        frames += made.frames()
    assert said(frames) == ({KINDS[2]: "93% of the RPCs on one of 3 connections"} if speaks else {})
