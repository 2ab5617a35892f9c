"""Names of files from batches of RPCs: what each call names, with the path that is known then or learned later.

Most calls that name a file are alike: a directory's handle and a name in the call, the file's handle in the reply.
These are read by columns; where a look at every step is needed, ``onc.file_events`` takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..onc.file_events import NAMED, REMOVED, FileEvent
from ..onc.naming import FOUND, NOTHING, Naming, naming
from ..onc.naming import REMOVED as REMOVES
from ..onc.programs import NFS_CALLBACK
from ..onc.shapes.flat import FlatFields
from ..rpcrdma.reassembly import reassembled_call, reassembled_reply
from ..rpcrdma.rpc_fields import FieldColumns, FieldReader
from ..rpcrdma.rpc_table import RpcTable
from ..rpcrdma.rpcs import DUPLICATE_REPLY, Rpc
from .late_paths import Pathed
from .partial_messages import nfs_messages
from .paths import NamedFile, Paths, always_named, joined, path_at, printable

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
        path = self.path()
        return path is not None and path.startswith("/")


class NamedRpc(NamedTuple):
    """An RPC and what it names."""

    rpc: Rpc
    fields: FlatFields
    file: Pathed | None

    def path(self) -> str | None:
        """As far as it is known now."""
        return None if self.file is None else self.file.path()


class PathLearner:
    """Fed the RPCs of a capture as they end."""

    def __init__(
        self,
        reader: FieldReader | None = None,
        read_names: Callable[[], Paths[NamedFile] | None] | None = None,
        max_files: int = 0,
    ) -> None:
        """``read_names``: reads the whole capture for names; None where that cannot be done.  ``max_files``: that are
        remembered; 0 is no limit."""
        self.reader = reader or FieldReader()
        self.paths: Paths[NamedFile] = Paths(NamedFile)
        self._servers: dict[tuple[int, bool], str] = {}
        self._read_names = read_names
        self._all: Paths[NamedFile] | None = None
        self._max_files = max_files

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
        if self._read_names is not None:
            self._all, self._read_names = self._read_names(), None
        file = None if self._all is None else self._all.known(called.file.server, called.file.handle)
        return path if file is None else called._replace(file=file).path()

    def learn(self, table: RpcTable) -> tuple[FieldColumns, Sequence[Pathed | None]]:
        """Note what the RPCs of a table say of names; returns what each of them names."""
        columns, kinds = self._learned(table, frozenset(FlatFields._fields))
        return columns, self._called(table, columns, kinds)

    def learn_paths(self, table: RpcTable, first: int, last: int) -> list[str | None]:
        """The same without other fields, as paths: of calls in frames ``first`` to ``last``."""
        columns, kinds = self._learned(table, _NAMES)
        frames = table.rows["call_frame"]
        inside = ((frames >= first) & (frames <= last)).tolist()
        if not any(inside):
            return [None] * len(table)
        files = self._called(table, columns, kinds)
        return self.listed([file if wanted else None for file, wanted in zip(files, inside, strict=True)])

    def listed(self, files: Sequence[Pathed | None]) -> list[str | None]:
        """The paths of what calls name; many, between which nothing is learned."""
        known: dict[tuple[NamedFile, bytes | None], str | None] = {}
        found = []
        for called in files:
            if not isinstance(called, CalledFile) or called.file is None:
                found.append(None if called is None else called.path())
                continue
            key = called.file, called.name
            if key not in known:
                path = self.path(called)
                if always_named(called.file) and (self._all is None or always_named(self._all.same(called.file))):
                    known[key] = path
                found.append(path)
            else:
                found.append(known[key])
        return found

    def learn_names(self, table: RpcTable) -> None:
        """Only note what they say of names."""
        self._learned(table, _NAMES)

    def _learned(self, table: RpcTable, wanted: frozenset[str]) -> tuple[FieldColumns, dict[int, Naming]]:
        codes = table.rows["procedure"]
        kinds = {code: naming(*_procedure(table, code)) for code in np.unique(codes).tolist()}
        found = np.isin(codes, [code for code, one in kinds.items() if one.kind == FOUND])
        columns = self.reader.columns(table, found & table.is_plain, wanted)
        self._learn_names(table, columns, kinds)
        if self._max_files and len(self.paths) > self._max_files:
            self.paths.forget(self._max_files // 2)
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

    def _learn_names(self, table: RpcTable, columns: FieldColumns, kinds: dict[int, Naming]) -> None:
        rows = table.rows
        codes = rows["procedure"]
        naming_codes = [code for code, one in kinds.items() if one.kind != NOTHING]
        handles, names, objects = (columns.columns[name] for name in ("handle", "name", "object"))
        failed = np.array([one[1] for one in table.names.statuses] or [False])[rows["status"]]
        for place in np.isin(codes, naming_codes).nonzero()[0].tolist():
            rule = kinds[int(codes[place])]
            plain = bool(table.is_plain[place])
            event: FileEvent | None = None
            if plain and rule.kind == FOUND and objects[place] is not None:
                if not objects[place] or objects[place] == handles[place]:
                    continue
                event = FileEvent(NAMED, objects[place], handles[place], names[place], made=rule.made)
            elif plain and rule.kind == REMOVES and not failed[place]:
                event = FileEvent(REMOVED, None, handles[place], names[place])
            if event is not None:
                self.paths.learn(self._server(table, place), event, int(rows["reply_end"][place]))
            else:
                self._learn_singly(table.rpc(place))

    def _learn_singly(self, rpc: Rpc) -> None:
        if rpc.call is None or rpc.reply is None or rpc.state == DUPLICATE_REPLY:
            return
        messages = nfs_messages(reassembled_call(rpc), reassembled_reply(rpc))
        if messages is not None:
            server = server_of(rpc)
            for event in messages.events:
                self.paths.learn(server, event, rpc.reply.operation.last_time)

    def _called(self, table: RpcTable, columns: FieldColumns, kinds: dict[int, Naming]) -> list[CalledFile | None]:
        rows = table.rows
        found: list[CalledFile | None] = []
        files: dict[tuple[int, int, bool, bytes], NamedFile] = {}
        for handle, name, code, connection, caller, time in zip(
            columns.columns["handle"].tolist(),
            columns.columns["name"].tolist(),
            *(rows[one].tolist() for one in ("procedure", "connection", "caller", "call_time")),
            strict=True,
        ):
            rule = kinds[code]
            file = None
            if handle is not None:
                key = connection, caller, rule.callback, handle
                file = files.get(key)
                if file is None:
                    server = self._server_of(table, connection, caller, rule.callback)
                    file = files[key] = self.paths.file(server, handle)
            elif not rule.from_root:
                found.append(None)
                continue
            found.append(CalledFile(file, name if rule.named else None, time))
        return found

    def _server(self, table: RpcTable, place: int) -> str:
        row = table.rows[place]
        return self._server_of(table, int(row["connection"]), int(row["caller"]), False)

    def _server_of(self, table: RpcTable, connection: int, caller: int, callback: bool) -> str:
        key = connection, bool(caller) ^ callback
        found = self._servers.get(key)
        if found is None:
            endpoints = table.conversation(connection).connection.endpoints
            found = self._servers[key] = endpoints[1 - key[1]].address
        return found


def _procedure(table: RpcTable, code: int) -> tuple[int | None, int | None, tuple[str, ...], str]:
    names = table.names.procedures[code]
    return names.program, names.version, names.operations, names.name


def server_of(rpc: Rpc) -> str:
    """Address of the host that has the files."""
    return rpc.connection.endpoints[rpc.backward ^ (rpc.program != NFS_CALLBACK)].address
