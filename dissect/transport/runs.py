"""Operations in columns: one-packet Sends, and RDMA Reads and Writes, which are nearly all traffic.

An Operation in a run is whole: all of its packets are in one batch, though the capture may have truncated them.  It is
made an object when it is asked for.  Its place in the order of events is its initiator's last frame, or the frame that
filled the gap it had to wait for.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import cast

import numpy as np

from ..arrays import Bytes, Int64s, MadeSequence, Rows, coded, places, some, take, unique
from ..layers import opcodes
from ..link.packets import PACKET
from ..named_tuple import NamedTuple
from .operations import READ, SEND, Delivered, Kind, Operation, Payload

TRANSFER = np.dtype(
    [
        ("place", "i8"),  # in the order of events: a frame number
        ("rank", "i8"),  # order among the events with the same place
        ("kind", "u1"),
        ("first_frame", "i8"),
        ("last_frame", "i8"),
        ("first_time", "i8"),
        ("last_time", "i8"),
        ("length", "i8"),
        ("handle", "u4"),
        ("address", "u8"),
        ("psn", "u4"),
        ("packets", "i4"),
        ("first", "i4"),  # [first, behind): the packets with its bytes, requests of a Write, responses of a Read
        ("behind", "i4"),
        ("offset", "i8"),  # of its first byte, in the bytes of the batch
        ("begins", "i4"),  # bytes of it from there on in the same packet
        ("truncated", "?"),  # a packet with its bytes is truncated in the capture
        ("position", "i8"),  # iWARP: in the stream of the initiator
    ],
    align=True,
)
_TRANSFER_FIELDS = (
    "kind", "first_frame", "last_frame", "first_time", "last_time", "length", "handle", "address", "psn", "packets",
    "first", "behind", "position", "truncated",
)  # fmt: skip
_of_transfer = itemgetter(*map((TRANSFER.names or ()).index, _TRANSFER_FIELDS))
_KINDS = tuple(Kind)
_READ = int(READ)


class _PlacedRows:
    """Rows of one sender in PSN order, with ascending places."""

    __slots__ = ("__weakref__", "data", "made", "postponed", "rows", "sender")

    def __init__(self, data: Bytes | None, rows: Rows, sender: int) -> None:
        self.data = data
        self.rows = rows
        self.sender = sender
        self.made: dict[int, Operation] = {}
        """Operations made so far, by row."""
        self.postponed = False
        """Some rows have later places than their frames, with Operations between them."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def places(self) -> Int64s:
        """Place of each row in the order of events."""
        return self.rows["place"]

    @property
    def ranks(self) -> Int64s:
        """Order of each row among the events with the same place."""
        return self.rows["rank"]

    @property
    def place(self) -> int:
        """Place of the first row in the order of events."""
        return int(self.places[0])

    @property
    def last_place(self) -> int:
        return int(self.places[-1])

    def operation(self, index: int) -> Operation:
        """The Operation of a row."""
        raise NotImplementedError

    def delivered(self) -> Delivered:
        """All Operations, with their places."""
        return [*zip(self.places.tolist(), map(self.operation, range(len(self.rows))), strict=True)]

    def place_at(self, places: Int64s, ranks: Int64s) -> None:
        """Move the rows to other places in the order of events."""
        self.rows["place"], self.rows["rank"] = places, ranks

    def cut(self, order: int) -> list[tuple[int, int, Operation]]:
        """Cut off the rows from place ``order`` on, and return their places, ranks and Operations."""
        first = int(self.places.searchsorted(order))
        left = [self.operation(index) for index in range(first, len(self.rows))]
        behind = [*zip(self.places[first:].tolist(), self.ranks[first:].tolist(), left, strict=True)]
        self.rows = self.rows[:first]
        return behind


