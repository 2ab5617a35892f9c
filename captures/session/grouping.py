"""One pass over a capture for questions about load and latency: by group, over time, and against service levels."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol, runtime_checkable

import numpy as np

from rdmascope.dissect.measure.call_groups import (
    CallColumns,
    CallGroups,
    LatencyTimeline,
    ServiceLevel,
    ServiceLevelCounts,
    call_columns,
)
from rdmascope.dissect.measure.time_options import parse_duration
from rdmascope.dissect.onc.rpc_header import procedure_label, program_label
from rdmascope.dissect.records.rpc_columns import Columns, RpcBatches, TableBuilder
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from ..errors import CaptureError
from ..tables.condition import Condition
from ..tables.saved import holds_tables
from .session import Session

KEYS: dict[str, tuple[str, ...]] = {
    **{typed: (column.name,) for typed, column in TABLES["rpcs"].typed.items()},
    "export": ("server", "path"),
    "procedure": (),
    "slot": ("session", "slot"),
    "host": ("connection",),
    "day": (),
}
"""What RPCs are grouped by -> the columns of the table rpcs that say it, for most itself."""
DAY = 86_400 * 10**9
"""Nanoseconds."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Something that RPCs are grouped by."""

    name: str
    """One of ``KEYS``, or 'begin': of the interval that the call is in."""
    interval: int = 0
    """Nanoseconds; of 'begin'."""


def parse_group_keys(text: str) -> tuple[GroupKey, ...]:
    """'client,procedure' or '10s'; raises ValueError."""
    keys = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if (name := part.lower().replace(" ", "_")) in KEYS:
            keys.append(GroupKey(KEYS[name][0] if len(KEYS[name]) == 1 and name != "host" else name))
            continue
        try:
            interval = parse_duration(part) if part[0].isdigit() else 0
        except ValueError:
            interval = 0
        if interval <= 0:
            near = get_close_matches(part.lower(), KEYS, 1)
            others = "the columns of the table rpcs, export, day, host and intervals such as 10s"
            hint = f"did you mean {near[0]}?" if near else f"there are {others}"
            raise ValueError(f"nothing is grouped by {part!r}; {hint}")
        keys.append(GroupKey("begin", interval))
    if not keys:
        raise ValueError(f"nothing to group by in {text!r}")
    return tuple(keys)


@runtime_checkable
class SummedCalls(Protocol):
    """A session that gives sums of RPCs in place of tables, and has a condition of its own."""

    first_time: int

    def summed_calls(
        self, columns: Sequence[str], widths: Sequence[tuple[int, int]], of_time: bool, of_procedures: bool
    ) -> Iterator[tuple[CallColumns, Columns]]:
        """Some at a time: the RPCs that pass its condition, and what these columns have, once of RPCs that are alike.

        ``widths``: begin of the first and length, in nanoseconds, of intervals that are told apart; ``of_time``: and
        when each began, as far as a picture shows it; ``of_procedures``: and what is called.  Raises CaptureError where
        no RPC passes.
        """


