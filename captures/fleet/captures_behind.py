"""The captures behind a data set: each is read by itself, and has its numbers of the data set."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass

from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.units import plural

from ..errors import CaptureError
from ..read.merge import NumberOffset, short_names
from ..tables.saved import copies
from ..tables.saved_tables import ManifestEntry, Numbering, entries, open_saved
from .batch import changed, options_of


@dataclass(frozen=True, slots=True)
class CaptureBehind:
    """A capture whose tables are in a data set."""

    entry: ManifestEntry
    before: NumberOffset

    @property
    def paths(self) -> tuple[str, ...]:
        return self.entry.paths

    @property
    def options(self) -> Options:
        """Those that it was analysed with."""
        return options_of(self.entry.options)

    @property
    def name(self) -> str:
        """'web1: a.pcap and 2 more files'."""
        others = len(self.paths) - 1
        return f"{self.entry.host}: {self.before.names[self.paths[0]]}" + (
            f" and {plural(others, 'more file')}" if others else ""
        )

    def highest(self, noun: str) -> int:
        """The highest number of its rows of a table."""
        before, own = self.before, self.entry
        return {
            "packets": before.frames + own.frames,
            "rpcs": before.rpcs + own.rpcs,
            "connections": before.connections + own.connections,
            "files": before.files + own.files,
        }[noun]

    @property
    def frames(self) -> tuple[int, int]:
        """Numbers of the first and the last."""
        return self.before.frames + 1, self.highest("packets")

    def has_rpc(self, number: int) -> bool:
        return self.before.rpcs < number <= self.highest("rpcs")

    def problem(self) -> str:
        """Why it cannot be read as it was; '' where it can."""
        return changed(self.entry)


class CommonConnections:
    """Which capture counts a connection that several captures of the same time have: the first."""

    def __init__(self) -> None:
        self._seen: dict[frozenset[object], list[CaptureBehind]] = {}

    def first_seen(self, capture: CaptureBehind) -> Callable[[Connection], bool]:
        """Whether connections of the next capture are not in one before that was made at the same time."""
        entry = capture.entry

        def own(connection: Connection) -> bool:
            key = frozenset((endpoint.address, endpoint.qpn, endpoint.port) for endpoint in connection.endpoints)
            seen = self._seen.setdefault(key, [])
            if capture not in seen:
                seen.append(capture)
            first = next(
                one
                for one in seen
                if one.entry.first_time_ns <= entry.last_time_ns and entry.first_time_ns <= one.entry.last_time_ns
            )
            return first is capture

        return own


class CapturesBehind:
    """Those of a data set, in the order of their numbers."""

    def __init__(self, path: str) -> None:
        """Raises CaptureError for a data set that cannot be read."""
        self.path, self.name = path, copies.get(path, path)
        numbering = Numbering(entries(path))
        if not numbering.entries:
            raise CaptureError(f"{path}: no capture in this data set could be read")
        names = short_names([path for one in numbering.entries for path in one.paths])
        first_time = min(one.first_time_ns for one in numbering.entries)
        self.captures: list[CaptureBehind] = []
        for entry in numbering.entries:
            offsets = numbering.offsets[entry.capture]
            before = NumberOffset(
                offsets["frames"], offsets["connections"], offsets["rpcs"], offsets["files"], first_time, names
            )
            self.captures.append(CaptureBehind(entry, before))

    def holding(self, noun: str, number: int) -> CaptureBehind:
        """The capture that has something of this number of its table; raises CaptureError where none has."""
        for capture in self.captures:
            if number <= capture.highest(noun):
                return capture
        raise CaptureError(f"{self.name}: no {noun.removesuffix('s')} {number}")

    def divided(self, noun: str, numbers: Collection[int]) -> dict[str, frozenset[int]]:
        """By capture, as the manifest names it: which of these numbers of a table it has."""
        highest = [one.highest(noun) for one in self.captures]
        found: dict[str, list[int]] = {}
        for number in numbers:
            at = bisect_left(highest, number)
            if at < len(highest):
                found.setdefault(self.captures[at].entry.capture, []).append(number)
        return {capture: frozenset(those) for capture, those in found.items()}

    @property
    def frames(self) -> int:
        return sum(capture.entry.frames for capture in self.captures)

    @property
    def rpcs(self) -> int:
        return sum(capture.entry.rpcs for capture in self.captures)

    def with_xids(self, xids: Collection[int]) -> dict[int, list[int]]:
        """The numbers of the RPCs that have these XIDs, in the order in which they ended, as the tables have them."""
        found: dict[int, list[int]] = {}
        if not xids:
            return found
        with open_saved(self.path) as database:
            query = "SELECT xid, number FROM rpcs WHERE list_contains(?, xid) ORDER BY ended"
            for xid, number in database.connection.execute(query, [[*xids]]).fetchall():
                found.setdefault(xid, []).append(number)
        return found
