"""RPCs over time by procedure, client, file and connection, in bounded memory."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, coded
from ..measure.compound_rows import NOT_KNOWN, slots_allowed
from ..measure.file_names import CalledFile, NamedFile, PathedRows, PathLearner
from ..measure.statistics import ProcedureKey, key_of_names
from ..measure.time_cells import Peaks, TimeCells
from ..named_tuple import NamedTuple
from ..rpcrdma.rpc_table import DUPLICATE, RpcTable
from .rpc_facts import CallsOutstanding, columns_of

MAX_BREAKDOWN_GROUPS = 512
"""Groups of a kind that are counted individually; beyond that, those with the fewest RPCs are merged until half as many
are left."""
MAX_SESSIONS = 4096
"""NFSv4.1 sessions whose slots are followed."""
OTHERS = 0
_SLOTS = frozenset(("session", "slot"))

Key = TypeVar("Key", bound=Hashable)
FileKey = tuple[NamedFile | None, bytes | None] | str
"""A file, or a name in a directory; the path if it comes from saved tables."""


class ConnectionKey(NamedTuple):
    """What identifies a connection while it is open."""

    number: int
    client: str
    server: str
    port: int | None


class Groups(Generic[Key]):
    """The cells of one kind of group; group OTHERS has the merged ones.

    Within a batch there may be more than the limit."""

    def __init__(self, max_groups: int = MAX_BREAKDOWN_GROUPS) -> None:
        self.cells = TimeCells()
        self.codes: dict[Key, int] = {}
        self.merged = 0
        """Number of groups that were merged."""
        self._max_groups = max_groups
        self._next = 1

    def code(self, key: Key) -> int:
        """The number of a group."""
        code = self.codes.get(key)
        if code is None:
            code = self.codes[key] = self._next
            self._next += 1
        return code

    def merge_smallest(self) -> None:
        """If there are too many groups, merge the smallest until half of the limit is left."""
        if len(self.codes) <= self._max_groups:
            return
        cells = self.cells.rows
        calls = np.bincount(cells[:, 0], cells[:, 3], self._next)
        keys = sorted(self.codes, key=lambda key: calls[self.codes[key]])
        gone = keys[: -(self._max_groups // 2)]
        self.cells.merge(np.array([self.codes.pop(key) for key in gone]), OTHERS)
        self.merged += len(gone)


class Breakdown:
    """Takes tables of RPCs as they end."""

    def __init__(self, learner: PathLearner) -> None:
        self.total = TimeCells(1024, 1 << 17)
        """All RPCs, as one group, 1."""
        self.procedures: Groups[ProcedureKey] = Groups()
        self.clients: Groups[str] = Groups()
        self.files: Groups[FileKey | None] = Groups()
        """None: calls that name no file."""
        self.connections: Groups[ConnectionKey] = Groups()
        self.outstanding: Peaks | None = None
        """Peaks of calls outstanding on one connection, with the credits in force; None before the first RPC."""
        self.slots: Peaks | None = None
        """Peaks of requests outstanding in one NFSv4.1 session, each of which takes a slot, with the slots that the
        server allows."""
        self.highest_slot: int | None = None
        """The highest slot number used."""
        self._learner = learner
        self._latest: dict[FileKey | None, CalledFile] = {}
        self._sessions: dict[tuple[bytes, int], CallsOutstanding] = {}

    def watch(self, replies: Int64s, outstanding: Int64s, credits: Int64s) -> None:
        """Take the calls outstanding before each reply of one connection: a ``Watch`` for ``RpcFacts``."""
        if self.outstanding is None and len(replies):
            self.outstanding = Peaks(self.total.start or int(replies.min()))
        if self.outstanding is not None and len(replies):
            self.outstanding.add(replies, outstanding, credits)

    def add_table(self, table: RpcTable, chosen: NDArray[np.bool_] | None = None) -> None:
        """Take the RPCs of a batch; ``chosen``: which of them count, though all are used to learn paths."""
        if not len(table):
            return
        fields, called = self._learner.learn(table, _SLOTS)
        rows = table.rows
        mine = rows["state"] != DUPLICATE
        if chosen is not None:
            mine &= chosen
        which = mine.nonzero()[0]
        if not len(which):
            return
        rows = rows[which]
        times = np.maximum(rows["reply_end"], rows["call_end"])
        if not self.total.start:
            start = int(times.min())
            for cells in (self.total, *(groups.cells for groups in (self.procedures, self.clients, self.files))):
                cells.start = start
            self.connections.cells.start = start
        failed = np.array([status[1] for status in table.names.statuses] or [False])[rows["status"]].astype(np.int64)
        values = (
            times,
            table.waiting[which],
            failed,
            rows["call_inline"] + rows["read_bytes"],
            rows["reply_inline"] + rows["write_bytes"] + rows["reply_chunk_bytes"],
        )
        self.total.add(np.ones_like(times), *values)
        self.procedures.cells.add(self._procedures(table, rows), *values)
        numbers, inverse = coded(rows["connection"].astype(np.int64))
        ends = [self._connection(table, number) for number in numbers.tolist()]
        self.connections.cells.add(np.array([self.connections.code(end) for end in ends])[inverse], *values)
        self.clients.cells.add(np.array([self.clients.code(end.client) for end in ends])[inverse], *values)
        self.files.cells.add(self._files(called, which), *values)
        for groups in (self.procedures, self.clients, self.files, self.connections):
            groups.merge_smallest()
        if len(self._latest) > len(self.files.codes):
            self._latest = {key: called_file for key, called_file in self._latest.items() if key in self.files.codes}
        self._add_slots(table, rows, which, fields.columns["session"][which], fields.columns["slot"][which])

    def finish(self) -> None:
        """End the count: no more RPCs come.  To be called after ``RpcFacts.at_limit``."""
        for session in self._sessions.values():
            session.finish()
        self._sessions.clear()

    def path(self, key: FileKey) -> str:
        """The path of a file, as far as known."""
        if isinstance(key, str):
            return key
        called = self._latest.get(key)
        path = called.path() if called is not None else None
        if path is None and key[0] is not None:
            return f"file handle {key[0].handle.hex()[:32]}"
        return path or "/"

    def _procedures(self, table: RpcTable, rows: NDArray[np.void]) -> Int64s:
        kinds, inverse = coded(rows["procedure"].astype(np.int64) << 1 | rows["caller"])
        names = table.names.procedures
        keys = [key_of_names(names[kind >> 1], kind & 1 == 1) for kind in kinds.tolist()]
        codes: Int64s = np.array([self.procedures.code(key) for key in keys])[inverse]
        return codes

    def _connection(self, table: RpcTable, number: int) -> ConnectionKey:
        connection = table.conversation(number).connection
        client, server = connection.endpoints
        return ConnectionKey(number, client.address, server.address, connection.service_port)

    def _files(self, called: PathedRows, rows: Int64s) -> Int64s:
        kinds, which = coded(called.alike()[rows])
        # Take the last row of each, as its path is that of the latest call.
        last = np.zeros(len(kinds), np.int64)
        last[which] = rows
        codes = []
        for row in last.tolist():
            named = called[row]
            key: FileKey | None = None
            if isinstance(named, CalledFile):
                key = named.file, named.name
                self._latest[key] = named
            elif named is not None:
                key = named.path()
            codes.append(self.files.code(key))
        return np.array(codes, np.int64)[which]

    def _add_slots(
        self,
        table: RpcTable,
        rows: NDArray[np.void],
        which: Int64s,
        sessions: NDArray[np.object_],
        slots: NDArray[np.object_],
    ) -> None:
        """``which``: indices of ``rows`` in the table."""
        there = np.array([slot is not None for slot in slots.tolist()], np.bool_)
        there &= (rows["call_frame"] > 0) & (rows["reply_frame"] > 0)
        if not there.any():
            return
        rows = rows[there]
        chosen = np.zeros(len(table), np.bool_)
        chosen[which[there]] = True
        allowed = slots_allowed(table, chosen)
        if self.slots is None:
            self.slots = Peaks(self.total.start)
        self.highest_slot = max(self.highest_slot or 0, int(slots[there].max()))
        places: dict[tuple[bytes, int], list[int]] = {}
        for at, key in enumerate(zip(sessions[there].tolist(), rows["caller"].tolist(), strict=True)):
            places.setdefault(key, []).append(at)
        unknown = np.full(len(rows), NOT_KNOWN)
        for key, mine in places.items():
            session = self._sessions.get(key)
            if session is None:
                if len(self._sessions) >= MAX_SESSIONS:
                    continue
                session = self._sessions[key] = CallsOutstanding(self.slots.add)
            these = np.array(mine)
            times = rows["call_time"][these], rows["reply_end"][these]
            session.add(columns_of(*times, unknown[these], allowed[these]))
