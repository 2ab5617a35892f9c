"""The frames of chosen RPCs: their Sends, Reads and Writes, what was retransmitted of them, and the acknowledgements.

Two passes: RPCs are judged when they end, and by then their packets are long past.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.arrays import Int64s, Rows, take
from rdmascope.dissect.layers import opcodes
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import decode
from rdmascope.dissect.link.tcp import ACK, FIN, RST, SYN, locate_tcp
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.serial import PSN, TCP_SEQUENCE, SerialNumbers
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.iwarp.fpdus import Fpdus
from rdmascope.dissect.transport.iwarp.tcp_connection import TcpConnection
from rdmascope.dissect.transport.operations import Operation

from ..tables.condition import ChosenRpcs, Condition
from .session import Session

Mask = NDArray[np.bool_]

MAX_ANSWER = 1_000_000_000
"""Nanoseconds after the last transmission of a packet in which it is acknowledged, or not at all."""


@dataclass(frozen=True, slots=True)
class ChosenFrames:
    """Frames, by number."""

    numbers: Int64s
    """Ascending, each once."""
    rpcs: int
    """How many RPCs they are of."""

    def among(self, frames: Int64s) -> Mask:
        """Which of some frames are chosen."""
        return _among(self.numbers, frames)

    def __contains__(self, frame: int) -> bool:
        return bool(self.among(np.array([frame]))[0])


def chosen_frames(opened: Callable[[], Session], condition: Condition | ChosenRpcs) -> ChosenFrames:
    """The frames of the RPCs of a capture that pass a condition.

    ``opened`` gives a session of it that was not read yet, again and again, with the contents of messages.  Raises
    CaptureError for what cannot be judged, and for a condition that nothing passes.
    """
    found = RpcFrames()
    session = opened()
    session.analyzer.watch_fpdus(found.watch)
    for table in session.tables():
        found.add(condition.selected(table, session))
    session.refuse(condition.problem(session))
    return with_acknowledgements(opened(), found)


class RpcFrames:
    """The frames that RPCs were put together of.  Give it tables of the chosen RPCs, and let it watch all FPDUs."""

    def __init__(self) -> None:
        self.rpcs = 0
        self.connections: dict[int, Connection] = {}
        """Of the RPCs, by number."""
        self._frames: list[Int64s] = []
        self._retransmitted: list[Int64s] = []
        self._until: list[Int64s] = []
        self._edges: list[Int64s] = []

    def watch(self, _tcp: TcpConnection, _direction: int, fpdus: Fpdus) -> None:
        """Keep in which frame headers and trailers of FPDUs are that no payload is in: Operations do not name those."""
        payload = np.diff(fpdus.edges) > 0
        frames, rows = fpdus.pieces["frame"], fpdus.rows[payload]
        for beside, edge in (
            (frames[fpdus.edges[:-1][payload]], rows["first_frame"]),
            (frames[fpdus.edges[1:][payload] - 1], rows["last_frame"]),
        ):
            apart = beside != edge
            if apart.any():
                self._edges.append(np.column_stack((beside[apart], edge[apart])))

    def add(self, table: RpcTable) -> None:
        """Those of the RPCs of a table."""
        self.rpcs += len(table)
        rows = table.rows
        for number in np.unique(rows["connection"]).tolist():
            if number not in self.connections:
                self.connections[number] = table.conversation(number).connection
        plain = table.plain_rows
        for name in ("call_frame", "reply_frame"):
            self._frames.append(plain[name].astype(np.int64))
        for reply in table.long_replies(plain["transfer"][plain["transfer"] >= 0]):
            self._add(reply.operation)
        for rpc in (*table.objects, *table.plain_rpcs(take(plain, plain["retransmissions"] > 0))):
            for operation in rpc.data_operations:
                self._add(operation)

    def _add(self, operation: Operation) -> None:
        ends = np.array([operation.first_frame, operation.last_frame], np.int64)
        runs = [rows["frame"].astype(np.int64) for _, _, rows in operation.payload.runs]
        self._frames += [ends, *runs]
        if operation.last_sent:
            for frames in (ends, *runs):
                self._retransmitted.append(frames)
                self._until.append(np.full(len(frames), operation.last_sent, np.int64))

    def frames(self) -> Int64s:
        """Ascending, each once."""
        found = np.unique(_joined(self._frames))
        if self._edges:
            edges = np.concatenate(self._edges)
            found = np.union1d(found, edges[_among(found, edges[:, 0]), 1])
        return found[found > 0]

    def until(self) -> tuple[Int64s, Int64s]:
        """Frames that were retransmitted, ascending, and when the last time, in nanoseconds."""
        frames, until = _joined(self._retransmitted), _joined(self._until)
        order = np.lexsort((-until, frames))
        frames, until = frames[order], until[order]
        first = np.diff(frames, prepend=-1) != 0
        return frames[first], until[first]


def with_acknowledgements(session: Session, own: RpcFrames) -> ChosenFrames:
    """Those frames, and all that retransmit or acknowledge something of them; reads a session that was not read yet."""
    frames = own.frames()
    retransmitted, until = own.until()
    finder = _Finder(frames, retransmitted, until, own.connections.values())
    addresses = AddressTable()
    found = [frames]
    for batch in session.batches():
        located = locate(batch, addresses)
        rows = decode(batch, located).rows
        if len(rows):
            found.append(finder.packets(rows, addresses))
        if located.tcp and finder.has_tcp:
            found.append(finder.segments(locate_tcp(batch, located.tcp, addresses), addresses))
    return ChosenFrames(np.unique(_joined(found)), own.rpcs)


@dataclass(slots=True)
class _ChosenNumbers:
    """What was sent in one direction of a connection, by its sequence numbers, as far as it is of chosen RPCs."""

    serial: SerialNumbers
    reference: int = -1
    """A late position; -1 before there is one."""
    starts: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    """Positions of the first and behind the last number of each packet."""
    stops: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    untils: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    """Nanoseconds; of the last transmission."""
    waiting: Int64s = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """``stop`` and time of packets that are not acknowledged yet."""

    def positions(self, numbers: Rows) -> Int64s:
        if self.reference < 0:
            self.reference = int(numbers[0]) + self.serial.modulus
        return self.serial.unwrap_near(self.reference, numbers)

    def add(self, numbers: Rows, lengths: Int64s, times: Int64s, untils: Int64s, waits: Mask) -> None:
        """Packets of chosen RPCs; ``waits``: which of them an acknowledgement answers."""
        starts = self.positions(numbers)
        stops = starts + lengths
        self.reference = int(starts[-1])
        self.starts = np.concatenate((self.starts, starts))
        order = np.argsort(self.starts, kind="stable")
        self.starts = self.starts[order]
        self.stops = np.concatenate((self.stops, stops))[order]
        self.untils = np.concatenate((self.untils, untils))[order]
        self.waiting = np.concatenate((self.waiting, np.column_stack((stops, times))[waits]))

    def forget(self, time: int) -> None:
        """Let go of what is of no use from a time on."""
        kept = self.untils + MAX_ANSWER >= time
        if not kept.all():
            self.starts, self.stops, self.untils = self.starts[kept], self.stops[kept], self.untils[kept]
        self.waiting = self.waiting[self.waiting[:, 1] + MAX_ANSWER >= time]

    def carried(self, numbers: Rows, lengths: Int64s) -> Mask:
        """Which of other packets carry something of those."""
        if not len(self.starts):
            return np.zeros(len(numbers), np.bool_)
        begin = self.positions(numbers)
        before = self.starts.searchsorted(begin + lengths, "left") - 1
        reached = np.maximum.accumulate(self.stops)
        return (before >= 0) & (reached[before] > begin)

    def acknowledged(self, numbers: Int64s, times: Int64s) -> Mask:
        """Which acknowledgements are for something of those: within them, or the first that covers one.

        ``numbers``: the first that is not acknowledged.
        """
        found = self.carried(numbers - 1, np.ones(len(numbers), np.int64))
        if not len(self.waiting):
            return found
        reached = self.positions(numbers)
        stops, since = self.waiting[:, 0], self.waiting[:, 1]
        first = np.maximum(np.maximum.accumulate(reached).searchsorted(stops), times.searchsorted(since))
        answered = np.zeros(len(stops), np.bool_)
        for place in range(len(stops)):
            at = int(first[place])
            while at < len(reached) and reached[at] < stops[place]:
                at += 1
            if at < len(reached):
                found[at] = answered[place] = True
        self.waiting = self.waiting[~answered]
        return found


class _Finder:
    """Takes the packets of batch after batch, gives the frames that are of chosen RPCs beside their own."""

    def __init__(self, own: Int64s, retransmitted: Int64s, until: Int64s, connections: Iterable[Connection]) -> None:
        self._own, self._retransmitted, self._until = own, retransmitted, until
        self._flows: dict[tuple[str, str, int, int], list[tuple[int, int, int]]] = {}
        """What packets of one end have in common -> first frame, connection number and end, the latest first."""
        self._sent: dict[tuple[int, int], _ChosenNumbers] = {}
        """By connection number and end."""
        self.has_tcp = False
        for connection in connections:
            for end in (0, 1):
                sender, receiver = connection.endpoints[end], connection.endpoints[1 - end]
                tcp = sender.port is not None
                self.has_tcp |= tcp
                ports = (sender.port or 0, receiver.port or 0) if tcp else (-1, receiver.qpn)
                flow = self._flows.setdefault((sender.address, receiver.address, *ports), [])
                flow.append((connection.first_frame, connection.number, end))
                flow.sort(reverse=True)
                self._sent[connection.number, end] = _ChosenNumbers(TCP_SEQUENCE if tcp else PSN)

    def packets(self, rows: Rows, addresses: AddressTable) -> Int64s:
        """Choose among PACKET rows."""
        rows = take(rows, opcodes.IS_RC[rows["opcode"]])
        opcode = rows["opcode"]
        answers = opcodes.IS_RESPONSE[opcode]
        acknowledges = opcodes.IS_ACKNOWLEDGE[opcode]
        waits = (opcodes.IS_LAST | opcodes.IS_ONLY)[opcode] & (opcodes.IS_SEND | opcodes.IS_WRITE)[opcode]
        ports = np.full(len(rows), -1), rows["dest_qp"]
        one = np.ones(len(rows), np.int64)
        return self._found(rows, ports, addresses, rows["psn"], one, answers, acknowledges, rows["psn"] + one, waits)

    def segments(self, rows: Rows, addresses: AddressTable) -> Int64s:
        """Choose among SEGMENT rows."""
        length = rows["length"].astype(np.int64)
        empty = (length == 0) & (rows["flags"] & ACK > 0) & (rows["flags"] & (SYN | FIN | RST) == 0)
        ports = rows["source_port"], rows["destination_port"]
        ack = rows["ack"].astype(np.int64)
        return self._found(rows, ports, addresses, rows["seq"], length, empty, empty, ack, ~empty)

    def _found(
        self,
        rows: Rows,
        ports: tuple[Rows, Rows],
        addresses: AddressTable,
        numbers: Rows,
        lengths: Int64s,
        answers: Mask,
        acknowledges: Mask,
        acknowledged: Int64s,
        waits: Mask,
    ) -> Int64s:
        """``answers``: packets that have the other end's numbers."""
        found = np.zeros(len(rows), np.bool_)
        own = _among(self._own, rows["frame"])
        for sent, which in self._by_sender(rows, ports, addresses, answers):
            sent.forget(int(rows["time"][which[0]]))
            mine = which[own[which] & (lengths[which] > 0) & ~acknowledges[which]]
            if len(mine):
                times = rows["time"][mine]
                untils = np.maximum(times, self._last_time(rows["frame"][mine]))
                sent.add(numbers[mine], lengths[mine], times, untils, waits[mine])
            carrying, acks = which[~acknowledges[which]], which[acknowledges[which]]
            if len(carrying):
                found[carrying] = sent.carried(numbers[carrying], lengths[carrying])
            if len(acks):
                found[acks] = sent.acknowledged(acknowledged[acks], rows["time"][acks])
        return np.asarray(rows["frame"][found], np.int64)

    def _last_time(self, frames: Int64s) -> Int64s:
        """When they were last transmitted, where they were retransmitted; else 0."""
        if not len(self._retransmitted):
            return np.zeros(len(frames), np.int64)
        place = np.minimum(self._retransmitted.searchsorted(frames), len(self._retransmitted) - 1)
        return np.where(self._retransmitted[place] == frames, self._until[place], 0)

    def _by_sender(
        self, rows: Rows, ports: tuple[Rows, Rows], addresses: AddressTable, answers: Mask
    ) -> Iterable[tuple[_ChosenNumbers, Int64s]]:
        """The rows of each direction of each connection of chosen RPCs, by whose sequence numbers they have."""
        hosts, of_hosts = np.unique(_pairs(rows["source"], rows["destination"]), return_inverse=True)
        ends, of_ends = np.unique(_pairs(*ports), return_inverse=True)
        distinct, which = np.unique(of_hosts * len(ends) + of_ends, return_inverse=True)
        sender = np.full((len(rows), 2), -1, np.int64)
        for index, both in enumerate(distinct.tolist()):
            source, destination = map(addresses.name, _unpaired(hosts[both // len(ends)]))
            flows = self._flows.get((source, destination, *_unpaired(ends[both % len(ends)])))
            if flows is None:
                continue
            left = np.flatnonzero(which == index)
            for place, (first, number, end) in enumerate(flows):
                later = left if place == len(flows) - 1 else left[rows["frame"][left] >= first]
                left = np.setdiff1d(left, later)
                sender[later] = number, end
        sender[:, 1] ^= answers & (sender[:, 0] >= 0)
        known = np.flatnonzero(sender[:, 0] >= 0)
        ids = sender[known, 0] * 2 + sender[known, 1]
        order = np.argsort(ids, kind="stable")
        edges = np.flatnonzero(np.diff(ids[order], prepend=-1))
        for some in np.split(known[order], edges[1:]):
            if len(some):
                number, end = sender[some[0]].tolist()
                yield self._sent[number, end], some


def _pairs(first: Rows, second: Rows) -> Int64s:
    """Two numbers, the second of 32 bits without sign, as one."""
    return first.astype(np.int64) << 32 | second


def _unpaired(both: int) -> tuple[int, int]:
    return int(both) >> 32, int(both) & 0xFFFFFFFF


def _joined(arrays: list[Int64s]) -> Int64s:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)


def _among(ascending: Int64s, frames: Int64s) -> Mask:
    if not len(ascending):
        return np.zeros(len(frames), np.bool_)
    place = np.minimum(ascending.searchsorted(frames), len(ascending) - 1)
    return np.asarray(ascending[place] == frames)