class TransferRun(_PlacedRows):
    """RDMA Reads and Writes.

    A row's Operation, once made, is always the same object; what later packets change is noted in it, not in the row.
    """

    __slots__ = ("requests", "responses")

    def __init__(
        self, data: Bytes | None, requests: Rows | None, responses: Rows | None, rows: Rows, sender: int
    ) -> None:
        """``requests``, ``responses``: PACKET rows, with the packets of the Writes and of the Reads; ``rows``: TRANSFER
        rows."""
        super().__init__(data, rows, sender)
        self.requests, self.responses = requests, responses

    def operation(self, index: int) -> Operation:
        """The Operation of a row; for a Read without its responses, the state in which it was issued."""
        made = self.made.get(index)
        if made is None:
            values = _of_transfer(self.rows[index].item())
            kind, first, last, began, ended, length, handle, address, psn, packets, a, b, position, truncated = values
            carriers = self.responses if kind == _READ else self.requests
            payload = Payload(length, length if a < b else 0, truncated)
            if a < b and self.data is not None and carriers is not None:
                payload.stretch = self.data, carriers, a, b
            made = self.made[index] = Operation(
                _KINDS[kind], self.sender, first, last, began, ended, length, payload, handle, address, psn, packets,
                position=position,
            )  # fmt: skip
        return made

    charged = operation
    """As ``SendRun.charged``: every Operation of this run is kept once made."""

    def kept(self) -> TransferRun:
        """A run with the same rows that keeps its bytes when this one drops them."""
        same = TransferRun(self.data, self.requests, self.responses, self.rows, self.sender)
        same.made = self.made
        return same

    def drop(self) -> None:
        """Free the bytes; Operations made so far keep theirs."""
        self.data = self.requests = self.responses = None


class TransferOperations(MadeSequence[Operation]):
    """A sequence of Operations, most of which are rows of runs and made when accessed."""

    def __init__(self, runs: Sequence[TransferRun], objects: Sequence[Operation], run: Int64s, row: Int64s) -> None:
        """``run``: by Operation, the index of its run, -1 for one of ``objects``; ``row``: the index there."""
        self.runs, self.objects = runs, objects
        self.run, self.row = run, row

    def __len__(self) -> int:
        return len(self.run)

    def moments(self, indices: Int64s) -> Int64s:
        """By index: initiator, whether it is a Read, first and last frame, first and last time, and the time of its
        last retransmission; (7, n)."""
        run, row = self.run[indices], self.row[indices]
        table = np.zeros((7, len(indices)), np.int64)
        for number in unique(run).tolist():
            mine = places(run == number)
            if number < 0:
                table[:, mine] = np.array([_moments(self.objects[index]) for index in row[mine].tolist()], np.int64).T
                continue
            known = self.runs[number]
            rows = take(known.rows, row[mine])
            table[0, mine], table[1, mine] = known.sender, rows["kind"] == _READ
            for index, name in enumerate(("first_frame", "last_frame", "first_time", "last_time"), 2):
                table[index, mine] = rows[name]
            for at in mine.tolist() if known.made else ():
                if (made := known.made.get(int(row[at]))) is not None:
                    table[:, at] = _moments(made)
        return table

    def first_bytes(self, indices: Int64s, data: Bytes) -> tuple[Int64s, Int64s, Int64s]:
        """By index of an RDMA Write: the offset in ``data`` of its first byte, -1 if elsewhere; how many of its bytes
        its first packet has; and how many bytes of a Write of one packet are not captured."""
        run, row = self.run[indices], self.row[indices]
        offsets, sizes, lacks = np.full(len(run), -1), np.zeros(len(run), np.int64), np.zeros(len(run), np.int64)
        for number in unique(run).tolist():
            mine = places(run == number)
            if number >= 0 and self.runs[number].data is data:
                rows = self.runs[number].rows
                of_run = rows[row[mine]]
                offsets[mine], sizes[mine] = of_run["offset"], of_run["begins"]
                short = of_run["truncated"] & (of_run["behind"] - of_run["first"] == 1)
                lacks[mine] = np.where(short, of_run["length"] - of_run["begins"], 0)
                continue
            for at in mine.tolist():
                offsets[at], sizes[at] = first_bytes(self.made(int(indices[at])), data)
        return offsets, sizes, lacks

    def made(self, index: int) -> Operation:
        run, row = int(self.run[index]), int(self.row[index])
        return self.objects[row] if run < 0 else self.runs[run].operation(row)

    def made_so_far(self) -> Iterator[tuple[int, Operation]]:
        """The Operations made so far, with their indices."""
        for at, (run, row) in enumerate(zip(self.run.tolist(), self.row.tolist(), strict=True)):
            operation = self.objects[row] if run < 0 else self.runs[run].made.get(row)
            if operation is not None:
                yield at, operation

    def with_others(self, others: TransferOperations) -> TransferOperations:
        """These Operations, followed by ``others``."""
        single = others.run < 0
        run = np.where(single, -1, others.run + len(self.runs))
        row = np.where(single, others.row + len(self.objects), others.row)
        return TransferOperations(
            [*self.runs, *others.runs], [*self.objects, *others.objects], np.append(self.run, run),
            np.append(self.row, row),
        )  # fmt: skip

    def chosen(self, indices: Int64s) -> TransferOperations:
        """The Operations at these indices."""
        return TransferOperations(self.runs, self.objects, self.run[indices], self.row[indices])

    def kept(self, indices: Int64s) -> TransferOperations:
        """The Operations at these indices, with only their runs, whose bytes stay when the others drop theirs."""
        run, row = self.run[indices], self.row[indices]
        used, which = coded(run)
        single = run < 0
        objects = [self.objects[index] for index in row[single].tolist()]
        row[single] = np.arange(len(objects))
        runs = [self.runs[number].kept() for number in used.tolist() if number >= 0]
        return TransferOperations(runs, objects, which - some(single), row)

    @property
    def single(self) -> list[Operation]:
        """The Operations that are in no run."""
        return [self.objects[row] for row in self.row[self.run < 0].tolist()]

    def apart(self) -> TransferOperations:
        """A copy that holds no other Operations that were made of the same runs."""
        kept = [TransferRun(run.data, run.requests, run.responses, run.rows, run.sender) for run in self.runs]
        for run, row in self._made():
            kept[run].made[row] = self.runs[run].made[row]
        single = self.run < 0
        rows = self.row.copy()
        rows[single] = np.arange(np.count_nonzero(single))
        return TransferOperations(kept, self.single, self.run, rows)

    def without_bytes(self) -> TransferOperations:
        """A copy with only the rows of these Operations, without bytes."""
        row, runs = self.row.copy(), []
        for number, run in enumerate(self.runs):
            mine = places(self.run == number)
            runs.append(TransferRun(None, None, None, take(run.rows, row[mine]), run.sender))
            row[mine] = np.arange(len(mine))
        return TransferOperations(runs, self.objects, self.run, row)

    def drop(self) -> None:
        """Free the bytes; from then on no more Operations can be made of other rows of these runs."""
        for whole_run in self.runs:
            whole_run.drop()
        for run, row in self._made():
            self.runs[run].made[row].payload.drop()
        for operation in self.single:
            operation.payload.drop()

    def _made(self) -> list[tuple[int, int]]:
        """Run and row of the Operations made so far."""
        busy = [number for number, run in enumerate(self.runs) if run.made]
        return [(run, row) for run in busy for row in self.row[self.run == run].tolist() if row in self.runs[run].made]


