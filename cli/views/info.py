"""A capture file at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rdmascope.captures import CaptureFile
from rdmascope.dissect.link.numbers import LINK_TYPES
from rdmascope.dissect.records.schema import Record
from rdmascope.dissect.units import bound, count, duration, moment, plural, share, size

from .tables import Cell, Grid, bar, bit_rate, facts, heading

if TYPE_CHECKING:
    from rdmascope.captures.read.file_info import FileInfo

LISTED = 20
"""Kinds of frames, interfaces and comments that are listed."""
NARROW, WIDE = 20, 60
"""Columns of a bar."""


def file_info_view(info: FileInfo, capture: CaptureFile, width: int) -> RenderableType:
    parts: list[RenderableType] = [Text(info.path, "bold"), _facts(info, capture)]
    if len(capture.interfaces) > 1 or any(interface.name for interface in capture.interfaces):
        parts += [Text(), heading("Interfaces"), _interfaces(info, capture)]
    if info.frames:
        parts += [Text(), heading("Frames", "by what was found in them"), _decoders(info, width)]
    return Group(*parts)


def trace_info_view(said: Record) -> RenderableType:
    """What ``info`` shows of a trace, from its record."""
    known, lost = said["known"], said["lost_events"]
    rows: list[tuple[str, Cell]] = [
        ("format", said["format"] + ("" if said["size"] is None else f", {size(said['size'])}")),
        ("kernel", said["kernel"] or "not told"),
        ("clock", said["clock"] or "not told"),
        ("events", f"{count(said['events'])}, {count(sum(known.values()))} of them make RPCs"),
    ]
    if said["first_time_ns"] is not None:
        rows.append(("time", f"{duration(said['last_time_ns'] - said['first_time_ns'])} on that clock"))
    rows.append(("lost", Text(f"{count(lost)} events, as the kernel counted", "red") if lost else "none"))
    if said["error"] is not None:
        rows.append(("damage", Text(said["error"], "red")))
    listed: list[list[Cell]] = [[name, count(many)] for name, many in list(known.items())[:LISTED]]
    if len(known) > LISTED:
        listed.append([f"{len(known) - LISTED} others", count(sum(list(known.values())[LISTED:]))])
    parts: list[RenderableType] = [Text(said["file"], "bold"), facts(rows, "dim")]
    if known:
        parts += [Text(), heading("Events", "that RPCs are made of"), Grid(("event",), ("times",), listed)]
    return Group(*parts)


def _facts(info: FileInfo, capture: CaptureFile) -> RenderableType:
    rows: list[tuple[str, Cell]] = [("format", _format(capture)), ("frames", _frames(info))]
    if info.first_time is not None and info.last_time is not None:
        rows.append(("from", moment(info.first_time)))
        order = f", {plural(info.backwards, 'time')} backwards" if info.backwards else ""
        rows.append(("to", f"{moment(info.last_time)}, {duration(info.duration)}{order}"))
        if info.duration:
            seconds = info.duration / 1e9
            rows.append(("rate", f"{_rate(info.frames / seconds)} frames/s, {bit_rate(info.original * 8 / seconds)}"))
    link_types = info.link_types or dict.fromkeys(capture.link_types)
    rows.append(("link type", ", ".join(f"{LINK_TYPES.get(type, 'unknown')} ({type})" for type in link_types)))
    rows.append(("truncated", _truncated(info, capture)))
    rows.append(("drops", _drops(capture)))
    rows += _checksums(info)
    section = capture.section
    for name, text in (("written by", section.application), ("on", section.system), ("hardware", section.hardware)):
        if text:
            rows.append((name, text))
    if section.passed_over:
        others = (f"{name} {count(many)}" for name, many in section.passed_over.most_common())
        rows.append(("other blocks", ", ".join(others)))
    if section.frame_comments:
        rows.append(("comments", f"{plural(section.frame_comments, 'frame')}, shown by rdmascope packets"))
    rows += [("comment", text) for text in section.comments[:LISTED]]
    if info.odd:
        rows.append(("contradictions", ", ".join(f"{what} {count(many)}" for what, many in info.odd.items())))
    if info.damage is not None:
        rows.append(("damage", Text(info.damage, "red")))
    return facts(rows, "dim")


def _format(capture: CaptureFile) -> str:
    parts = [capture.format]
    if capture.format in ("pcap", "pcapng"):
        parts.append(f"{capture.byte_order}-endian")
    if capture.compression:
        parts.append(capture.compression)
    if capture.size is not None:
        parts.append(size(capture.size) + (f" ({size(capture.read)} unpacked)" if capture.compression else ""))
    return ", ".join(parts)


def _frames(info: FileInfo) -> str:
    if not info.frames:
        return "none"
    captured = "" if info.captured == info.original else f", {size(info.captured)} of them in the file"
    average = f", {count(info.original / info.frames)} bytes on average"
    return f"{count(info.frames)}, {size(info.original)} on the wire{captured}{average}"


def _rate(number: float) -> str:
    return count(number) if number >= 10 else f"{number:.2g}"


def _truncated(info: FileInfo, capture: CaptureFile) -> str:
    snaplen = f"; snaplen {count(capture.snaplen)}" if capture.snaplen else ""
    if not info.frames:
        return f"no frames{snaplen}"
    truncated = (
        f"{plural(info.truncated, 'frame')} ({share(info.truncated, info.frames)})" if info.truncated else "none"
    )
    return f"{truncated}, the largest frame in the file has {count(info.longest)} bytes{snaplen}"


def _drops(capture: CaptureFile) -> Cell:
    section = capture.section
    every = section.statistics.values()
    parts = []
    for name, values in (
        ("by the interface", [counters.dropped for counters in every]),
        ("by the operating system", [counters.os_dropped for counters in every]),
        ("between frames", [section.lost.total()] if section.lost else []),
    ):
        known = [value for value in values if value is not None]
        if known and sum(known):
            parts.append(f"{count(sum(known))} {name}")
    if parts:
        received = sum(counters.received or 0 for counters in every)
        return Text(", ".join(parts) + (f", of {count(received)} received" if received else ""), "red")
    if any(counters.dropped is not None or counters.os_dropped is not None for counters in every):
        return "none"
    return "not recorded in the file"


def _checksums(info: FileInfo) -> Iterable[tuple[str, Cell]]:
    if not info.checksums:
        return
    for name, verdicts in (("ICRC", info.icrc), ("VCRC", info.vcrc)):
        if name == "ICRC" or verdicts[True] or verdicts[False]:
            yield name, _verdicts(verdicts)


def _verdicts(verdicts: Counter[bool | None]) -> Cell:
    good, wrong, open_ = verdicts[True], verdicts[False], verdicts[None]
    text = f"{count(good)} of {count(good + wrong)} correct" if good or wrong else "none to check"
    text += f", {count(open_)} absent" if open_ else ""
    return Text(text, "red") if wrong else text


def _interfaces(info: FileInfo, capture: CaptureFile) -> RenderableType:
    rows: list[list[Cell]] = []
    for number, interface in enumerate(capture.interfaces[:LISTED]):
        statistics = capture.section.statistics.get(number)
        received, dropped, missed = (
            (statistics.received, statistics.dropped, statistics.os_dropped) if statistics else (None, None, None)
        )
        name = " ".join(
            filter(None, (interface.name or "-", interface.description, interface.filter and f"({interface.filter})"))
        )
        link = LINK_TYPES.get(interface.link_type, str(interface.link_type))
        snaplen = count(interface.snaplen) if interface.snaplen else "-"
        counters = ["-" if value is None else count(value) for value in (received, dropped, missed)]
        numbers = [snaplen, bound(interface.time_step), count(info.interfaces[number]), *counters]
        rows.append([str(number), name, link, *numbers])
    if len(capture.interfaces) > LISTED:
        rows.append(["", f"and {len(capture.interfaces) - LISTED} more", "", "", "", "", "", "", ""])
    counted = "snaplen", "time step", "frames", "received", "dropped", "by the OS"
    return Grid(("#", "interface", "link type"), counted, rows, flexible=1)


def _decoders(info: FileInfo, width: int) -> RenderableType:
    kinds = [(name, many, "green") for name, many in info.decoders.most_common()]
    kinds += [(name, many, "") for name, many in info.skipped.most_common()]
    if len(kinds) > LISTED:
        rest = kinds[LISTED:]
        kinds = [*kinds[:LISTED], (f"{len(rest)} other kinds", sum(many for _, many, _ in rest), "")]
    names = max(cell_len(name) for name, _, _ in kinds)
    room = min(WIDE, max(NARROW, width - names - 26))
    table = Table(box=None, show_header=True, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("what", no_wrap=True, overflow="ellipsis")
    table.add_column("frames", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name, many, style in kinds:
        whole = info.frames
        table.add_row(Text(name, style), count(many), share(many, whole), Text(bar(many, whole, room), style))
    return Padding(table, (0, 0, 0, 2), expand=False)
