"""Facts about files for detectors, gathered from tables of RPCs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np

from ..arrays import distinct, unique
from ..measure.files import READ, WRITE, File, FileTable, FileUses, Moved
from ..onc.file_operations import UNSTABLE
from ..rpcrdma.rpc_table import RpcTable
from .rpc_facts import Examples, examples_by

MAX_EARLIER = 2
"""Earlier names of a file that are listed."""
MAX_SIZES = 4096
"""Sizes that are counted individually."""


@dataclass(slots=True, eq=False)
class Transfers:
    """READs or WRITEs of all files."""

    sizes: Counter[int] = field(default_factory=Counter)
    """By number of bytes transferred: how often."""
    sequential: Counter[int] = field(default_factory=Counter)
    """The same for transfers that begin where the previous one in the file ended."""
    last_end: dict[int, int] = field(default_factory=dict)
    """By file number: the offset after the last transfer."""
    examples: Examples = field(default_factory=Examples)
    """Weighted by latency in nanoseconds."""

    def add(self, moved: Iterable[Moved]) -> None:
        """Count transfers; their RPCs are added to ``examples`` elsewhere."""
        for _, _, file, offset, count, *_ in moved:
            size = count if count in self.sizes or len(self.sizes) < MAX_SIZES else 0
            self.sizes[size] += 1
            if self.last_end.get(file.number) == offset:
                self.sequential[size] += 1
            self.last_end[file.number] = offset + count


class FileFacts:
    """Takes tables of RPCs as they end."""

    def __init__(self) -> None:
        self.table = FileTable()
        self.used: FileUses | None = None
        """What the RPCs of the last batch did with which files."""
        self.costs: dict[int, Examples] = {}
        """By file number: RPCs on the file, weighted by latency in nanoseconds."""
        self.files: dict[int, File] = {}
        self.reads = Transfers()
        self.writes = Transfers()
        self.synchronous: dict[int, Examples] = {}
        """By number of bytes: WRITEs on stable storage when the reply was sent, weighted by latency."""
        self.clients: dict[int, set[str]] = {}
        """By file number: addresses of the clients that used it."""

    def add_table(self, table: RpcTable) -> None:
        """Take the RPCs of a batch."""
        self.take(table, self.table.add_table(table))

    def take(self, table: RpcTable, used: FileUses) -> None:
        """Take a batch of RPCs, with what they did with files."""
        self.used = used._replace(source=None)
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
        for kind, transfers in ((READ, self.reads), (WRITE, self.writes)):
            moved = [one for one in used.moved if one[1] == kind and one[4]]
            transfers.add(moved)
            # Several transfers in one COMPOUND share its latency.
            rows = np.array([row for row, _ in groupby(moved, itemgetter(0))], np.int64)
            for _, examples in examples_by(np.zeros_like(rows), *(column[rows] for column in columns)):
                transfers.examples.join(examples)

    def path(self, number: int) -> str:
        """The path of a file: its latest name with earlier ones, or its handle's hash."""
        file = self.files[number]
        paths = self.table.paths(file)
        earlier = self.table.earlier_names(file)
        if not paths:
            return f"{earlier[0][0]} ({earlier[0][3]} later)" if earlier else f"file handle {file.hash:#010x}"
        names = [*dict.fromkeys(name for name, *_ in earlier if name not in paths)]
        more = f" and {len(names) - MAX_EARLIER} more" if len(names) > MAX_EARLIER else ""
        return paths[0] + (f" (earlier {', '.join(names[:MAX_EARLIER])}{more})" if names else "")