def _moments(operation: Operation) -> tuple[int, ...]:
    frames = operation.first_frame, operation.last_frame
    return (
        operation.initiator,
        operation.kind is READ,
        *frames,
        operation.first_time,
        operation.last_time,
        operation.last_sent,
    )


def first_bytes(operation: Operation, data: Bytes) -> tuple[int, int]:
    """The offset in ``data`` of an Operation's first byte, -1 if elsewhere, and how many bytes its first packet has."""
    view, start, end = operation.payload.first()
    return (start, end - start) if cast(object, view.obj) is data else (-1, 0)


RECENT = 256
"""Operations of a send queue to search for a retransmitted packet."""
BEHIND = 128
"""PSNs before the acknowledged one for which Operations of earlier batches are kept: older ones are hardly ever
retransmitted."""

INVALIDATE, IMMEDIATE = 1, 2
SEND_ONLY, SEND_ONLY_INVALIDATE = 0x04, 0x17
"""InfiniBand opcodes, also used for iWARP Sends."""
EXTRA = np.where(opcodes.HAS_IETH, INVALIDATE, np.where(opcodes.HAS_IMMDT, IMMEDIATE, 0)).astype(np.uint8)
"""By opcode: what the word after a message's headers means in its last packet; 0 without one."""

_SEND_FIELDS = ("frame", "time", "length", "r_key", "va", "psn", "immediate", "opcode", "payload", "captured")
_of_send = itemgetter(*map((PACKET.names or ()).index, _SEND_FIELDS))
_SEND_OF = {
    "frame": "first_frame",
    "time": "first_time",
    "length": "length",
    "psn": "psn",
}
"""Attribute of Operation by column."""


