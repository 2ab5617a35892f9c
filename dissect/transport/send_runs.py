"""Sends of one packet each, in columns: the Operation of a row is made when it is wanted.

Metadata traffic is nearly all of this kind.  What is in a run is as plain as a Send can be: one packet, whole in the
capture, in its place in the order of events, which is its frame number.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from operator import attrgetter

import numpy as np

from ..arrays import Bytes, Int64s, Rows
from ..layers import opcodes
from .operations import READ, SEND, WRITE, Delivered, Operation, Payload
from .transfer_runs import TransferRun

RECENT = 256
"""Operations of a send queue among which a retransmitted packet is looked for."""
BEHIND = 128
"""PSNs before what was acknowledged, of which earlier batches are remembered: that is hardly ever retransmitted."""

_READ = int(READ)
INVALIDATE, IMMEDIATE = 1, 2
EXTRA = np.where(opcodes.HAS_IETH, INVALIDATE, np.where(opcodes.HAS_IMMDT, IMMEDIATE, 0)).astype(np.uint8)
"""By opcode: what the word behind the other headers of a message's last packet is."""

_FIELDS = ("frame", "time", "length", "r_key", "va", "psn", "immediate", "opcode", "payload")


class SendRun:
    """Rows of one sender in PSN order, which is the order of frames."""

    __slots__ = ("__weakref__", "_made", "data", "positions", "rows", "sender", "unusual")

    def __init__(self, data: Bytes | None, rows: Rows, sender: int, positions: Int64s | None = None) -> None:
        """``rows``: PACKET rows, each a Send Only with all of its bytes and headers in ``data``.

        ``positions``: of iWARP, in the stream; with FPDUs written as packets of a queue pair that say the same.
        """
        self.data = data
        self.rows = rows
        self.sender = sender
        self.positions = positions
        self._made: dict[int, Operation] = {}
        """Of the last rows, which may still be found retransmitted: their Operation is always the same object."""
        self.unusual: set[int] = set()
        """Rows whose Operation knows more than the row."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def place(self) -> int:
        """In the order of events, of the first."""
        return int(self.rows["frame"][0])

    def operation(self, index: int) -> Operation:
        """The Operation of a row."""
        made = self._made.get(index)
        return made if made is not None else self.operations((index,))[0]

    def operations(self, indices: Iterable[int]) -> list[Operation]:
        """The Operations of some rows."""
        chosen = np.fromiter(indices, np.int64) if not isinstance(indices, np.ndarray) else indices
        part = self.rows.take(chosen)
        data, rows, sender = self.data, self.rows, self.sender
        keep = len(rows) - RECENT
        known = self._made
        made: list[Operation] = []
        for index, frame, time, length, handle, address, psn, word, opcode, offset in zip(
            chosen.tolist(), *(part[name].tolist() for name in _FIELDS), strict=True
        ):
            operation = known.get(index) if index >= keep else None
            if operation is None:
                payload = Payload(length, length)
                if data is not None:
                    payload.stretch = data, rows, index, index + 1
                    payload.only = data, offset, offset + length
                operation = Operation(SEND, sender, frame, frame, time, time, length, payload, handle, address, psn, 1)
                which = _EXTRA[opcode]
                if which == INVALIDATE:
                    operation.invalidate = word
                elif which == IMMEDIATE:
                    operation.immediate = word
                if self.positions is not None:
                    operation.position = int(self.positions[index])
                if index >= keep:
                    known[index] = operation
            made.append(operation)
        return made

    def charged(self, index: int) -> Operation:
        """The same, to note in it what was seen again."""
        if index < len(self.rows):
            self.unusual.add(index)
        return self.operation(index)

    def delivered(self, indices: Int64s | None = None) -> Delivered:
        """All Operations, or those of some rows, with their places in the order of events."""
        chosen = np.arange(len(self.rows)) if indices is None else indices
        return list(zip(self.rows["frame"][chosen].tolist(), self.operations(chosen), strict=True))

    @property
    def last_place(self) -> int:
        return int(self.rows["frame"][-1])

    def cut(self, place: int) -> Delivered:
        """From this place on it has no rows any more: gives their Operations."""
        first = int(self.rows["frame"].searchsorted(place))
        left = self.delivered(np.arange(first, len(self.rows)))
        self.rows = self.rows[:first]
        return left

    def apart(self, indices: Int64s) -> SendRun:
        """Some rows alone, without the bytes."""
        positions = None if self.positions is None else self.positions[indices]
        return SendRun(None, self.rows.take(indices), self.sender, positions)

    def drop(self) -> None:
        """Let go of the bytes."""
        self.data = None
        for operation in self._made.values():
            operation.payload.drop()


_EXTRA: list[int] = EXTRA.tolist()


Run = SendRun | TransferRun


class Tail:
    """The last rows of a run, without the rest of it; but what transfers carried may be compared with repetitions."""

    __slots__ = ("first", "made", "orders", "packets", "psns", "reads", "run")

    def __init__(self, run: Run, compared: bool = True) -> None:
        self.first = max(0, len(run) - RECENT)
        rows = run.rows[self.first :]
        self.psns: Int64s = rows["psn"].astype(np.int64)
        self.run: TransferRun | weakref.ref[Run]
        if isinstance(run, TransferRun):
            self.run, self.made = run if compared else weakref.ref(run), run.made
            self.orders: Int64s = rows["place"]
            self.packets: Int64s | None = rows["packets"]
            self.reads: Int64s | None = np.where(rows["kind"] == _READ, rows["length"], 0)
        else:
            self.run, self.made = weakref.ref(run), run._made
            self.orders, self.packets, self.reads = rows["frame"].copy(), None, None

    def __len__(self) -> int:
        return len(self.psns)

    def operations(self) -> list[RecentOperation]:
        packets = [1] * len(self) if self.packets is None else self.packets.tolist()
        reads = [0] * len(self) if self.reads is None else self.reads.tolist()
        return [
            RecentOperation(order, psn, count, read, self, index)
            for index, (order, psn, count, read) in enumerate(
                zip(self.orders.tolist(), self.psns.tolist(), packets, reads, strict=True)
            )
        ]

    def charged(self, index: int) -> Operation | None:
        """None where nothing holds it, so that nothing would see what is noted in it."""
        run = self.run if isinstance(self.run, TransferRun) else self.run()
        return self.made.get(self.first + index) if run is None else run.charged(self.first + index)


class RecentOperation:
    """One of those among which a retransmitted packet is looked for."""

    __slots__ = ("_index", "_of", "_packets", "_read", "order", "psn")

    def __init__(
        self,
        order: int,
        psn: int,
        packets: int,
        read: int,
        of: Operation | weakref.ref[Operation] | Tail,
        index: int = 0,
    ) -> None:
        """``read``: the bytes that it asks for, if it is an RDMA Read; else 0."""
        self.order = order
        self.psn = psn
        self._packets = packets
        self._read = read
        self._of = of
        self._index = index

    @classmethod
    def of(cls, order: int, operation: Operation) -> RecentOperation:
        """Of a Send, which only its RPC holds: the send queue remembers what its packets were by itself."""
        held = weakref.ref(operation) if operation.kind is SEND else operation
        reads = operation.kind is READ
        packets, read = (1, operation.length) if reads else (operation.packets, 0)
        return cls(order, operation.psn, packets, read, held)

    def span(self, mtu: int) -> int:
        """PSNs that it takes: a Read one for each packet of its response, of which it may not have any yet."""
        return max(1, -(-self._read // mtu)) if self._read else self._packets

    def charged(self) -> Operation | None:
        """It, to note in it what was seen again; None where nothing holds it any more."""
        if isinstance(self._of, Tail):
            return self._of.charged(self._index)
        return self._of() if isinstance(self._of, weakref.ref) else self._of


class RecentOperations:
    """The last ``RECENT`` Operations of a send queue, in PSN order."""

    __slots__ = "_parts"

    def __init__(self) -> None:
        self._parts: Sequence[tuple[Sequence[RecentOperation | tuple[int, Operation]], Sequence[Tail], int, int]] = ()
        """What one batch delivered after the other: Operations, ends of runs, how many these are together, and the
        unwrapped PSN behind them.

        An RDMA Write stays as it was delivered: what is asked of it does not change.
        """

    def add(self, delivered: Delivered, runs: Sequence[Run], head: int = 0, acked: int = -1) -> None:
        """They were delivered after all others, before the PSN ``head``; ``acked``: behind what was acknowledged."""
        if not delivered and not runs:
            return
        fresh = tuple([one if one[1].kind is WRITE else RecentOperation.of(*one) for one in delivered[-RECENT:]])
        count = len(fresh)
        tails: list[Tail] = []
        for kind in (SendRun, TransferRun):
            known = 0
            for run in reversed(runs):
                if isinstance(run, kind) and known < RECENT:
                    tails.append(Tail(run))
                    known += len(tails[-1])
            count += known
        if not count:
            return
        parts = [*self._parts, (fresh, tails or (), count, head)]
        known = sum([part[2] for part in parts])
        while known - parts[0][2] >= RECENT or (len(parts) > 1 and parts[0][3] < acked - BEHIND):
            known -= parts.pop(0)[2]
        self._parts = tuple(parts)

    def clear(self) -> None:
        self._parts = ()

    def with_fresh(self, delivered: Delivered, runs: Sequence[Run]) -> list[RecentOperation]:
        """With those of a batch that is not over, which came after them."""
        newest = RecentOperations()
        newest.add(delivered, runs)
        return self._all() + newest._all()

    def _all(self) -> list[RecentOperation]:
        found: list[RecentOperation] = []
        for fresh, tails, *_ in self._parts:
            part = [one for tail in tails for one in tail.operations()]
            part += [one if isinstance(one, RecentOperation) else RecentOperation.of(*one) for one in fresh]
            if tails:
                part.sort(key=attrgetter("order"))
            found += part
        return found[-RECENT:]
