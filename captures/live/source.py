"""What every source of live frames offers."""

from __future__ import annotations

from typing import Protocol

from rdmascope.dissect.frames import FrameBatch

from .device import Device


class Drops(Protocol):
    """The counters of the source of the frames."""

    received: int
    """Frames that passed the filter, those included that were dropped."""

    @property
    def dropped(self) -> int | None:
        """Frames that passed the filter and were lost for lack of room; None: not known."""


class Live(Drops, Protocol):
    """A source of frames that does not end by itself."""

    device: Device
    link_type: int
    snaplen: int
    words: str
    """The filter."""

    def fileno(self) -> int:
        """Becomes readable when there are frames."""

    def read(self) -> FrameBatch | None:
        """What came since the last time, without waiting; None for nothing.  Raises CaptureError at an end."""

    def refuse(self) -> None:
        """Let no more frames in, where that is possible; those that came are still read."""

    def count(self) -> None:
        """Bring ``received`` and ``dropped`` up to date."""

    def close(self) -> None:
        """Frame batches that were given stay valid."""
