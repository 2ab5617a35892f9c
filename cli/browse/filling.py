"""What fills the tables behind the panes: passes over the capture, whose rows are sent part by part."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rdmascope.captures import CaptureError
from rdmascope.captures.read.merge import NumberOffset
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Progress, Session
from rdmascope.captures.tables.browsed_tables import LATER, first_columns, stored_rows
from rdmascope.captures.tables.table_pass import needs_contents, table_batches
from rdmascope.dissect.records.table import Columns, TableBuilder, Wanted, joined
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import Options

if TYPE_CHECKING:
    from rdmascope.captures.fleet.batch import CaptureBehind

FIRST_PART, ADDED_PART, LAST_PART = 0.3, 0.2, 2.0
"""Seconds for which rows are gathered before they are sent.  Before the first nothing takes them in; then new rows
follow soon, so that few are left at the end, and columns of rows that are there take longer and longer."""
PART_ROWS = 1 << 13
"""About so many rows are sent at once, so that the process that takes them in can draw between them."""
FIRST_BATCH, BATCH = 32 << 20, 16 << 20
"""Bytes of a capture that are in memory at a time: in the first pass, and in those beside which others hold some."""
ADDED, COMPLETING, PREPARED, REPLACING = "added", "completing", "prepared", "replacing"
"""What becomes of rows: they are new; columns of rows that are there; nothing yet; and with this part they and those
prepared take the place of all before."""


class BrowsedCapture(NamedTuple):
    """What the panes show: files or a data set, and how they are read."""

    paths: tuple[str, ...]
    options: Options
    frames_before: int | None = None
    """Of a live capture: how many frames are kept no more; None where it is not live."""
    data_set: str = ""
    """The path: its tables are read, and the captures behind it where something is looked at."""
    behind: CaptureBehind | None = None
    """One of those."""

    def holding(self, noun: str, number: int) -> BrowsedCapture:
        """The capture of a data set that has a noun with this number; else itself.  CaptureError: it cannot be read."""
        if not self.data_set:
            return self
        from rdmascope.captures.fleet.batch import CapturesBehind

        one = CapturesBehind(self.data_set).holding(noun, number)
        if problem := one.problem():
            raise CaptureError(problem)
        return BrowsedCapture(one.paths, one.options, behind=one)

    def session(self, options: Options | None = None, progress: Progress | None = None, alone: bool = False) -> Session:
        """A pass over it; ``alone``: in larger batches, which is faster, as no other pass holds some beside it."""
        if self.data_set:
            from rdmascope.captures.tables.saved_session import open_saved_session

            return open_saved_session(self.data_set)
        return Session(
            self.paths,
            options or self.options,
            progress=progress,
            before=NumberOffset(frames=self.frames_before or 0) if self.behind is None else self.behind.before,
            jobs=None if alone else 1,
            limits=Limits(bytes=FIRST_BATCH if alone else BATCH),
        )

    @property
    def numbered(self) -> bool:
        """A pass gives RPCs and connections the numbers that the lists have."""
        return not self.frames_before


class ReadProgress(NamedTuple):
    """How far reading is."""

    position: int
    size: int | None
    frames: int
    first_time: int


class TablePart(NamedTuple):
    """Rows that are ready to be taken in."""

    table: str
    columns: Columns
    rows: int
    purpose: str = ADDED


class ReadToEnd(NamedTuple):
    """The capture was read to its end."""

    frames: int
    damage: str
    remarks: tuple[str, ...]


class RowsToSend:
    """Rows, until it is time to send them."""

    def __init__(self, purposes: dict[str, str]) -> None:
        """By table; in this order they are sent."""
        self._purposes = purposes
        self._held: dict[str, list[Columns]] = {name: [] for name in purposes}
        self._rows = dict.fromkeys(purposes, 0)
        self._sent, self._wait = time.monotonic(), FIRST_PART
        self._only_new = {*purposes.values()} == {ADDED}

    def add(self, name: str, columns: Columns) -> None:
        self._held[name].append(columns)
        self._rows[name] += len(next(iter(columns.values())))

    def take_from(self, builder: TableBuilder) -> None:
        """Take the rows of a builder."""
        if len(builder):
            self.add(builder.table.name, builder.take())

    @property
    def due(self) -> bool:
        """Whether it is time to send what is held."""
        return time.monotonic() - self._sent > self._wait or max(self._rows.values()) >= PART_ROWS

    def take(self, ended: bool = False) -> Iterator[TablePart]:
        """What is there; nothing more comes where it has ended."""
        for name, purpose in self._purposes.items():
            taken = joined(TABLES[name], self._held[name]) if self._rows[name] or ended else {}
            rows, self._rows[name] = self._rows[name], 0
            self._held[name].clear()
            size = -(-rows // max(1, round(rows / PART_ROWS)))
            for first in range(0, rows, size or 1):
                last = first + size >= rows and ended
                sent = PREPARED if purpose == REPLACING and not last else purpose
                part = {one: values[first : first + size] for one, values in taken.items()}
                yield TablePart(name, part, min(size, rows - first), sent)
            if not rows and ended and purpose == REPLACING:
                yield TablePart(name, taken, 0, purpose)
        self._sent = time.monotonic()
        self._wait = ADDED_PART if self._only_new else min(LAST_PART, 1.5 * self._wait)


def fill(
    capture: BrowsedCapture, tables: Sequence[str], later: str = ""
) -> Iterator[TablePart | ReadProgress | ReadToEnd | None]:
    """Fill tables in one pass; of a live capture in place of what they hold.

    ``later``: only these of ``LATER``, of rpcs that are there, and all of the connections.
    """
    if capture.data_set:
        yield from _filled(capture, tables)
        return
    wanted: Wanted = {name: first_columns(name) for name in tables}
    purposes = dict.fromkeys(tables, ADDED)
    if later:
        wanted = {"rpcs": {"number", *LATER[later]}, "connections": None}
        purposes = {"rpcs": COMPLETING, "connections": REPLACING}
    elif capture.frames_before is not None:
        wanted = {"rpcs": {"number", "call_frame"}, **wanted}
        purposes = {"rpcs": PREPARED, **dict.fromkeys(tables, REPLACING)}
    at: list[ReadProgress] = []

    def progress(position: int, size: int | None, frames: int) -> None:
        at[:] = [ReadProgress(position, size, frames, session.first_time)]

    session = capture.session(replace(capture.options, contents=needs_contents(wanted)), progress, alone=not later)
    gathered = RowsToSend(purposes)
    for name, columns in table_batches(session, wanted, rows=1):
        gathered.add(name, columns)
        if gathered.due:
            yield from gathered.take()
            yield from at
        else:
            yield None
    yield from gathered.take(ended=True)
    yield from at
    damage = "" if session.damage is None else str(session.damage)
    if not damage and not session.analyzer.frames:
        session.check()
    yield ReadToEnd(session.analyzer.frames, damage, tuple(session.remarks()))


def _filled(capture: BrowsedCapture, tables: Sequence[str]) -> Iterator[TablePart | ReadProgress | ReadToEnd | None]:
    """The same of a data set, whose rows have all columns at once."""
    session = capture.session()
    frames = session.analyzer.frames
    gathered = RowsToSend(dict.fromkeys(tables, ADDED))
    for name, columns in stored_rows(capture.data_set, tables):
        gathered.add(name, columns)
        yield from gathered.take() if gathered.due else (None,)
    yield from gathered.take(ended=True)
    yield ReadProgress(frames, frames, frames, session.first_time)
    yield ReadToEnd(frames, "" if session.damage is None else str(session.damage), tuple(session.remarks()))