class SendRun(_PlacedRows):
    """Sends of one packet each."""

    __slots__ = ("_all_kept", "_order", "positions", "unusual")

    def __init__(
        self,
        data: Bytes | None,
        rows: Rows,
        sender: int,
        positions: Int64s | None = None,
        order: tuple[Int64s, Int64s] | None = None,
    ) -> None:
        """``rows``: PACKET rows, each a Send Only with all of its headers, and its captured bytes, in ``data``.

        ``positions``: iWARP, stream positions; its FPDUs are written as equivalent packets of a queue pair.
        ``order``: places in the order of events, ascending, and ranks; None if each row's place is its own frame.
        """
        super().__init__(data, rows, sender)
        self._order = order
        self.positions = positions
        # Operations of the last rows may still be found retransmitted: they are kept, so always the same object.
        self._all_kept = False
        self.unusual: set[int] = set()
        """Rows whose Operation says more than the row."""

    @classmethod
    def of(cls, data: Bytes, operations: Sequence[Operation], sender: int, order: tuple[Int64s, Int64s]) -> SendRun:
        """A run of Sends that were delivered as Operations, and that rows can describe."""
        rows = np.zeros(len(operations), PACKET)
        for name, field in _SEND_OF.items():
            rows[name] = [getattr(operation, field) for operation in operations]
        spans = [operation.payload.first()[1:] for operation in operations]
        rows["payload"], rows["captured"] = [start for start, _ in spans], [end - start for start, end in spans]
        rows["headers"] = 1
        invalidates = [operation.invalidate for operation in operations]
        rows["opcode"] = [SEND_ONLY if invalidate is None else SEND_ONLY_INVALIDATE for invalidate in invalidates]
        rows["immediate"] = [invalidate or 0 for invalidate in invalidates]
        run = cls(data, rows, sender, np.array([operation.position for operation in operations]), order)
        run._all_kept, run.made = True, dict(enumerate(operations))
        return run

    @property
    def places(self) -> Int64s:
        return self.rows["frame"] if self._order is None else self._order[0][: len(self.rows)]

    @property
    def ranks(self) -> Int64s:
        return np.zeros(len(self.rows), np.int64) if self._order is None else self._order[1][: len(self.rows)]

    def operation(self, index: int) -> Operation:
        """The Operation of a row."""
        operation = self.made.get(index)
        if operation is None:
            values = _of_send(self.rows[index].item())
            frame, time, length, handle, address, psn, word, opcode, offset, captured = values
            payload = Payload(length, length, captured < length)
            if self.data is not None:
                payload.stretch = self.data, self.rows, index, index + 1
                payload.only = self.data, offset, offset + captured
            operation = Operation(SEND, self.sender, frame, frame, time, time, length, payload, handle, address, psn, 1)
            which = _EXTRA[opcode]
            if which == INVALIDATE:
                operation.invalidate = word
            elif which == IMMEDIATE:
                operation.immediate = word
            if self.positions is not None:
                operation.position = int(self.positions[index])
            if self._all_kept or index >= len(self.rows) - RECENT:
                self.made[index] = operation
        return operation

    def place_at(self, places: Int64s, ranks: Int64s) -> None:
        self._order = places, ranks

    def note_unusual(self) -> None:
        """Collect the rows whose Operations were seen again in later batches."""
        self.unusual = {
            row
            for row, operation in self.made.items()
            if operation.retransmissions or operation.contradicted or operation.reused
        }

    def charged(self, index: int) -> Operation:
        """The Operation of a row, to note a repetition in it; it is kept from now on."""
        if index < len(self.rows):
            self.unusual.add(index)
        self.made[index] = operation = self.operation(index)
        return operation

    def cut(self, order: int) -> list[tuple[int, int, Operation]]:
        behind = super().cut(order)
        self.unusual = {row for row in self.unusual if row < len(self.rows)}
        return behind

    def without_bytes(self, indices: Int64s) -> SendRun:
        """A run of some of the rows, without bytes."""
        positions = None if self.positions is None else self.positions[indices]
        return SendRun(None, self.rows.take(indices), self.sender, positions)

    def drop(self) -> None:
        """Free the bytes."""
        self.data = None
        for row, operation in self.made.items():
            if row < len(self.rows):  # Operations of rows that were cut off may still wait.
                operation.payload.drop()


