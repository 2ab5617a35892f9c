"""Names of files from batches of RPCs: what each call names, with the path that is known then or learned later.

Most calls that name a file are alike: a directory's handle and a name in the call, the file's handle in the reply.
These are read by columns; where a look at every step is needed, ``onc.file_events`` takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, overload
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64s, among, coded_keys, take, unique
from ..onc.naming import FOUND, NOTHING, Naming, naming
from ..onc.naming import REMOVED as REMOVES
from ..onc.programs import NFS_CALLBACK
from ..onc.shapes.rpc_summary_fields import FlatFields
from ..rpcrdma.reassembly import reassembled_call, reassembled_reply
from ..rpcrdma.rpc_fields import FieldColumns, FieldReader
from ..rpcrdma.rpc_table import STATES, RpcTable
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Rpc
from ..text_columns import KnownTexts
from .paths import MountRoot, NamedFile, Paths, SpannedPaths, always_named, joined, path_at, printable
from .pending_names import KnownPaths, Pathed, PathedRows
from .truncated_messages import nfs_messages

_NAMES = frozenset(("handle", "name"))


class CalledFile(NamedTuple):
    """What a call names."""

    file: NamedFile | None
    """None: the root of the server, or what stands in a directory that the call does not name."""
    name: bytes | None
    """A name in it."""
    time: int
    """Of the call."""

    def path(self) -> str | None:
        """As far as it is known now; None where nothing is."""
        path = "/" if self.file is None else path_at(self.file, self.time)
        return path if self.name is None else joined(path, printable(self.name))

    @property
    def sure(self) -> bool:
        """Nothing that is learned later can complete the path."""
        return is_whole(self.path())


class CalledFiles(PathedRows):
    """What the calls of a batch name; many name the same."""

    def __init__(self, named: list[tuple[NamedFile | None, bytes | None] | None], which: Int64s, times: Int64s) -> None:
        """``named``: files and names as in ``CalledFile``; ``which``: index of each row's; ``times`` of the calls."""
        self._named, self._which, self._times = named, which, times

    def __len__(self) -> int:
        return len(self._which)

    @overload
    def __getitem__(self, index: int) -> CalledFile | None: ...

    @overload
    def __getitem__(self, index: slice) -> list[CalledFile | None]: ...

    def __getitem__(self, index: int | slice) -> CalledFile | list[CalledFile | None] | None:
        if isinstance(index, slice):
            return [self[one] for one in range(len(self))[index]]
        named = self._named[int(self._which[index])]
        return None if named is None else CalledFile(*named, int(self._times[index]))

    def paths(self) -> KnownPaths:
        first, last = self._span()
        spans = SpannedPaths()
        texts: list[str | None] = []
        changing: list[int] = []
        for index, (named, begun, ended) in enumerate(zip(self._named, first.tolist(), last.tolist(), strict=True)):
            if named is None:
                texts.append(None)
                continue
            file, name = named
            until, text = (ended + 1, "/") if file is None else spans.at(file, begun)
            texts.append(text if name is None else joined(text, printable(name)))
            if until <= ended:
                changing.append(index)
        sure = [named is None or is_whole(text) for named, text in zip(self._named, texts, strict=True)]
        if not changing:
            return KnownPaths(texts, sure, self._which)
        which = self._which.copy()
        rows = np.flatnonzero(among(which, np.array(changing)))
        places: dict[tuple[int, str | None], int] = {}
        found: list[int] = []
        for index, time in zip(which[rows].tolist(), self._times[rows].tolist(), strict=True):
            file, name = self._named[index] or (None, None)
            assert file is not None
            _, text = spans.at(file, time)
            place = places.setdefault((index, text), len(texts))
            if place == len(texts):
                texts.append(text if name is None else joined(text, printable(name)))
            found.append(place)
        which[rows] = found
        return KnownPaths(texts, sure + [is_whole(text) for text in texts[len(sure) :]], which)

    def _span(self) -> tuple[Int64s, Int64s]:
        """Of each of what is named the first and the last time."""
        first = np.full(len(self._named), (1 << 63) - 1)
        last = np.full(len(self._named), -(1 << 63))
        np.minimum.at(first, self._which, self._times)
        np.maximum.at(last, self._which, self._times)
        return first, last


class NamedRpc(NamedTuple):
    """An RPC and what it names."""

    rpc: Rpc
    fields: FlatFields
    file: Pathed | None

    def path(self) -> str | None:
        """As far as it is known now."""
        return None if self.file is None else self.file.path()


class TableNames:
    """What the calls of a table name, each when it is asked for, by number of the RPC."""

    def __init__(self, columns: FieldColumns, files: PathedRows, numbers: Int64s) -> None:
        self._columns, self._files, self._numbers = columns, files, numbers

    @cached_property
    def _rows(self) -> dict[int, int]:
        numbers = self._numbers.tolist()
        return dict(zip(reversed(numbers), range(len(numbers) - 1, -1, -1), strict=True))

    def path(self, number: int) -> str | None:
        """As far as it is known now."""
        file = self._files[self._rows[number]]
        return None if file is None else file.path()

    def user(self, number: int) -> str | None:
        """Who calls."""
        return self._columns.row(self._rows[number]).user


