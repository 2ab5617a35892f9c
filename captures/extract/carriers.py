"""Which packets carried the chosen RPCs: ranges of sequence numbers of each connection and sender.

Packet sequence numbers of a queue pair, TCP sequence numbers with iWARP; each with the frames between which it means
these packets, for sequence numbers and queue pairs are used again.  Retransmissions have the numbers of what they
repeat, so that they are found, too.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rdmascope.dissect.arrays import Int64s, Rows
from rdmascope.dissect.layers import iwarp_codes
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.serial import PSN, TCP_SEQUENCE, SerialNumbers
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.iwarp.decoding import Fpdus
from rdmascope.dissect.transport.iwarp.tcp_connection import TcpConnection
from rdmascope.dissect.transport.operations import READ, SEND, WRITE, Operation
from rdmascope.dissect.transport.rc.reads import DEFAULT_MTU

PSN_LINGER = 1 << 20
"""Frames around an Operation within which its PSNs mean no other: there are sixteen times as many."""
TCP_LINGER = 1 << 13
"""Frames around an FPDU within which its sequence numbers mean no other, even if each carries a quarter megabyte."""

SETUP = -2
"""Tag of a range that belongs to the connection, not to an Operation."""

Flow = tuple[int, int]
"""Number of a connection, and the end that sends."""


class NumberRanges:
    """Ranges [low, high) of sequence numbers, each between two frames; 40 bytes each."""

    def __init__(self, numbers: SerialNumbers) -> None:
        self.numbers = numbers
        self._columns = tuple(array("q") for _ in range(5))
        self._table: Int64s | None = None
        """The same columns, by last frame."""
        self._longest = self._linger = 0
        """Frames that a range lasts at most; and that may repeat it, before or behind: what a receiver dropped came
        before what it took."""

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, low: int, high: int, first_frame: int, last_frame: int, linger: int, tag: int) -> None:
        """``first_frame`` to ``last_frame``: what the receiver took; ``linger``: frames around those that may carry it,
        too, the same for all."""
        for column, value in zip(self._columns, (low, high, first_frame, last_frame, tag), strict=True):
            column.append(value)
        self._longest = max(self._longest, last_frame - first_frame)
        self._linger = linger
        self._table = None

    def tags(self, starts: Int64s, lengths: Int64s | int, frames: Int64s) -> Int64s:
        """The tag of a range that overlaps each [start, start + length) seen in its frame; -1 where there is none."""
        found = np.full(len(starts), -1, np.int64)
        if not len(self) or not len(starts):
            return found
        active = self._between(int(frames.min()) - self._linger, int(frames.max()) + self._linger + self._longest)
        while active.shape[1]:
            low = self.numbers.unwrap_near(int(active[0, 0]), active[0])
            at = self.numbers.unwrap_near(int(active[0, 0]), starts)
            order = np.argsort(low, kind="stable")
            active, low = active[:, order], low[order]
            high = low + active[1] - active[0]
            # Those that begin before one in front of them ends wait for the next round.
            overlapping = np.concatenate(([False], low[1:] < np.maximum.accumulate(high)[:-1]))
            low, high, chosen = low[~overlapping], high[~overlapping], active[:, ~overlapping]
            index = np.searchsorted(low, at + lengths, "left") - 1
            known = np.maximum(index, 0)
            hit = (index >= 0) & (high[known] > at) & (frames >= chosen[2, known] - self._linger)
            hit &= frames <= chosen[3, known] + self._linger
            found[hit] = chosen[4, known][hit]
            active = active[:, overlapping]
        return found

    def ending(self, first_frame: int, last_frame: int) -> tuple[Int64s, Int64s]:
        """Ranges whose last frame is among these: the number behind each, and that frame; by frame."""
        found = self._between(first_frame, last_frame)
        return found[1], found[3]

    def _between(self, first_frame: int, last_frame: int) -> Int64s:
        """The columns of those whose last frame is among these."""
        if self._table is None:
            table = np.array([np.array(column, np.int64) for column in self._columns])
            self._table = table[:, np.argsort(table[3], kind="stable")]
        left = np.searchsorted(self._table[3], first_frame, "left")
        return self._table[:, left : np.searchsorted(self._table[3], last_frame, "right")]


@dataclass(slots=True)
class Carriers:
    """What carried RPCs; fed with them as they end."""

    connections: dict[int, Connection] = field(default_factory=dict)
    rpcs: int = 0
    operations: int = 0
    """Their tags are below this number, in the order in which they were added."""
    packets: dict[Flow, NumberRanges] = field(default_factory=dict)
    """InfiniBand: PSNs by the end that sends requests."""
    sends: dict[Flow, NumberRanges] = field(default_factory=dict)
    """iWARP: message sequence numbers of Sends, their lower 24 bits, by sender."""
    read_requests: dict[Flow, NumberRanges] = field(default_factory=dict)
    """iWARP: the same of RDMA Read Requests."""
    writes: dict[tuple[int, int, int], NumberRanges] = field(default_factory=dict)
    """iWARP: the lower 32 bits of tagged offsets, by connection, sender and STag."""

    def add(self, rpc: Rpc) -> list[tuple[Operation, int]]:
        """Take an RPC; gives its Operations and their tags."""
        self.rpcs += 1
        self.connections.setdefault(rpc.connection.number, rpc.connection)
        operations = dict.fromkeys(rpc.data_operations)
        operations.update(dict.fromkeys(one for chunk in rpc.chunks for use in chunk.segments for one in use.late))
        found: list[tuple[Operation, int]] = []
        for operation in operations:
            found.append((operation, self.operations))
            self._add(rpc.connection, operation, self.operations)
            self.operations += 1
        return found

    def _add(self, connection: Connection, operation: Operation, tag: int) -> None:
        flow = connection.number, operation.initiator
        first, last = operation.first_frame, operation.last_frame
        if connection.transport != "iWARP":
            ranges = self.packets.setdefault(flow, NumberRanges(PSN))
            mtu = connection.path_mtu or DEFAULT_MTU
            packets = max(1, -(-operation.length // mtu), 0 if operation.kind is READ else operation.packets)
            ranges.add(operation.psn, operation.psn + packets, first, last, PSN_LINGER, tag)
        elif operation.kind is WRITE:
            key = (*flow, operation.handle)
            low = TCP_SEQUENCE.wrap(operation.address)
            self.writes.setdefault(key, NumberRanges(TCP_SEQUENCE)).add(
                low, low + operation.length, first, last, 0, tag
            )
        else:
            messages = self.sends if operation.kind is SEND else self.read_requests
            messages.setdefault(flow, NumberRanges(PSN)).add(operation.psn, operation.psn + 1, first, last, 0, tag)

    @property
    def iwarp(self) -> bool:
        """Some were carried by iWARP."""
        return any(one.transport == "iWARP" for one in self.connections.values())


class ChosenFpdu(NamedTuple):
    """An FPDU that carries some of an Operation."""

    start: int
    """Positions in the stream: of its first byte, perhaps a marker, and behind it."""
    stop: int
    opcode: int
    place: int
    """The TO or MO."""
    tag: int
    sink: int | None
    """Of a Read Response: the tagged offset at which the response begins."""
    grid: int | None
    """Position that the markers of its direction are counted from; None without markers."""


@dataclass(slots=True)
class TcpRanges:
    """TCP sequence numbers of the chosen FPDUs, and of the beginning of their connections.

    ``listen`` is to be shown the FPDUs of a whole pass (``Analyzer.watch_fpdus``).
    """

    carriers: Carriers
    ranges: dict[Flow, NumberRanges] = field(default_factory=dict)
    lifetimes: dict[int, tuple[int, int]] = field(default_factory=dict)
    """First and last frame of each connection."""
    keep: Callable[[Flow, ChosenFpdu], None] | None = None
    """Is given each chosen FPDU."""
    _links: dict[int, TcpConnection] = field(default_factory=dict)
    _sinks: dict[int, int] = field(default_factory=dict)
    """Tagged offset of the memory that the response to a Read goes to, by its tag."""
    _responses: dict[tuple[int, int, int], NumberRanges] = field(default_factory=dict)
    """Lower 32 bits of tagged offsets of Read Responses, by connection, sender and STag."""

    _unsettled: list[tuple[TcpConnection, int, Fpdus]] = field(default_factory=list)

    def listen(self, tcp: TcpConnection, direction: int, fpdus: Fpdus) -> None:
        self._unsettled.append((tcp, direction, fpdus))

    def settle(self) -> None:
        """A batch is analysed: connections that began in it have their numbers."""
        for one in self._unsettled:
            self._take(*one)
        self._unsettled.clear()

    def _take(self, tcp: TcpConnection, direction: int, fpdus: Fpdus) -> None:
        connection = tcp.connection
        if connection is None or connection.number not in self.carriers.connections:
            return
        self._links[connection.number] = tcp
        flow = connection.number, tcp.directions[direction].sender
        rows = fpdus.rows
        tags = np.full(len(rows), -1, np.int64)
        frames = rows["last_frame"].astype(np.int64)
        sends = np.isin(rows["opcode"], list(iwarp_codes.SENDS))
        requests = rows["opcode"] == iwarp_codes.READ_REQUEST
        msn = rows["msn"].astype(np.int64) & PSN.modulus - 1
        for which, ranges in ((sends, self.carriers.sends), (requests, self.carriers.read_requests)):
            if flow in ranges and which.any():
                tags[which] = ranges[flow].tags(msn[which], 1, frames[which])
        for index in np.flatnonzero(requests & (tags >= 0)).tolist():
            asked = fpdus.requests.get(index)
            if asked is not None:
                key = connection.number, 1 - flow[1], asked.sink_stag
                low = TCP_SEQUENCE.wrap(asked.sink_to)
                if self.keep is not None:
                    self._sinks[int(tags[index])] = asked.sink_to
                self._responses.setdefault(key, NumberRanges(TCP_SEQUENCE)).add(
                    low, low + asked.length, int(frames[index]), int(frames[index]), TCP_LINGER << 3, int(tags[index])
                )
        place = (rows["place"] & np.uint64(TCP_SEQUENCE.modulus - 1)).astype(np.int64)
        for opcode, tagged in (
            (iwarp_codes.WRITE, self.carriers.writes),
            (iwarp_codes.READ_RESPONSE, self._responses),
        ):
            which = rows["opcode"] == opcode
            for stag in np.unique(rows["stag"][which]).tolist():
                if (found := tagged.get((*flow, stag))) is not None:
                    these = which & (rows["stag"] == stag)
                    lengths = np.maximum(rows["length"][these].astype(np.int64), 1)
                    tags[these] = found.tags(place[these], lengths, frames[these])
        grid = tcp.directions[direction].framing.pending.grid
        self._add(flow, rows, tags, None if grid is None else grid.base)

    def _add(self, flow: Flow, rows: Rows, tags: Int64s, grid: int | None) -> None:
        chosen = rows[tags >= 0]
        ranges = self.ranges.setdefault(flow, NumberRanges(TCP_SEQUENCE))
        columns = (chosen[name].tolist() for name in ("start", "stop", "first_frame", "last_frame"))
        for start, stop, first, last, tag in zip(*columns, tags[tags >= 0].tolist(), strict=True):
            low = TCP_SEQUENCE.wrap(start)
            ranges.add(low, low + stop - start, first, last, TCP_LINGER, tag)
        if self.keep is not None:
            columns = (chosen[name].tolist() for name in ("start", "stop", "opcode", "place"))
            for start, stop, opcode, place, tag in zip(*columns, tags[tags >= 0].tolist(), strict=True):
                sink = self._sinks.get(tag, 0) if opcode == iwarp_codes.READ_RESPONSE else None
                self.keep(flow, ChosenFpdu(start, stop, opcode, place, tag, sink, grid))

    def finish(self) -> None:
        """The pass is over: what begins each connection is added."""
        self.settle()
        for number, tcp in self._links.items():
            self.lifetimes[number] = tcp.lifetime.since, tcp.lifetime.last[0]
            for direction in tcp.directions:
                ranges = self.ranges.setdefault((number, direction.sender), NumberRanges(TCP_SEQUENCE))
                startup, ready = direction.framing.startup, direction.framing.ready
                parts = [(startup.start, startup.stop)] if startup is not None else []
                for start, stop in [*parts, *([ready] if ready is not None else [])]:
                    low = TCP_SEQUENCE.wrap(start)
                    since = tcp.lifetime.since
                    ranges.add(low, low + stop - start, since, since, TCP_LINGER, SETUP)
        self._links.clear()
