"""One line per packet, in the columns that tshark has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from rdmascope.dissect.arrays import Rows
from rdmascope.dissect.records.packet_columns import ListedPackets, Worded
from rdmascope.dissect.records.packets import Packet
from rdmascope.dissect.text_columns import Decimal, Encoder, Piece, Texts, chosen, joined, lines, words_of
from rdmascope.dissect.units import seconds

PROTOCOL_STYLES = {"RPCoRDMA": "cyan", "NFS": "green", "NFS_CB": "magenta"}


def header_line(place_width: int = 0, time_width: int = 12) -> str:
    """``place_width``: of a column that says in which of several files frames are."""
    place = f"{'file:frame':<{place_width}} " if place_width else ""
    ends = f"{'Source':>15}   {'Destination':<15}"
    return f"{place}{'No.':>7} {'Time':>{time_width}} {ends} {'Protocol':<8} {'Length':>6} Info"


def packet_line(packet: Packet, first_time: int, place: str = "", time: str = "") -> str:
    """``first_time``: nanoseconds since the epoch of the first frame; ``place``: in which of several files it is.

    ``time``: the time in another format than seconds since the first frame.
    """
    ends = packet.source, packet.destination
    shown = time or f"{seconds(packet.time - first_time):>12}"
    return place + packet_cells(packet.frame, shown, ends, packet.protocol, packet.wire, packet.info)


def packet_cells(frame: int, time: str, ends: tuple[str, str], protocol: str, wire: int, info: str) -> str:
    """``wire``: bytes of the whole frame."""
    return f"{frame:>7} {time} {ends[0]:>15} → {ends[1]:<15} {protocol:<8} {wire:>6} {info}"


def packet_lines(
    packets: ListedPackets,
    first_time: int,
    place: Callable[[int], str] | None,
    encoded: Encoder,
    times: Mapping[int, str] | None = None,
) -> list[bytes]:
    """The same of many packets, in the order of frames; ``place`` and ``times`` say it of a frame."""
    rows = packets.rows
    if len(rows):
        beginning = joined([*_beginning(rows, first_time, packets, place, times)], len(rows), encoded)
        wire = joined((" ", Decimal(rows["wire"], 6), " "), len(rows))
    made = (_group_lines(one, beginning, wire, encoded) for one in packets.worded)
    segments = [
        encoded(
            packet_line(
                one,
                first_time,
                place(one.frame) if place is not None else "",
                times[one.frame] if times is not None else "",
            )
        )
        for one in packets.segments
    ]
    return packets.ordered(made, segments)


def _group_lines(group: Worded, beginning: Piece, wire: Piece, encoded: Encoder) -> list[bytes]:
    protocol = group.protocol._replace(texts=[f"{text:<8}" for text in group.protocol.texts])
    before, behind = chosen(beginning, group.rows), chosen(wire, group.rows)
    return lines((before, protocol, behind, *group.info), len(group.rows), encoded)


def packet_styles(packets: ListedPackets) -> list[str]:
    """The styles of these lines."""
    made = (lines((one.protocol,), len(one.rows)) for one in packets.worded)
    protocols = packets.ordered(made, [one.protocol.encode() for one in packets.segments])
    return [PROTOCOL_STYLES.get(protocol.decode(), "") for protocol in protocols]


def _beginning(
    rows: Rows,
    first_time: int,
    packets: ListedPackets,
    place: Callable[[int], str] | None,
    shown: Mapping[int, str] | None,
) -> Iterator[Piece]:
    """Up to the destination."""
    if place is not None:
        yield Texts([place(frame) for frame in rows["frame"].tolist()])
    yield Decimal(rows["frame"], 7)
    yield " "
    times = rows["time"]
    if shown is not None:
        yield Texts([shown[frame] for frame in rows["frame"].tolist()])
    elif first_time < 0 or int(times.min()) < first_time:
        yield Texts([f"{seconds(time - first_time):>12}" for time in times.tolist()])
    else:
        passed = times - np.int64(first_time)
        whole = passed // 1_000_000_000
        yield Decimal(whole, 5)
        yield "."
        yield Decimal((passed - whole * 1_000_000_000) // 1000, 6, "0")
    yield " "
    ends = rows["source"].astype(np.int64) << 32 | rows["destination"]
    name = packets.addresses.name
    yield words_of(ends, lambda both: f"{name(both >> 32):>15} → {name(both & 0xFFFFFFFF):<15} ")


def comment_line(comment: str) -> str:
    """A comment in the file about the packet above."""
    return f"{'':>7} {comment}"