class PathLearner:
    """Fed the RPCs of a capture as they end."""

    def __init__(
        self,
        reader: FieldReader | None = None,
        read_names: Callable[[], Paths[NamedFile] | None] | None = None,
        max_files: int = 0,
        mounts: Sequence[MountRoot] = (),
    ) -> None:
        """``read_names``: reads the whole capture for names; None where that cannot be done.  ``max_files``: that are
        remembered; 0 is no limit.  ``mounts``: what is known of roots from elsewhere; it may grow."""
        self.reader = reader or FieldReader()
        self.mounts, self._mounted = mounts, 0
        self.paths: Paths[NamedFile] = Paths(NamedFile)
        self._servers: dict[tuple[int, bool], str] = {}
        self.read_names = read_names
        self._all: Paths[NamedFile] | None = None
        self._max_files = max_files
        self._latest: tuple[ref[RpcTable], frozenset[str], tuple[FieldColumns, dict[int, Naming]]] | None = None
        """The table that was learned last, which fields were read of it, and what was found."""
        self.incomplete = False
        """Some path was given as far as it was known then, and could not be looked up."""

    @property
    def knows_all(self) -> bool:
        """The whole capture was read for names."""
        return self._all is not None

    def path(self, called: Pathed) -> str | None:
        """Of what a call names.  What is not known yet is looked up in the whole capture, so that the path is the same
        whenever it is asked for."""
        path = called.path()
        if not isinstance(called, CalledFile) or called.file is None or (path is not None and path.startswith("/")):
            return path
        if self._all is None and self.read_names is not None:
            self._all, self.read_names = self.read_names(), None
        self.incomplete |= self._all is None
        file = None if self._all is None else self._all.known(called.file.server, called.file.handle)
        return path if file is None else called._replace(file=file).path()

    def learn(self, table: RpcTable) -> tuple[FieldColumns, PathedRows]:
        """Note what the RPCs of a table say of names; returns what each of them names."""
        columns, kinds = self._learned(table, frozenset(FlatFields._fields))
        return columns, self._called(table, columns, kinds)

    def learn_paths(self, table: RpcTable, first: int, last: int) -> KnownTexts:
        """The same without other fields, as paths: of calls in frames ``first`` to ``last``."""
        columns, kinds = self._learned(table, _NAMES)
        frames = table.rows["call_frame"]
        inside = (frames >= first) & (frames <= last)
        if not inside.any():
            return KnownTexts([None], np.zeros(len(table), np.int64))
        return self.listed(self._called(table, columns, kinds), inside)

    def listed(self, files: PathedRows, wanted: NDArray[np.bool_] | None = None) -> KnownTexts:
        """The paths of what calls name, by default of all; many, between which nothing is learned."""
        paths = files.paths()
        texts, which, late = paths.texts, paths.which, paths.late()
        if len(late) or wanted is not None:
            texts, which = [*texts, None], which.copy()
        if wanted is not None:
            which[~wanted] = len(texts) - 1
        known: dict[tuple[NamedFile | None, bytes | None], int] = {}
        for row in late.tolist() if wanted is None else late[wanted[late]].tolist():
            called = files[row]
            assert isinstance(called, CalledFile) and called.file is not None
            key = called.file, called.name
            if key in known:
                which[row] = known[key]
                continue
            which[row] = len(texts)
            texts.append(self.path(called))
            if always_named(called.file) and (self._all is None or always_named(self._all.same(called.file))):
                known[key] = len(texts) - 1
        return KnownTexts(texts, which)

    def learn_names(self, table: RpcTable) -> None:
        """Only note what they say of names."""
        self._learned(table, _NAMES, True)

    def _learned(
        self, table: RpcTable, wanted: frozenset[str], names_only: bool = False
    ) -> tuple[FieldColumns, dict[int, Naming]]:
        """``names_only``: not the fields of RPCs that say nothing of names, most of whose bytes are data."""
        same = self._latest is not None and self._latest[0]() is table
        if self._latest is not None and same and wanted <= self._latest[1]:
            return self._latest[2]
        codes = table.rows["procedure"]
        kinds = {code: naming(*_procedure(table, code)) for code in unique(codes).tolist()}
        found = among(codes, np.array([code for code, one in kinds.items() if one.kind == FOUND]))
        silent = among(codes, np.array([code for code, one in kinds.items() if one.kind == NOTHING]))
        columns = self.reader.columns(table, found & _usual(table), wanted, silent if names_only else None)
        for server, event, time in self.mounts[self._mounted :]:
            self.paths.learn(server, event, time)
        self._mounted = len(self.mounts)
        if not same:
            self._learn_names(table, columns, kinds)
        if self._max_files and len(self.paths) > self._max_files:
            self.paths.forget(self._max_files // 2)
        self._latest = ref(table), frozenset() if names_only else wanted, (columns, kinds)
        return columns, kinds

    def named(self, table: RpcTable) -> Iterator[NamedRpc]:
        """The same as objects."""
        columns, files = self.learn(table)
        for index, (rpc, file) in enumerate(zip(table, files, strict=True)):
            yield NamedRpc(rpc, columns.row(index), file)

    def one(self, rpc: Rpc, fields: FlatFields) -> CalledFile | None:
        """What an RPC names."""
        if rpc.call is None:
            return None
        rule = naming(rpc.program, rpc.version, rpc.operations, rpc.name)
        name = fields.name if rule.named else None
        if fields.handle is not None:
            return CalledFile(self.paths.file(server_of(rpc), fields.handle), name, rpc.call.time)
        return CalledFile(None, name, rpc.call.time) if rule.from_root else None

    def path_of_call(self, rpc: Rpc) -> str | None:
        """Of what a call names, which may have no reply; the RPC has its name."""
        called = self.one(rpc, self.reader.fields(rpc))
        return None if called is None else self.path(called)

    def _learn_names(self, table: RpcTable, columns: FieldColumns, kinds: dict[int, Naming]) -> None:
        codes = table.rows["procedure"]
        naming_codes = [code for code, one in kinds.items() if one.kind != NOTHING]
        failed = np.array([one[1] for one in table.names.statuses] or [False])
        places = among(codes, np.array(naming_codes)).nonzero()[0]
        rows = take(table.rows, places)
        for place, code, usual, failure, connection, caller, time, handle, name, found in zip(
            places.tolist(),
            rows["procedure"].tolist(),
            _usual(table)[places].tolist(),
            failed[rows["status"]].tolist(),
            *(rows[one].tolist() for one in ("connection", "caller", "reply_end")),
            *(columns.columns[one][places].tolist() for one in ("handle", "name", "object")),
            strict=True,
        ):
            rule = kinds[code]
            if usual and rule.kind == FOUND and found is not None:
                if found and found != handle and handle is not None and name is not None:
                    server = self._server_of(table, connection, caller)
                    self.paths.name(
                        self.paths.file(server, handle), name, self.paths.file(server, found), time, rule.made
                    )
            elif usual and rule.kind == REMOVES and not failure and handle is not None and name is not None:
                server = self._server_of(table, connection, caller)
                self.paths.end(self.paths.file(server, handle), name, time, "removed")
            else:
                self._learn_singly(table.rpc(place))

    def _learn_singly(self, rpc: Rpc) -> None:
        if rpc.call is None or rpc.reply is None or rpc.state == DUPLICATE_REPLY or rpc.conversation.traced:
            return
        messages = nfs_messages(reassembled_call(rpc), reassembled_reply(rpc))
        if messages is not None:
            server = server_of(rpc)
            for event in messages.events:
                self.paths.learn(server, event, rpc.reply.operation.last_time)

    def _called(self, table: RpcTable, columns: FieldColumns, kinds: dict[int, Naming]) -> CalledFiles:
        rows = table.rows
        rules = np.zeros((max(kinds, default=0) + 1, 3), np.int64)
        for code, rule in kinds.items():
            rules[code] = rule.named, rule.from_root, rule.callback
        by_name, from_root, callback = rules[rows["procedure"]].T
        names = columns.columns["name"].copy()
        names[by_name == 0] = None
        # Connection, the end that has the files, and whether a path may begin at the root.
        sides = (rows["connection"].astype(np.int64) << 1 | rows["caller"] ^ callback) << 1 | from_root
        keys = zip(columns.columns["handle"].tolist(), names.tolist(), sides.tolist(), strict=True)
        distinct, which = coded_keys(keys, len(table))
        named: list[tuple[NamedFile | None, bytes | None] | None] = []
        for handle, name, side in distinct:
            if handle is not None:
                server = self._server_of(table, side >> 2, side >> 1 & 1)
                named.append((self.paths.file(server, handle), name))
            else:
                named.append((None, name) if side & 1 else None)
        return CalledFiles(named, which, rows["call_time"])

    def _server_of(self, table: RpcTable, connection: int, caller: int) -> str:
        """Of calls from this end, or of callbacks from the other."""
        key = connection, bool(caller)
        found = self._servers.get(key)
        if found is None:
            endpoints = table.conversation(connection).connection.endpoints
            found = self._servers[key] = endpoints[1 - key[1]].address
        return found


WHOLE = [STATES.index(one) for one in ("complete", "error")]


def _usual(table: RpcTable) -> NDArray[np.bool_]:
    """RPCs with both messages whole, about which there is nothing to note: all plain ones, and some objects."""
    usual: NDArray[np.bool_] = np.isin(table.rows["state"], WHOLE) & (table.rows["flags"] == 0)
    return usual


def is_whole(path: str | None) -> bool:
    """It begins at the root."""
    return path is not None and path.startswith("/")


def _procedure(table: RpcTable, code: int) -> tuple[int | None, int | None, tuple[str, ...], str]:
    names = table.names.procedures[code]
    return names.program, names.version, names.operations, names.name


def server_of(rpc: Rpc) -> str:
    """Address of the host that has the files."""
    return rpc.connection.endpoints[rpc.backward ^ (rpc.program != NFS_CALLBACK)].address
