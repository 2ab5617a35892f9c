"""What detectors want to know of files: gathered from tables of RPCs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ..arrays import distinct, unique
from ..measure.files import READ, WRITE, File, FileCall, FileTable, FileTransfer, FileUses
from ..onc.file_operations import UNSTABLE
from ..rpcrdma.rpc_table import RpcTable
from .rpc_facts import Examples, examples_by

MAX_EARLIER = 2
"""Names that a file had before, of those that are listed."""
MAX_SIZES = 4096
"""Sizes counted one by one."""


@dataclass(slots=True, eq=False)
class Transfers:
    """READs or WRITEs of all files."""

    sizes: Counter[int] = field(default_factory=Counter)
    """Bytes that were transferred -> how often."""
    sequential: Counter[int] = field(default_factory=Counter)
    """The same of those that begin where the one before in the same file ended."""
    last_end: dict[int, int] = field(default_factory=dict)
    """By file."""
    examples: Examples = field(default_factory=Examples)
    """Weighed by latency, in nanoseconds."""


class FileFacts:
    """Fed tables of RPCs as they end."""

    def __init__(self) -> None:
        self.table = FileTable()
        self.used: FileUses | None = None
        """What the RPCs of the last batch did with which files."""
        self.costs: dict[int, Examples] = {}
        """By the file's number: RPCs on it, weighed by their latency in nanoseconds."""
        self.files: dict[int, File] = {}
        self.reads = Transfers()
        self.writes = Transfers()
        self.synchronous: dict[int, Examples] = {}
        """WRITEs that were on stable storage when the reply was sent, by their bytes; weighed by latency."""
        self.clients: dict[int, set[str]] = {}
        """By the file's number: addresses of those that used it."""

    def add_table(self, table: RpcTable) -> None:
        """Take the RPCs of a batch."""
        self.take(table, self.table.add_table(table))

    def take(self, table: RpcTable, used: FileUses) -> None:
        """The same, of what they did with files."""
        self.used = used
        done = used.operations
        stored = (done["stable"] > UNSTABLE) & done["succeeded"] & (done["count"] > 0)
        rpcs = table.rows
        weights = np.maximum(rpcs["latency"], 0)
        columns = weights, rpcs["number"], rpcs["call_frame"]
        rows = done["row"][stored]
        for count, examples in examples_by(done["count"][stored], *(column[rows] for column in columns)):
            self.synchronous.setdefault(count, Examples()).join(examples)
        users = unique(done["file"] << 32 | done["row"])
        files, rows = users >> 32, users & 0xFFFFFFFF
        for index, examples in examples_by(files, *(column[rows] for column in columns)):
            file = used.files[index]
            if file.number not in self.costs:
                self.files[file.number] = file
                self.costs[file.number], self.clients[file.number] = Examples(), set()
            self.costs[file.number].join(examples)
        callers = files, rpcs["connection"][rows], rpcs["caller"][rows]
        first = distinct(*callers)[0]
        for index, connection, caller in zip(*(column[first].tolist() for column in callers), strict=True):
            client = table.conversation(connection).connection.endpoints[caller].address
            self.clients[used.files[index].number].add(client)
        for call, transfers in used.transfers:
            self.transferred(call, transfers)

    def transferred(self, call: FileCall, transfers: Iterable[FileTransfer]) -> None:
        """What an RPC did to the contents of files."""
        latency = call.latency or 0
        counted: set[str] = set()
        for transfer in transfers:
            if transfer.kind not in (READ, WRITE) or not transfer.count:
                continue
            totals = self.reads if transfer.kind == READ else self.writes
            size = transfer.count if transfer.count in totals.sizes or len(totals.sizes) < MAX_SIZES else 0
            totals.sizes[size] += 1
            if totals.last_end.get(transfer.file.number) == transfer.offset:
                totals.sequential[size] += 1
            totals.last_end[transfer.file.number] = transfer.offset + transfer.count
            if transfer.kind not in counted:
                # Several in one compound share its latency.
                counted.add(transfer.kind)
                totals.examples.add(latency, call.number, call.first_frame)

    def path(self, number: int) -> str:
        """The path of a file: its latest name with those that it had before, or its handle's hash."""
        file = self.files[number]
        paths = self.table.paths(file)
        earlier = self.table.earlier_names(file)
        if not paths:
            return f"{earlier[0][0]} ({earlier[0][3]} later)" if earlier else f"file handle {file.hash:#010x}"
        names = [*dict.fromkeys(name for name, *_ in earlier if name not in paths)]
        more = f" and {len(names) - MAX_EARLIER} more" if len(names) > MAX_EARLIER else ""
        return paths[0] + (f" (earlier {', '.join(names[:MAX_EARLIER])}{more})" if names else "")
