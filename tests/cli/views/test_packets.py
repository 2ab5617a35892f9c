"""The list of packets in columns has the lines that packets have which are objects."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from playbook.packet_objects import PacketLister
from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.cli.harmless_console import HarmlessConsole
from rdmascope.cli.sanitize import harmless_line
from rdmascope.cli.terminal import LineStyles, encoded_line
from rdmascope.cli.views.packets import PROTOCOL_STYLES, packet_line, packet_lines, packet_styles
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.records.packet_columns import PacketColumnLister
from rdmascope.dissect.rpcrdma.analyzer import Analyzer


def batches(name: str) -> list[FrameBatch]:
    return [*Session(str(SAMPLES / MANIFEST[name]["file"]), limits=Limits(frames=1700)).batches()]


def in_columns(batches: Sequence[FrameBatch], later: int = 0, places: bool = False) -> list[tuple[bytes, str]]:
    """Lines and their styles."""
    lister = PacketColumnLister(Analyzer())
    decoder = lister.analyzer.decoder
    found = [one for batch in batches for one in lister.feed(decoder.take(batch))] + [*lister.finish()]
    first = (lister.analyzer.first_time or 0) + later
    place = (lambda frame: "ü.pcap:7 ") if places else None
    return [
        line
        for one in found
        for line in zip(packet_lines(one, first, place, encoded_line), packet_styles(one), strict=True)
    ]


@pytest.mark.parametrize("number", range(len(MANIFEST)))
def test_every_sample(number: int) -> None:
    frames, later, places = batches([*MANIFEST][number]), number % 2 * 10**9, number % 2 > 0
    lister = PacketLister(Analyzer())
    objects = [packet for batch in frames for packet in lister.feed(batch)] + [*lister.finish()]
    first, place = (lister.analyzer.first_time or 0) + later, "ü.pcap:7 " if places else ""
    columns = in_columns(frames, later, places)
    for (line, style), packet in zip(columns, objects, strict=False):
        assert line.decode() == harmless_line(packet_line(packet, first, place))
        assert style == PROTOCOL_STYLES.get(packet.protocol, "")
    assert len(columns) == len(objects) > 10


@cache
def of_both_transports() -> list[tuple[bytes, str]]:
    return in_columns(batches("bidir-rxe"))[:300] + in_columns(batches("siw-nfs-all"), 0, True)[:50]


@pytest.mark.parametrize("width", [80, 120, 160])
@pytest.mark.parametrize("colors", ["truecolor", "256", None])
def test_a_terminal_has_them_as_rich_prints_them(width: int, colors: Any) -> None:
    out, expected = io.StringIO(), io.StringIO()

    def terminal(file: io.StringIO) -> Console:
        settings: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "_environ": {}}
        return HarmlessConsole(file=file, width=width, force_terminal=True, color_system=colors, **settings)

    console, styles = terminal(expected), LineStyles(terminal(out))
    lines = [*of_both_transports()]
    lines += [(encoded_line(f"{'x' * (width + some)}"), "green") for some in (-1, 0, 1)]
    lines += [(encoded_line(f"{'x' * (width - 4)}{text}"), "cyan") for text in ("日本", "日本語", "é" * 9, "…→…→")]
    for line, style in lines:
        console.print(Text(line.decode(), style), no_wrap=True, overflow="ellipsis")
        out.write(styles.styled(line, style).decode() + "\n")
    assert out.getvalue() == expected.getvalue()
    assert {style for _, style in lines} >= {"green", "cyan", "magenta", ""}