class RpcGrouping:
    """What is asked of the RPCs of a capture, and the answers once ``ask`` has read it."""

    def __init__(
        self, keys: Sequence[GroupKey] = (), over_time: bool = False, levels: Sequence[ServiceLevel] = ()
    ) -> None:
        self.keys = tuple(keys)
        self.groups = CallGroups() if keys else None
        self.timeline = LatencyTimeline() if over_time else None
        self.levels = [ServiceLevelCounts(level) for level in levels]
        self.first_time = 0
        """Nanoseconds since the Unix epoch: the start of the capture, from which times of groups are counted."""
        self.calls = 0
        """RPCs that passed."""

    def ask(self, session: Session, condition: Condition | None = None) -> None:
        """Read a session that was not read yet to its end; raises CaptureError where nothing passes the condition."""
        columns = {"number"} | {name for key in self.keys for name in KEYS.get(key.name, ())}
        if isinstance(session, SummedCalls):
            self._ask_sums(session, session)
            return
        columns_in = columns_of(columns, session)
        for table in session.tables():
            if not len(table):
                continue
            calls = call_columns(table, None if condition is None else condition.mask(table, session))
            self._add(calls)
            if self.groups is not None:
                self.first_time = session.first_time
                self.groups.add(calls, [*self._keys(calls, columns_in(table), session)])
            del table
        if condition is not None:
            session.refuse(condition.problem(session))

    def _add(self, calls: CallColumns) -> None:
        self.calls += int(calls.counts.sum())
        if self.timeline is not None:
            self.timeline.add(calls)
        for level in self.levels:
            level.add(calls)

    def _ask_sums(self, session: Session, sums: SummedCalls) -> None:
        """Answer from the sums of a data set."""
        self.first_time = session.first_time
        wanted = [name for key in self.keys for name in (["host"] if key.name == "host" else KEYS.get(key.name, ()))]
        widths = [(self.first_time, key.interval) for key in self.keys if key.interval]
        widths += [(0, DAY) for key in self.keys if key.name == "day"]
        of_time = self.timeline is not None or bool(self.levels)
        of_procedures = bool(self.levels) or any(key.name == "procedure" for key in self.keys)
        for calls, columns in sums.summed_calls(wanted, widths, of_time, of_procedures):
            self._add(calls)
            if self.groups is not None:
                self.groups.add(calls, [*self._keys(calls, columns, session)])

    def _keys(self, calls: CallColumns, columns: Columns, session: Session) -> Iterator[Sequence[Hashable]]:
        for key in self.keys:
            if key.name == "begin":
                yield ((calls.times - self.first_time) // key.interval * key.interval).tolist()
            elif key.name == "procedure":
                yield _procedures(calls)
            elif key.name == "day":
                days, which = np.unique(calls.times // DAY, return_inverse=True)
                names = np.datetime_as_string(days.astype("M8[D]")).tolist()
                yield [names[index] for index in which.tolist()]
            elif key.name == "host" and "host" in columns:
                yield columns[key.name][calls.rows].tolist()
            elif key.name == "host":
                numbers, which = np.unique(columns["connection"].data[calls.rows], return_inverse=True)
                hosts = [*map(session.host, numbers.tolist())]
                yield [hosts[index] for index in which.tolist()]
            else:
                columns_of_key = [columns[name][calls.rows].tolist() for name in KEYS[key.name]]
                yield columns_of_key[0] if len(columns_of_key) == 1 else list(map(_JOINED[key.name], *columns_of_key))


def columns_of(names: Iterable[str], session: Session) -> Callable[[RpcTable], Columns]:
    """Gives some columns of the table rpcs of the RPCs of a session.

    Raises CaptureError for that of files, of which saved tables do not tell.
    """
    builder = TableBuilder(TABLES["rpcs"], {*names}, session.place)
    if builder.needs("files") and holds_tables(session.paths[0]):
        raise CaptureError(f"{session.path}: holds tables, which 'rdmascope sql' can ask about files")
    batches = RpcBatches(builder.needs("files"), builder.needs("paths"), session)

    def columns(table: RpcTable) -> Columns:
        builder.add(batches.batch(table))
        return builder.take()

    return columns


def _procedures(calls: CallColumns) -> list[str]:
    """'NFSv4.1 WRITE GETATTR' of each RPC."""
    codes, inverse = np.unique(calls.procedures, return_inverse=True)
    labels = []
    for code in codes.tolist():
        names = calls.names.procedures[code >> 1]
        program = program_label(names.program, names.version, names.minor_version)
        labels.append(f"{program} {procedure_label(names.name, names.operations)}{' backward' if code & 1 else ''}")
    return [labels[index] for index in inverse.tolist()]


def export_of(server: str | None, path: str | None) -> str | None:
    """A server and the top directory of a path on it, / for files in its root: what most servers export."""
    if path is None:
        return None
    top = re.match(r"/[^/]+(?=/)", path)
    root = "/" if path.startswith("/") else path.partition("/")[0]
    return f"{server}:{top[0] if top else root}"


_JOINED: dict[str, Callable[..., str | None]] = {
    "export": export_of,
    "slot": lambda session, slot: None if slot is None else f"{slot} of {session}",
}