_EXTRA: list[int] = EXTRA.tolist()


Run = SendRun | TransferRun


RANK_BITS = 21
"""Bits of a rank for the row's number within its connection and batch; the higher bits count Operations before it."""


def postponed(delivered: Delivered, runs: Sequence[Run], released: Sequence[tuple[int, int]]) -> Delivered:
    """Move Operations and rows of one connection to the places at which they can happen, as some had to wait.

    ``delivered``: in the order of events.  ``released``: pairs of frames: everything from the first one on waited until
    the second, and happens at its place, in the same order.  The result does not depend on where batches end.
    """
    frames, ends = np.array(sorted(released), np.int64).T
    ends = np.append(0, np.maximum.accumulate(ends))

    def later(places: Int64s) -> Int64s:
        latest: Int64s = np.maximum(places, ends[frames.searchsorted(places, side="right")])
        return latest

    orders = np.array([order for order, _ in delivered], np.int64)
    singly = later(orders)
    if runs:
        places, ranks = np.concatenate([(run.places, run.ranks) for run in runs], axis=1)
        moved = later(places)
        turns = np.empty(len(places), np.int64)
        turns[np.lexsort((ranks, places))] = np.arange(-len(places), 0)
        turns += orders.searchsorted(places) - singly.searchsorted(moved) << RANK_BITS
        edges = np.cumsum([0, *map(len, runs)]).tolist()
        for run, (first, behind) in zip(runs, pairwise(edges), strict=True):
            run.place_at(moved[first:behind], turns[first:behind])
            run.postponed = True
    return [*zip(singly.tolist(), map(itemgetter(1), delivered), strict=True)]


class Tail:
    """The last rows of a run, kept without its other rows, except that the bytes of transfers stay for comparison."""

    __slots__ = ("_run", "first", "made")

    def __init__(self, run: Run, compared: bool = True, first: int | None = None) -> None:
        """``first``: the first of the rows, by default the ``RECENT``-th last."""
        self.first = max(0, len(run) - RECENT) if first is None else first
        self.made = run.made
        held = compared and isinstance(run, TransferRun)
        self._run: Run | weakref.ref[Run] = run if held else weakref.ref(run)

    @property
    def run(self) -> Run | None:
        """The run, or None if it was freed."""
        return self._run() if isinstance(self._run, weakref.ref) else self._run

    def columns(self, number: int) -> Int64s:
        """Of the rows that are left: place in the order of events, ``number``, row, PSN; (4, n)."""
        run = self.run
        known = 0 if run is None else len(run)
        made = sorted(self.made.items()) if self.made else ()
        left = [
            (operation.last_frame, number, at, operation.psn) for at, operation in made if at >= max(self.first, known)
        ]
        columns = np.zeros((4, max(0, known - self.first) + len(left)), np.int64)
        columns[1] = number
        if left:
            columns[:, len(columns[0]) - len(left) :] = np.array(left).T
        if run is not None and known > self.first:
            of_run = columns[:, : known - self.first]
            of_run[0], of_run[2] = run.places[self.first :], np.arange(self.first, known)
            of_run[3] = run.rows["psn"][self.first :]
        return columns

    def recent(self, index: int) -> RecentOperation:
        """The Operation at an index."""
        run = self.run
        if run is None or index >= len(run):
            return RecentOperation.of(self.made[index])
        if isinstance(run, SendRun):
            return RecentOperation(1, 0, run, index)
        row = run.rows[index]
        return RecentOperation(int(row["packets"]), int(row["length"]) if row["kind"] == _READ else 0, run, index)

    def charged(self, index: int) -> Operation | None:
        """The Operation of a row, to note a repetition in it; None if it was freed, when a note would be lost."""
        run = self.run
        return self.made.get(index) if run is None else run.charged(index)


