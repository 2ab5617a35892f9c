"""Packets, one line each, in the columns and the formats of time that tshark has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime

import numpy as np

from rdmascope.dissect.arrays import Rows
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.records.packet_columns import ListedPackets, Packet, Worded
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
    """Lines of many packets, in the order of frames. ``place`` and ``times`` give the file and the time of a frame."""
    rows = packets.rows
    if len(rows):
        beginning = joined([*_beginning(rows, first_time, packets, place, times)], len(rows), encoded)
        wire = joined((" ", Decimal(rows["wire"], 6), " "), len(rows))
    made = (_group_lines(worded, beginning, wire, encoded) for worded in packets.worded)
    segments = [
        encoded(
            packet_line(
                segment,
                first_time,
                place(segment.frame) if place is not None else "",
                times[segment.frame] if times is not None else "",
            )
        )
        for segment in packets.segments
    ]
    return packets.ordered(made, segments)


def _group_lines(group: Worded, beginning: Piece, wire: Piece, encoded: Encoder) -> list[bytes]:
    protocol = group.protocol._replace(texts=[f"{text:<8}" for text in group.protocol.texts])
    before, behind = chosen(beginning, group.rows), chosen(wire, group.rows)
    return lines((before, protocol, behind, *group.info), len(group.rows), encoded)


def packet_styles(packets: ListedPackets) -> list[str]:
    """The styles of these lines."""
    made = (lines((worded.protocol,), len(worded.rows)) for worded in packets.worded)
    protocols = packets.ordered(made, [segment.protocol.encode() for segment in packets.segments])
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


RELATIVE = "r"
FORMATS = {
    "r": "seconds since the first frame",
    "d": "seconds since the frame before",
    "dd": "seconds since the packet listed before",
    "a": "time of day here",
    "ad": "date and time here",
    "adoy": "the same, with the day of the year",
    "u": "time of day in UTC",
    "ud": "date and time in UTC",
    "udoy": "the same, with the day of the year",
    "e": "seconds since 1970",
}
"""What tshark calls a format, and what it is."""
PATTERNS = {"": "%H:%M:%S", "d": "%Y-%m-%d %H:%M:%S", "doy": "%Y/%j %H:%M:%S"}
WIDTHS = {"": 15, "d": 26, "doy": 24}
UNKNOWN = "-"


class TimeColumn:
    """Times of packets, which are listed in the order of their frames."""

    def __init__(self, format: str) -> None:
        self.format = format
        self.width = 17 if format == "e" else WIDTHS[format[1:]] if format[0] in "au" else 12
        self._listed: int | None = None
        self._batch: FrameBatch | None = None
        self._before: tuple[int, int] | None = None
        """Number and time of the last frame of the batch before."""

    def saw(self, batch: FrameBatch) -> None:
        """Note a batch, which may have packets to list."""
        if batch is not self._batch:
            if self._batch is not None and len(self._batch):
                row = self._batch.rows[-1]
                self._before = int(row["number"]), int(row["time"])
            self._batch = batch

    def texts(self, batch: FrameBatch, frames: Iterable[int], first_time: int) -> dict[int, str]:
        """By number, of frames of a batch, ascending; ``first_time``: of the capture, nanoseconds since the epoch."""
        self.saw(batch)
        numbers = [*frames]
        at = np.searchsorted(batch.rows["number"], numbers).tolist()
        times = batch.rows["time"][at].tolist() if numbers else []
        return {
            number: f"{self._text(number, time, where, first_time):>{self.width}}"
            for number, time, where in zip(numbers, times, at, strict=True)
        }

    def _text(self, number: int, time: int, where: int, first_time: int) -> str:
        if self.format == RELATIVE:
            return seconds(time - first_time)
        if self.format == "e":
            return seconds(time)
        if self.format == "dd":
            before, self._listed = self._listed, time
            return seconds(0 if before is None else time - before)
        if self.format == "d":
            earlier = self._time_before(number, where)
            return UNKNOWN if earlier is None else seconds(time - earlier)
        return _clock(time, self.format)

    def _time_before(self, number: int, where: int) -> int | None:
        assert self._batch is not None
        if where:
            return int(self._batch.rows["time"][where - 1])
        if self._before is not None and self._before[0] == number - 1:
            return self._before[1]
        return int(self._batch.rows["time"][0]) if number == 1 else None


def _clock(time: int, format: str) -> str:
    whole, rest = divmod(time, 1_000_000_000)
    try:
        when = datetime.fromtimestamp(whole, UTC)
        when = when if format[0] == "u" else when.astimezone()
    except (ValueError, OverflowError, OSError):  # Beyond the years that have a name.
        return seconds(time)
    return f"{when.strftime(PATTERNS[format[1:]])}.{rest // 1000:06d}"
