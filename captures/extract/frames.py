"""The frames that hold chosen packets, found a batch at a time: with acknowledgements, and what sets connections up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rdmascope.dissect.arrays import Int64s, Rows, take
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.layers import opcodes
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import Located
from rdmascope.dissect.link.packets import decode, is_management
from rdmascope.dissect.link.tcp import ACK, FIN, RST, SYN, locate_tcp
from rdmascope.dissect.serial import PSN
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.rc.cm import ManagementMessage, read_cm

from .carriers import Carriers, Flow, TcpRanges

MAX_WAITING = 1 << 14
"""Operations of a connection that wait for acknowledgements; CM exchanges that are remembered."""


class ChosenPacket(NamedTuple):
    """Columns: what each chosen packet is of, a row each; a frame may come more than once."""

    frames: Int64s
    tags: Int64s
    """The Operation; negative where it is of none, such as an acknowledgement."""


@dataclass(slots=True)
class _Unacknowledged:
    """Operations of a flow whose acknowledgement has not come yet: the numbers behind them, and their last frames."""

    numbers: Int64s
    frames: Int64s
    until: int
    """The frame up to which Operations were looked at."""


class FrameChooser:
    """Carries what waits for acknowledgements from batch to batch.

    Args:
        carriers: what carried the RPCs.
        tcp: TCP sequence numbers of those that iWARP carried.
        whole: connections of which every packet is wanted.
    """

    def __init__(self, carriers: Carriers, tcp: TcpRanges, whole: dict[int, Connection]) -> None:
        self._carriers = carriers
        self._tcp = tcp
        self._whole = whole
        connections = {**carriers.connections, **whole}
        self._flows: dict[tuple[str, str, int], list[tuple[Connection, int]]] = defaultdict(list)
        self.streams: dict[tuple[str, int, str, int], list[tuple[Connection, int]]] = defaultdict(list)
        """iWARP connections and the end that sends, by address and port of sender and receiver."""
        for connection in connections.values():
            for sender in (0, 1):
                mine, other = connection.endpoints[sender], connection.endpoints[1 - sender]
                if connection.transport == "iWARP":
                    stream = mine.address, mine.port or 0, other.address, other.port or 0
                    self.streams[stream].append((connection, sender))
                else:
                    self._flows[mine.address, other.address, other.qpn].append((connection, sender))
        self._exchanges = ConnectionManagement(connections)
        self._waiting: dict[Flow, _Unacknowledged] = {}
        self._last = 0
        """Frame number of the last in the batch."""

    def choose(self, batch: FrameBatch, located: Located, addresses: AddressTable) -> ChosenPacket:
        """Those of a batch, which must follow the one before."""
        self._last = int(batch.rows["number"][-1])
        found: list[tuple[Int64s, Int64s]] = []
        if self._flows and len(located):
            self._packets(batch, located, addresses, found)
        if self.streams and located.tcp:
            self._segments(locate_tcp(batch, located.tcp, addresses), addresses, found)
        if not found:
            none = np.zeros(0, np.int64)
            return ChosenPacket(none, none)
        return ChosenPacket(*(np.concatenate(one) for one in zip(*found, strict=True)))

    # InfiniBand

    def _packets(
        self, batch: FrameBatch, located: Located, addresses: AddressTable, found: list[tuple[Int64s, Int64s]]
    ) -> None:
        rows = decode(batch, located).rows
        managing = is_management(rows)
        if managing.any():
            frames = self._exchanges.frames(batch, take(rows, managing), addresses)
            found.append((frames, np.full(len(frames), -1, np.int64)))
        rows = take(rows, opcodes.IS_RC[rows["opcode"]] | (rows["opcode"] == opcodes.CNP))
        keys = (rows["source"].astype(np.int64) * len(addresses) + rows["destination"]) << 24 | rows["dest_qp"]
        for key, mine in _groups(keys):
            ends, queue_pair = divmod(key, 1 << 24)
            source, destination = (addresses.name(one) for one in divmod(ends, len(addresses)))
            for connection, sender in self._flows.get((source, destination, queue_pair), ()):
                self._flow(connection, sender, take(rows, mine), found)

    def _flow(self, connection: Connection, sender: int, rows: Rows, found: list[tuple[Int64s, Int64s]]) -> None:
        frames, psns = rows["frame"].astype(np.int64), rows["psn"].astype(np.int64)
        response, notice = opcodes.IS_RESPONSE[rows["opcode"]], rows["opcode"] == opcodes.CNP
        tags = np.full(len(rows), -1, np.int64)
        for which, requester in ((~response & ~notice, sender), (response, 1 - sender)):
            ranges = self._carriers.packets.get((connection.number, requester))
            if ranges is not None and which.any():
                tags[which] = ranges.tags(psns[which], 1, frames[which])
        chosen = tags >= 0
        if connection.number in self._whole:
            chosen[:] = True
        else:
            acknowledging = np.flatnonzero(opcodes.IS_ACKNOWLEDGE[rows["opcode"]])
            flow = connection.number, 1 - sender
            if flow in self._carriers.packets:
                chosen[self._acknowledging(flow, acknowledging, rows, psns + 1)] = True
        chosen &= (frames >= connection.first_frame) & (frames <= connection.last_frame)
        tags[opcodes.IS_ACKNOWLEDGE[rows["opcode"]]] = -1
        found.append((frames[chosen], tags[chosen]))

    def _acknowledging(self, flow: Flow, which: Int64s, rows: Rows, reached: Int64s) -> Int64s:
        """Which of the rows at ``which`` are the first to acknowledge the whole of an Operation.

        ``reached``: of each row, the number behind the last that it acknowledges.
        """
        waiting = self._waiting.get(flow)
        ranges = self._carriers.packets[flow]
        numbers, frames = ranges.ending(0 if waiting is None else waiting.until + 1, self._last)
        if waiting is not None:
            numbers = np.concatenate((waiting.numbers, numbers))
            frames = np.concatenate((waiting.frames, frames))
        found: list[Int64s] = []
        acknowledging = rows["frame"][which]
        at = np.searchsorted(acknowledging, frames, "right")
        pending = np.arange(len(numbers))
        left = np.zeros(0, np.int64)
        while len(pending):
            beyond = at[pending] >= len(which)
            left = np.concatenate((left, pending[beyond]))
            pending = pending[~beyond]
            index = which[at[pending]]
            done = (reached[index] - numbers[pending]) % PSN.modulus < PSN.half
            found.append(index[done])
            pending = pending[~done]
            at[pending] += 1
        left = np.sort(left)[-MAX_WAITING:]
        self._waiting[flow] = _Unacknowledged(numbers[left], frames[left], self._last)
        return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)

    # iWARP

    def _segments(self, rows: Rows, addresses: AddressTable, found: list[tuple[Int64s, Int64s]]) -> None:
        keys = (rows["source"].astype(np.int64) * len(addresses) + rows["destination"]) << 32
        keys |= rows["source_port"].astype(np.int64) << 16 | rows["destination_port"]
        for key, mine in _groups(keys):
            ends, ports = divmod(key, 1 << 32)
            source, destination = (addresses.name(one) for one in divmod(ends, len(addresses)))
            stream = source, ports >> 16, destination, ports & 0xFFFF
            for connection, sender in self.streams.get(stream, ()):
                self._stream(connection, sender, take(rows, mine), found)

    def _stream(self, connection: Connection, sender: int, rows: Rows, found: list[tuple[Int64s, Int64s]]) -> None:
        frames, seq = rows["frame"].astype(np.int64), rows["seq"].astype(np.int64)
        length, flags = rows["length"].astype(np.int64), rows["flags"]
        first, last = self._tcp.lifetimes.get(connection.number, (connection.first_frame, connection.last_frame))
        alive = (frames >= first) & (frames <= last)
        tags = np.full(len(rows), -1, np.int64)
        carries = np.flatnonzero(length > 0)
        if (mine := self._tcp.ranges.get((connection.number, sender))) is not None:
            tags[carries] = mine.tags(seq[carries], length[carries], frames[carries])
        chosen = tags != -1
        if (theirs := self._tcp.ranges.get((connection.number, 1 - sender))) is not None:
            bare = np.flatnonzero((length == 0) & (flags & ACK > 0))
            acknowledged = rows["ack"].astype(np.int64)
            chosen[bare] = theirs.tags(acknowledged[bare] - 1, 1, frames[bare]) != -1
        chosen |= (flags & (SYN | FIN | RST)) > 0
        if connection.number in self._whole:
            chosen[:] = True
        chosen &= alive
        found.append((frames[chosen], tags[chosen]))


def _groups(keys: Int64s) -> list[tuple[int, Int64s]]:
    """Each key, and the rows that have it, ascending."""
    order = np.argsort(keys, kind="stable")
    edges = np.flatnonzero(np.diff(keys[order], prepend=-1))
    parts = np.split(order, edges[1:]) if len(edges) else []
    return [(int(keys[part[0]]), part) for part in parts]


class ConnectionManagement:
    """The CM messages of chosen connections, by communication IDs (IBA volume 1, 12.6)."""

    def __init__(self, connections: Mapping[int, Connection]) -> None:
        self._ends: dict[tuple[str, str, int], list[Connection]] = defaultdict(list)
        """By sender, receiver, and the sender's queue pair, which REQ and REP name."""
        for connection in connections.values():
            for mine, other in (connection.endpoints, connection.endpoints[::-1]):
                self._ends[mine.address, other.address, mine.qpn].append(connection)
        self._exchanges: dict[tuple[str, str, int], None] = {}
        """Active side, passive side, and the active side's communication ID."""

    def frames(self, batch: FrameBatch, rows: Rows, addresses: AddressTable) -> Int64s:
        """Those of PACKET rows with Management Datagrams."""
        found: list[int] = []
        for row in rows:
            start = int(row["payload"])
            message = read_cm(batch.data, start, start + int(row["captured"]))
            ends = addresses.name(int(row["source"])), addresses.name(int(row["destination"]))
            if message is not None and self._chosen(message, *ends, int(row["frame"])):
                found.append(int(row["frame"]))
        return np.array(found, np.int64)

    def _chosen(self, message: ManagementMessage, source: str, destination: str, frame: int) -> bool:
        if message.kind in ("REQ", "REP") and message.local_qpn is not None:
            name = (
                (source, destination, message.local_comm_id)
                if message.kind == "REQ"
                else (destination, source, message.remote_comm_id)
            )
            known = any(
                one.first_frame <= frame <= one.last_frame
                for one in self._ends.get((source, destination, message.local_qpn), ())
            )
            if known and name[2] is not None:
                if len(self._exchanges) >= MAX_WAITING:
                    self._exchanges.pop(next(iter(self._exchanges)))
                self._exchanges[name[0], name[1], name[2]] = None
            elif message.kind == "REQ" and name[2] is not None:
                self._exchanges.pop((name[0], name[1], name[2]), None)
            return known
        names = (source, destination, message.local_comm_id), (destination, source, message.remote_comm_id)
        if any(name in self._exchanges for name in names):
            return True
        return message.kind == "DREQ" and (destination, source, message.remote_qpn) in self._ends