class RecentOperation(NamedTuple):
    """An Operation of a send queue that may match a retransmitted packet."""

    packets: int
    read: int
    """Bytes that an RDMA Read asks for; 0 for others."""
    held: Operation | Run
    row: int = 0
    """Row, if ``held`` is a run."""

    @classmethod
    def of(cls, operation: Operation) -> RecentOperation:
        reads = operation.kind is READ
        packets, read = (1, operation.length) if reads else (operation.packets, 0)
        return cls(packets, read, operation)

    def span(self, mtu: int) -> int:
        """Number of PSNs it takes: a Read takes one for each response packet, even before any was seen."""
        return max(1, -(-self.read // mtu)) if self.read else self.packets

    def charged(self) -> Operation:
        """The Operation, to note a repetition in it."""
        return self.held if isinstance(self.held, Operation) else self.held.charged(self.row)


Held = Operation | weakref.ref[Operation] | Tail
"""A Send is held only by its RPC: the send queue remembers its packets separately."""


class RecentOperations:
    """The last ``RECENT`` Operations of a send queue, in PSN order."""

    __slots__ = "_parts"

    def __init__(self) -> None:
        self._parts: Sequence[tuple[Sequence[Held], int, int]] = ()
        """By batch: Operations and tails of runs, the number of Operations in all, and the unwrapped PSN that follows
        them."""

    def add(self, delivered: Delivered, runs: Sequence[Run], head: int = 0, acked: int = -1) -> None:
        """Add what was delivered after all others, up to the PSN ``head``; ``acked``: PSN after the acknowledged
        ones."""
        held: list[Held] = [
            weakref.ref(operation) if operation.kind is SEND else operation for _, operation in delivered[-RECENT:]
        ]
        known = {SendRun: 0, TransferRun: 0}
        for run in reversed(runs):
            if known[type(run)] < RECENT:
                known[type(run)] += len(run)
                held.append(Tail(run))
        count = min(len(delivered), RECENT) + sum(known.values())
        if not count:
            return
        parts = [*self._parts, (held, count, head)]
        every = sum([count for _, count, _ in parts])
        while every - parts[0][1] >= RECENT or (len(parts) > 1 and parts[0][2] < acked - BEHIND):
            every -= parts.pop(0)[1]
        self._parts = tuple(parts)

    def clear(self) -> None:
        self._parts = ()

    def with_fresh(self, delivered: Delivered, runs: Sequence[Run]) -> RecentTable:
        """The Operations that are left, followed by those of the current batch."""
        fresh: list[Held] = [*map(itemgetter(1), delivered), *[Tail(run, first=0) for run in runs]]
        holders: list[Operation | Tail] = []
        parts = [held for held, *_ in self._parts]
        earlier = np.concatenate([np.empty((3, 0), np.int64), *[_columns(held, holders) for held in parts]], axis=1)
        return RecentTable(holders, np.concatenate((earlier[:, -RECENT:], _columns(fresh, holders)), axis=1))


def _columns(held: Sequence[Held], holders: list[Operation | Tail]) -> Int64s:
    """Append ``held`` to ``holders``; returns their indices there, rows and PSNs, (3, n)."""
    single, parts = list[tuple[int, ...]](), list[Int64s]()
    for holder in held:
        if isinstance(holder, Tail):
            parts.append(holder.columns(len(holders)))
            holders.append(holder)
        elif (operation := holder() if isinstance(holder, weakref.ref) else holder) is not None:
            single.append((operation.last_frame, len(holders), 0, operation.psn))
            holders.append(operation)
    table = np.concatenate([np.array(single, np.int64).reshape(-1, 4).T, *parts], axis=1)
    return table[1:, table[0].argsort(kind="stable")]


class RecentTable:
    """Operations that may match a retransmitted packet, in PSN order."""

    def __init__(self, holders: list[Operation | Tail], columns: Int64s) -> None:
        self._holders, self._columns = holders, columns

    @property
    def psns(self) -> Int64s:
        """PSNs of their first packets, 24 bits."""
        psns: Int64s = self._columns[2]
        return psns

    def __getitem__(self, index: int) -> RecentOperation:
        number, row, _ = self._columns[:, index].tolist()
        holder = self._holders[number]
        return holder.recent(row) if isinstance(holder, Tail) else RecentOperation.of(holder)
