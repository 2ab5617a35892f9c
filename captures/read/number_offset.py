"""What is numbered over several captures, of which one is read: that of a data set, or the rest of a live one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NumbersBefore:
    """How much came before a capture; its own numbers continue that."""

    frames: int = 0
    connections: int = 0
    rpcs: int = 0
    files: int = 0
    """Of NFS; a pass numbers its own from 1."""
    first_time: int | None = None
    """Nanoseconds since the Unix epoch, of the first frame of all captures; None: of that of this one."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Of the files of all captures, by path, as they are shown: frames are shown with file and number there.  Empty:
    they have only the one number."""
