"""What goes wrong with TCP segments on the wire, and what the endpoints do about it."""

from __future__ import annotations

from dataclasses import replace

from . import mpa, tcp as t
from .faults import put_off
from .iwarp import IwarpConnection, IwarpWire, cut, segment
from .tcp import TcpSegment

Segments = list[TcpSegment]


def connection_of(wire: IwarpWire, one: TcpSegment) -> IwarpConnection:
    connection = wire.connections[one.connection - 1]
    assert isinstance(connection, IwarpConnection)
    return connection


def lose(
    wire: IwarpWire, segments: Segments, index: int, *, recorded: bool = True, more: bool = False, delay: int = 200_000
) -> Segments:
    """A data segment never arrives: its bytes are sent again, in other segments.

    ``recorded``: the capture point is before the loss.  ``more``: all that its sender sent since is repeated too.
    Other indices make no sense and return the list as it is.
    """
    lost = segments[index]
    if lost.kind != "data":
        return segments
    connection = connection_of(wire, lost)
    until = index + 1
    while until < len(segments) and not _answer(lost, segments[until]):
        until += 1
    between: Segments = []
    stop = lost.end
    for one in segments[index + 1 : until]:
        if one.connection == lost.connection and one.sender == lost.sender:
            stop = max(stop, one.end) if more and one.kind == "data" else stop
        elif one.connection == lost.connection and (one.ack - lost.seq) & t.SEQUENCE_MASK < 1 << 31:
            one = replace(one, ack=lost.seq)  # the receiver asks for what is missing
        between.append(one)
    time = segments[until - 1].time + delay
    again: Segments = []
    data = bytes(connection.ends[lost.sender].sent)
    for at, size in cut(connection, lost.at, stop, again=True):
        time += 900
        seq = lost.seq + at - lost.at
        again.append(
            replace(lost, time=time, seq=seq, at=at, payload=data[at : at + size], copy=lost.copy + 1, corrupt=None)
        )
    kept = segments[: index + recorded] + between
    return kept + again + put_off(segments[until:], time)


def _answer(lost: TcpSegment, one: TcpSegment) -> bool:
    """What its sender only sent because the lost segment had arrived; also what ends the connection."""
    if one.connection != lost.connection:
        return False
    return one.kind in ("rst", "syn") or (one.sender != lost.sender and one.kind in ("data", "fin"))


def reorder(segments: Segments, index: int) -> Segments:
    """The network delivers the data segment behind the next one of its sender, where no answer came in between."""
    one = segments[index]
    for at in range(index + 1, len(segments)):
        if _answer(one, segments[at]) or segments[at].connection != one.connection:
            break
        if segments[at].sender == one.sender and segments[at].kind == "data":
            return [*segments[:index], *segments[index + 1 : at + 1], one, *segments[at + 1 :]]
    return segments


def repeat(wire: IwarpWire, segments: Segments, index: int, before: int, distance: int) -> Segments:
    """A data segment is sent again although it arrived, with up to ``before`` bytes of what went before it."""
    one = segments[index]
    if one.kind != "data":
        return segments
    connection = connection_of(wire, one)
    start = max(0, one.at - before)
    at = min(len(segments), index + 1 + distance)
    data = bytes(connection.ends[one.sender].sent[start : one.end])
    again = replace(one, seq=one.seq - (one.at - start), at=start, payload=data, copy=one.copy + 1, corrupt=None)
    return [*segments[:at], replace(again, time=segments[at - 1].time + 100), *segments[at:]]


def keepalive(wire: IwarpWire, segments: Segments, index: int) -> Segments:
    """Behind the segment its sender asks whether the other end is alive: one byte that was acknowledged long ago.

    It is the last one sent so far (RFC 9293, 3.8.4).
    """
    one = segments[index]
    earlier = (other for other in segments[:index] if (other.connection, other.sender) == (one.connection, one.sender))
    if one.kind != "data" or any(other.end > one.end for other in earlier):
        return segments
    asked = replace(one, kind="keepalive", seq=one.seq + len(one.payload) - 1, payload=b"\0", at=one.end - 1)
    asked = replace(asked, flags=t.ACK, corrupt=None, time=one.time + 200)
    return [*segments[: index + 1], asked, *segments[index + 1 :]]


def corrupt(wire: IwarpWire, segments: Segments, index: int, at: int, *, repaired: bool = False) -> Segments:
    """A byte of an FPDU, not the first, is changed on the way; CRCs must be in use for anybody to notice.

    ``repaired``: the TCP checksum shows it, and the segment is retransmitted.  Otherwise MPA finds the CRC
    wrong, and ends the connection (RFC 5044, 8).
    """
    one = segments[index]
    connection = connection_of(wire, one)
    fpdus = connection.ends[one.sender].extents
    if one.kind != "data" or not connection.crc or not fpdus or one.at < fpdus[0].end:
        return segments
    harmed = replace(one, corrupt=at % len(one.payload), wrong_checksum=repaired)
    segments = [*segments[:index], harmed, *segments[index + 1 :]]
    if repaired:
        return lose(wire, segments, index)
    return terminate(wire, segments, index, 2, 0, 2)


def terminate(wire: IwarpWire, segments: Segments, index: int, layer: int, error_type: int, code: int) -> Segments:
    """The receiver of the segment sends a Terminate, where it is between two FPDUs, and resets the connection."""
    one = segments[index]
    connection = connection_of(wire, one)
    sender = 1 - one.sender
    end = connection.ends[sender]
    before = [other for other in segments[:index] if other.connection == one.connection and other.sender == sender]
    sent = max((other.end for other in before if other.kind == "data"), default=0)
    insert: Segments = []
    blank = segment(connection, sender, "data", t.PSH | t.ACK, b"", sent)
    blank = replace(blank, ack=one.seq + len(one.payload), time=one.time + 3_000)
    if sent == end.operating or any(extent.end == sent for extent in end.extents):
        header = mpa.untagged(mpa.TERMINATE, mpa.TERMINATE_QUEUE, 1, 0, True)
        position = sent - end.operating if end.markers else None
        framed = mpa.fpdu(
            header + mpa.terminate(layer, error_type, code), position, None if connection.crc else connection.filler
        )
        insert.append(replace(blank, payload=framed))
        blank = replace(blank, seq=blank.seq + len(framed), at=sent + len(framed), time=one.time + 4_000)
    insert.append(replace(blank, kind="rst", flags=t.RST | t.ACK))
    rest = [other for other in segments[index + 1 :] if other.connection != one.connection]
    return [*segments[: index + 1], *insert, *rest]


def reset(wire: IwarpWire, segments: Segments, index: int) -> Segments:
    """The receiver of the segment resets the connection."""
    one = segments[index]
    blank = segment(connection_of(wire, one), 1 - one.sender, "rst", t.RST, b"", 0)
    blank = replace(blank, seq=one.ack, time=one.time + 3_000)
    rest = [other for other in segments[index + 1 :] if other.connection != one.connection]
    return [*segments[: index + 1], blank, *rest]
