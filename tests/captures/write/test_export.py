"""What goes in as RPC messages comes out of a TCP reassembly, in order and untouched."""

from __future__ import annotations

import io
import ipaddress
import struct
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, strategies as st

from rdmascope.captures.write.export import SEGMENT, TcpExport, TcpStreamPair, checksum

START = 1_700_000_000_000_000_000


class Packet(NamedTuple):
    time: int
    source: tuple[str, int]
    destination: tuple[str, int]
    sequence: int
    acknowledged: int
    flags: int
    payload: bytes
    missing: int
    """Payload bytes that the IP header announces and the capture does not have."""


def conversation(number: int = 1, client: str = "10.77.0.2", server: str = "10.77.0.1") -> TcpStreamPair:
    return TcpStreamPair(number, client, server, 40000 + number, 2049, START, START + 10**10, f"connection {number}")


def written(tmp_path: Path | None, messages: list[tuple[int, int, int, bytes]], *talks: TcpStreamPair) -> list[Packet]:
    export = TcpExport(tmp_path)
    for talk, sender, time, data in messages:
        export.add(talk, sender, time, len(data), [(0, data)])
    return finish(export, *talks)


def finish(export: TcpExport, *talks: TcpStreamPair) -> list[Packet]:
    file = io.BytesIO()
    count = export.write(file, talks or [conversation()])
    export.close()
    packets = [parse(*frame) for frame in frames(file.getvalue())]
    assert len(packets) == count
    return packets


def frames(data: bytes) -> list[tuple[int, bytes, int]]:
    """(time, captured bytes, true length) of the enhanced packet blocks."""
    found, at = [], 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            high, low, captured, original = struct.unpack_from("<IIII", data, at + 12)
            found.append((high << 32 | low, data[at + 28 : at + 28 + captured], original))
        at += length
    return found


def parse(time: int, frame: bytes, original: int) -> Packet:
    if frame[0] >> 4 == 4:
        total, at = struct.unpack_from(">H", frame, 2)[0], 20
        addresses = [str(ipaddress.ip_address(frame[place : place + 4])) for place in (12, 16)]
        assert checksum(frame[:20]) == 0
        pseudo = frame[12:20]
    else:
        total, at = struct.unpack_from(">H", frame, 4)[0] + 40, 40
        addresses = [str(ipaddress.ip_address(frame[place : place + 16])) for place in (8, 24)]
        pseudo = frame[8:40]
    assert total == original <= 65535
    source, destination, sequence, acknowledged, offset, flags = struct.unpack_from(">HHIIBB", frame, at)
    if len(frame) == original:
        pseudo += struct.pack(">II", total - at, 6)
        assert checksum(pseudo + frame[at:]) == 0
    return Packet(
        time,
        (addresses[0], source),
        (addresses[1], destination),
        sequence,
        acknowledged,
        flags,
        frame[at + (offset >> 4) * 4 :],
        original - len(frame),
    )


def stream(packets: list[Packet], source: tuple[str, int]) -> bytes:
    """The bytes that a receiver gets, if every segment continues where the last one ended."""
    expected: int | None = None
    data = b""
    for packet in packets:
        if packet.source != source:
            continue
        if expected is not None:
            assert packet.sequence == expected
        data += packet.payload
        expected = packet.sequence + len(packet.payload) + packet.missing + bool(packet.flags & 3) & 0xFFFFFFFF
    return data


def records(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        (mark,) = struct.unpack_from(">I", data, at)
        assert mark >> 31
        length = mark & 0x7FFFFFFF
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return found


def test_a_call_and_its_reply(tmp_path: Path) -> None:
    packets = written(tmp_path, [(1, 0, START + 5, b"call"), (1, 1, START + 9, b"the reply")])
    assert [packet.flags for packet in packets] == [0x02, 0x12, 0x10, 0x18, 0x18, 0x11, 0x11, 0x10]
    assert [packet.time - START for packet in packets] == [0, 0, 0, 5, 9, 10**10, 10**10, 10**10]
    assert records(stream(packets, ("10.77.0.2", 40001))) == [b"call"]
    assert records(stream(packets, ("10.77.0.1", 2049))) == [b"the reply"]
    reply = packets[4]
    assert reply.acknowledged == packets[3].sequence + len(packets[3].payload)


def test_ipv6_keeps_its_addresses(tmp_path: Path) -> None:
    packets = written(tmp_path, [(1, 0, START, b"call")], conversation(client="fd77::2", server="fd77::1"))
    assert records(stream(packets, ("fd77::2", 40001))) == [b"call"]


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.integers(0, 1),
            st.integers(START, START + 1000),
            st.one_of(st.binary(max_size=40), st.integers(0, 3 * SEGMENT).map(lambda size: b"\x5a" * size)),
        ),
        max_size=12,
    )
)
def test_messages_in_any_order_come_out_in_the_order_of_time(messages: list[tuple[int, int, int, bytes]]) -> None:
    talks = [conversation(number, client=f"10.0.0.{number}") for number in (1, 2, 3)]
    packets = written(None, messages, *talks)
    times = [packet.time for packet in packets]
    assert times == sorted(times)
    for talk in talks:
        mine = [p for p in packets if talk.client_port in (p.source[1], p.destination[1])]
        for sender, source in enumerate(((talk.client, talk.client_port), (talk.server, talk.server_port))):
            wanted = [m for m in messages if m[:2] == (talk.number, sender)]
            assert records(stream(mine, source)) == [data for *_, data in sorted(wanted, key=lambda m: m[2])]
        assert bool(mine) == any(message[0] == talk.number for message in messages)


@pytest.mark.parametrize(
    ("holes", "known"),
    [([(10, 20)], [14]), ([(0, 100)], [4]), ([(96, 100)], [100]), ([(50, 60), (20, 30)], [24])],
)
def test_a_segment_ends_before_what_is_not_known(
    tmp_path: Path, holes: list[tuple[int, int]], known: list[int]
) -> None:
    export = TcpExport(tmp_path)
    export.add(1, 0, START, 100, [(0, bytes(range(100)))], holes)
    export.add(1, 0, START + 1, 4, [(0, b"next")])
    assert export.incomplete == 1
    packets = [packet for packet in finish(export) if packet.payload or packet.missing]
    cut, following = packets
    assert [len(cut.payload)] == known
    assert cut.payload[4:] == bytes(range(100))[: known[0] - 4]
    assert len(cut.payload) + cut.missing == 104
    assert following.sequence == cut.sequence + 104
    assert records(following.payload) == [b"next"]


def test_a_long_message_is_truncated_only_where_bytes_are_missing(tmp_path: Path) -> None:
    export = TcpExport(tmp_path)
    gap = SEGMENT + 1000, SEGMENT + 2000
    pieces = [(0, b"\x11" * gap[0]), (gap[1], b"\x11" * (SEGMENT - 2000 + SEGMENT))]
    export.add(1, 1, START, 3 * SEGMENT, pieces, [gap])
    segments = [packet for packet in finish(export) if packet.payload]
    assert [packet.missing for packet in segments] == [0, SEGMENT - 1004, 0, 0]
    assert [packet.sequence - segments[0].sequence for packet in segments] == [0, SEGMENT, 2 * SEGMENT, 3 * SEGMENT]
