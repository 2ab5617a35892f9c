"""Which of several files show the same traffic at another capture point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.capture_points import CommonTraffic, Sightings, common_traffic
from rdmascope.dissect.units import duration, plural

from ..errors import CaptureError
from .open import open_capture
from .streams import Limits

MAX_POINTS = 8
"""More files or rings of files are not compared."""
MAX_FRAMES = 1 << 19
"""Of each: those at its beginning."""
LOOK = Limits(frames=1 << 15, bytes=16 << 20)


@dataclass(frozen=True, slots=True)
class OtherPoint:
    """A file, or ring of files, with traffic that another one shows, too."""

    path: str
    """Of its first file."""
    first: str
    """The file at the capture point that counts."""
    common: CommonTraffic
    whole: bool
    """Both were compared to their ends."""

    def __str__(self) -> str:
        common = self.common
        clock = f"{abs(common.offset) / 1e6:,.3f} ms {'ahead' if common.offset >= 0 else 'behind'}"
        clock += "" if common.error is None else f" (± {duration(common.error)})"
        seen = f"{plural(common.both, 'packet')} at both, {common.only_other:,} only here, "
        seen += f"{common.only_first:,} only there"
        seen += "" if self.whole else f", in the first {MAX_FRAMES:,} frames"
        return (
            f"{self.path}: the traffic of {self.first} at another capture point, by a clock that is {clock}: {seen}; "
            f"it is read from {self.first} alone"
        )


def other_points(rings: Mapping[str, str]) -> list[OtherPoint]:
    """``rings``: the first file of each ring, in the order they were named.  What cannot be read is no such file."""
    if not 2 <= len(rings) <= MAX_POINTS:
        return []
    addresses = AddressTable()
    seen: list[tuple[str, Sightings, bool]] = []
    found: list[OtherPoint] = []
    for path in rings.values():
        sightings, whole = look((path,), addresses)
        for first, there, all_there in seen:
            if common := common_traffic(there, sightings):
                found.append(OtherPoint(path, first, common, whole and all_there))
                break
        else:
            seen.append((path, sightings, whole))
    return found


def look(paths: Sequence[str], addresses: AddressTable) -> tuple[Sightings, bool]:
    """The packets at the beginning of files of one ring, in order, and whether that is all of them.

    Frames are numbered through all of these files.
    """
    sightings, frames = Sightings(addresses), 0
    for path in paths:
        before = frames
        try:
            with open_capture(path, LOOK) as capture:
                for batch in capture.batches():
                    sightings.add(batch, before)
                    frames += len(batch)
                    if frames >= MAX_FRAMES:
                        return sightings, False
        except CaptureError:
            pass  # it is reported where the frames are read
    return sightings, True
