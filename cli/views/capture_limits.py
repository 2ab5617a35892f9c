"""What a capture lacks from the start, in the first lines of what judges it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.units import plural


def limit_lines(connections: Iterable[Connection], truncated_frames: int = 0) -> list[Text]:
    """Frames that a snap length truncated, and connections of which it has one direction."""
    half = sum(one.paired_by == "one direction only" and any(one.bytes) for one in connections)
    lines = [f"{plural(truncated_frames, 'frame')} truncated by the capture"] if truncated_frames else []
    lines += [f"{plural(half, 'connection')} with packets of one end only"] if half else []
    return [Text(line, "red") for line in lines]
