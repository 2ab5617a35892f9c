"""TCP segments that are retransmitted with the same bytes, and with others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from playbook import tcp_faults
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.judge import analyze
from playbook.shapes import DATA, read, write
from playbook.tcp import TcpSegment
from rdmascope.dissect.transport.iwarp.retransmissions import (
    KEPT,
    MAX_HELD,
    RecentSegments,
    SentSegments,
    contradicted,
)


def captured(
    crc: bool, kind: str, before: int, changed: int | None, snaplen: int = 0
) -> tuple[IwarpWire, list[TcpSegment], int]:
    """A READ or WRITE with a segment of its data retransmitted, in whose payload a byte is another, and its frame."""
    wire = IwarpWire(mss=1460, seed=3)
    connection = wire.connect(crc=crc)
    (read if kind == "Write" else write)(connection, DATA[:5000])
    data = [at for at, one in enumerate(wire.sent()) if one.kind == "data" and len(one.payload) > 1000]
    segments = tcp_faults.repeat(wire, list(wire.sent()), data[1], before, 0)
    again = data[1] + 1
    if changed is not None:
        payload = bytearray(segments[again].payload)
        payload[changed] ^= 0x55
        segments[again] = replace(segments[again], payload=bytes(payload))
    if snaplen:
        segments = [replace(one, snaplen=snaplen) if one.payload else one for one in segments]
    return wire, segments, again


def batches(segments: Sequence[TcpSegment], together: bool) -> range:
    return range(0) if together else range(1, len(segments))


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("kind", ["Write", "Read response"])
@pytest.mark.parametrize("changed", [None, 500, 501, 1300])
def test_chunk_data_retransmitted_with_other_bytes_are_undecidable(
    kind: str, changed: int | None, together: bool
) -> None:
    wire, segments, again = captured(False, kind, 0, changed)
    (rpc,) = analyze(IwarpCapture(wire, segments), batches(segments, together))
    sender = int(kind == "Write")
    if changed is None:
        assert rpc.state == "complete" and rpc.connection.contradicted == ([], [])
        return
    name = "Write chunk 1" if sender else f"Read chunk at Position {rpc.chunks[0].position}"
    assert rpc.damage == (f"{name}: frame {again + 1} retransmits a packet with other bytes",)
    assert rpc.state == "undecidable"
    assert rpc.connection.contradicted[sender] == [again + 1] and not rpc.connection.contradicted[1 - sender]


@pytest.mark.parametrize(("changed", "together"), [(0, True), (400, True), (400, False), (1000, True), (1000, False)])
def test_a_retransmission_that_begins_earlier_is_compared_where_it_overlaps(changed: int, together: bool) -> None:
    """In an earlier batch only what was not acknowledged yet is held."""
    wire, segments, again = captured(False, "Write", 300, changed)
    (rpc,) = analyze(IwarpCapture(wire, segments), batches(segments, together))
    assert rpc.state == "undecidable"
    assert rpc.connection.contradicted == ([], [again + 1])


@pytest.mark.parametrize(("changed", "state"), [(10, "undecidable"), (1400, "complete")])
def test_of_truncated_segments_what_is_captured_is_compared(changed: int, state: str) -> None:
    wire, segments, _ = captured(False, "Write", 0, changed, snaplen=200)
    (rpc,) = analyze(IwarpCapture(wire, segments))
    assert rpc.state == state


def test_a_right_crc_decides() -> None:
    wire, segments, again = captured(True, "Write", 0, 700)
    (rpc,) = analyze(IwarpCapture(wire, segments))
    assert rpc.state == "complete" and not rpc.damage
    assert rpc.connection.contradicted == ([], [again + 1])


def segments_of(sizes: Sequence[int], first: int, data: bytes, at: int = 0) -> SentSegments:
    """Segments of those sizes from position ``at`` on, all captured, in frames from ``first`` on."""
    lengths = np.array(sizes, np.int64)
    ends = np.cumsum(lengths) + at
    starts, count = ends - lengths, len(sizes)
    return SentSegments(
        starts, ends, np.arange(count), np.arange(first, first + count), np.zeros(count, np.uint16),
        starts - at, lengths, np.full(count, -1), np.frombuffer(data, np.uint8),
    )  # fmt: skip


def test_bytes_are_held_until_they_are_acknowledged() -> None:
    recent, data = RecentSegments(), bytes(range(100)) * 100
    recent.begin(segments_of([1000] * 10, 1, data))
    recent.end(4500)
    again = segments_of([700], 11, data[:4700][4000:], at=4000)
    assert [contradicted(again, 0, part) for part in recent.parts] == [None, ()]
    assert sum(len(part.data) for part in recent.parts if part.data is not None) == 6000
    other = segments_of([700], 11, bytes(700), at=4000)
    assert [frame for part in recent.parts for frame in contradicted(other, 0, part) or ()] == [5]
    recent.begin(segments_of([10], 12, data, at=10_000))
    recent.end(10_010)
    assert all(part.data is None for part in recent.parts)


def test_few_bytes_are_held() -> None:
    recent = RecentSegments()
    for number in range(40):
        recent.begin(segments_of([1000] * 100, 100 * number, bytes(100_000), at=100_000 * number))
        recent.end(500)
    assert sum(len(part.data) for part in recent.parts if part.data is not None) <= MAX_HELD
    assert sum(len(part.at) for part in recent.parts) < 2 * KEPT
    recent.begin(segments_of([1000], 5000, bytes(1000)))
    recent.end(None)
    assert recent.parts[-1].data is None
