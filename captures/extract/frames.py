"""The frames that carried the chosen RPCs, a batch at a time: with acknowledgements, and what sets connections up.

``Carriers`` are ranges of sequence numbers of each connection and sender: PSNs of a queue pair, TCP sequence numbers
with iWARP. Each has a range of frames, because sequence numbers and queue pairs are used again. Retransmissions have
the numbers of the original, so that they are found, too.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rdmascope.dissect.arrays import Int64s, Rows, take
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.layers import iwarp_codes, opcodes
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import Located, locate
from rdmascope.dissect.link.packets import decode, is_management
from rdmascope.dissect.link.tcp import ACK, FIN, RST, SYN, locate_tcp
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.serial import PSN, TCP_SEQUENCE, SerialNumbers
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.iwarp.fpdus import Fpdus
from rdmascope.dissect.transport.iwarp.tcp_connection import TcpConnection
from rdmascope.dissect.transport.operations import READ, SEND, WRITE, Operation
from rdmascope.dissect.transport.rc.cm import ManagementMessage, read_cms
from rdmascope.dissect.transport.rc.reads import DEFAULT_MTU

from ..session.session import Session
from ..tables.condition import ChosenRpcs, Condition

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
        """The table sorted by last frame."""
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
        tags = np.full(len(starts), -1, np.int64)
        if not len(self) or not len(starts):
            return tags
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
            tags[hit] = chosen[4, known][hit]
            active = active[:, overlapping]
        return tags

    def ending(self, first_frame: int, last_frame: int) -> tuple[Int64s, Int64s]:
        """Ranges whose last frame is among these: the number behind each, and that frame; by frame."""
        between = self._between(first_frame, last_frame)
        return between[1], between[3]

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
        operations.update(
            dict.fromkeys(operation for chunk in rpc.chunks for use in chunk.segments for operation in use.late)
        )
        added: list[tuple[Operation, int]] = []
        for operation in operations:
            added.append((operation, self.operations))
            self._add(rpc.connection, operation, self.operations)
            self.operations += 1
        return added

    def _add(self, connection: Connection, operation: Operation, tag: int) -> None:
        flow = connection.number, operation.initiator
        first, last = operation.first_frame, operation.last_frame
        if not connection.of_tcp:
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
        return any(connection.of_tcp for connection in self.connections.values())


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
    """For a Read Response, the tagged offset at which the response begins."""
    grid: int | None
    """Position that the markers of its direction are counted from; None without markers."""


@dataclass(slots=True)
class TcpRanges:
    """TCP sequence numbers of the chosen FPDUs, and of the beginning of their connections.

    ``find`` reads a whole pass for them.
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
        for unsettled in self._unsettled:
            self._take(*unsettled)
        self._unsettled.clear()

    def _take(self, tcp: TcpConnection, direction: int, fpdus: Fpdus) -> None:
        connection = tcp.connection
        if connection is None or connection.number not in self.carriers.connections:
            return
        self._links[connection.number] = tcp
        flow = connection.number, tcp.directions[direction].sender
        rows = fpdus.rows
        if connection.transport == "UDP":
            rows = rows.copy()
            rows["start"], rows["stop"] = rows["first_frame"], rows["last_frame"] + 1
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
        offsets = (rows["place"] & np.uint64(TCP_SEQUENCE.modulus - 1)).astype(np.int64)
        for opcode, tagged in (
            (iwarp_codes.WRITE, self.carriers.writes),
            (iwarp_codes.READ_RESPONSE, self._responses),
        ):
            which = rows["opcode"] == opcode
            for stag in np.unique(rows["stag"][which]).tolist():
                if (tagged_memory := tagged.get((*flow, stag))) is not None:
                    these = which & (rows["stag"] == stag)
                    lengths = np.maximum(rows["length"][these].astype(np.int64), 1)
                    tags[these] = tagged_memory.tags(offsets[these], lengths, frames[these])
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
            for start, stop, opcode, offset, tag in zip(*columns, tags[tags >= 0].tolist(), strict=True):
                sink = self._sinks.get(tag, 0) if opcode == iwarp_codes.READ_RESPONSE else None
                self.keep(flow, ChosenFpdu(start, stop, opcode, offset, tag, sink, grid))

    def find(self, session: Session) -> None:
        """Read a session that was not read yet for where in the TCP streams the chosen FPDUs are."""
        session.analyzer.watch_fpdus(self.listen)
        for _ in session.tables():
            self.settle()
        self.finish()

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


MAX_WAITING = 1 << 14
"""Operations of a connection that wait for acknowledgements; CM exchanges that are remembered."""


class ChosenPacket(NamedTuple):
    """Columns: what each chosen packet is of, a row each; a frame may come more than once."""

    frames: Int64s
    tags: Int64s
    """The Operation; negative where it is of none: SETUP, or that of an acknowledgement."""


@dataclass(slots=True)
class _Unacknowledged:
    """Operations of a flow whose acknowledgement has not come yet: the numbers behind them, and their last frames."""

    numbers: Int64s
    frames: Int64s
    until: int
    """The frame up to which Operations were looked at."""


@dataclass(frozen=True, slots=True)
class ChosenFrames:
    """The frames of RPCs that were chosen."""

    numbers: Int64s
    """Ascending, each once."""
    rpcs: int
    """How many RPCs they are of."""

    def among(self, frames: Int64s) -> NDArray[np.bool_]:
        """Which of some frames are chosen."""
        return np.isin(frames, self.numbers)

    def __contains__(self, frame: int) -> bool:
        return frame in self.numbers


def chosen_frames(opened: Callable[[], Session], condition: Condition | ChosenRpcs) -> ChosenFrames:
    """The frames of the RPCs of a capture that pass a condition, without those that set connections up.

    ``opened`` gives a session of it that was not read yet, again and again, with the contents of messages: RPCs are
    judged when they end, and by then their packets are long past.  Raises CaptureError for what cannot be judged, and
    for a condition that nothing passes.
    """
    session, carriers = opened(), Carriers()
    for table in session.tables():
        for rpc in condition.selected(table, session):
            carriers.add(rpc)
    session.refuse(condition.problem(session))
    tcp = TcpRanges(carriers)
    if carriers.iwarp:
        tcp.find(opened())
    chooser, addresses = FrameChooser(carriers, tcp, {}), AddressTable()
    frames: list[Int64s] = []
    for batch in filter(len, opened().batches()):
        chosen = chooser.choose(batch, locate(batch, addresses), addresses)
        frames.append(chosen.frames[chosen.tags != SETUP])
    return ChosenFrames(np.unique(np.concatenate([np.zeros(0, np.int64), *frames])), carriers.rpcs)


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
                if connection.of_tcp:
                    stream = mine.address, mine.port or 0, other.address, other.port or 0
                    self.streams[stream].append((connection, sender))
                else:
                    self._flows[mine.address, other.address, other.qpn].append((connection, sender))
        self._exchanges = ConnectionManagement(connections)
        self._waiting: dict[Flow, _Unacknowledged] = {}
        self._last = 0
        """Frame number of the last in the batch."""

    def choose(self, batch: FrameBatch, located: Located, addresses: AddressTable) -> ChosenPacket:
        """The chosen packets of a batch, which must follow the previous one."""
        self._last = int(batch.rows["number"][-1])
        choices: list[tuple[Int64s, Int64s]] = []
        if self._flows and len(located):
            self._packets(batch, located, addresses, choices)
        if self.streams and located.tcp:
            self._segments(locate_tcp(batch, located.tcp, addresses), addresses, choices)
        if not choices:
            none = np.zeros(0, np.int64)
            return ChosenPacket(none, none)
        return ChosenPacket(*(np.concatenate(column) for column in zip(*choices, strict=True)))

    # InfiniBand

    def _packets(
        self, batch: FrameBatch, located: Located, addresses: AddressTable, choices: list[tuple[Int64s, Int64s]]
    ) -> None:
        rows = decode(batch, located).rows
        managing = is_management(rows)
        if managing.any():
            frames = self._exchanges.frames(batch, take(rows, managing), addresses)
            choices.append((frames, np.full(len(frames), SETUP, np.int64)))
        rows = take(rows, opcodes.IS_RC[rows["opcode"]] | (rows["opcode"] == opcodes.CNP))
        keys = (rows["source"].astype(np.int64) * len(addresses) + rows["destination"]) << 24 | rows["dest_qp"]
        for key, mine in _groups(keys):
            ends, queue_pair = divmod(key, 1 << 24)
            source, destination = (addresses.name(end) for end in divmod(ends, len(addresses)))
            for connection, sender in self._flows.get((source, destination, queue_pair), ()):
                self._flow(connection, sender, take(rows, mine), choices)

    def _flow(self, connection: Connection, sender: int, rows: Rows, choices: list[tuple[Int64s, Int64s]]) -> None:
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
        choices.append((frames[chosen], tags[chosen]))

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
        completing: list[Int64s] = []
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
            completing.append(index[done])
            pending = pending[~done]
            at[pending] += 1
        left = np.sort(left)[-MAX_WAITING:]
        self._waiting[flow] = _Unacknowledged(numbers[left], frames[left], self._last)
        return np.unique(np.concatenate(completing)) if completing else np.zeros(0, np.int64)

    # iWARP

    def _segments(self, rows: Rows, addresses: AddressTable, choices: list[tuple[Int64s, Int64s]]) -> None:
        keys = (rows["source"].astype(np.int64) * len(addresses) + rows["destination"]) << 32
        keys |= rows["source_port"].astype(np.int64) << 16 | rows["destination_port"]
        for key, mine in _groups(keys):
            ends, ports = divmod(key, 1 << 32)
            source, destination = (addresses.name(end) for end in divmod(ends, len(addresses)))
            for connection, sender in self.streams.get((source, ports >> 16, destination, ports & 0xFFFF), ()):
                self._stream(connection, sender, take(rows, mine), choices)

    def _stream(self, connection: Connection, sender: int, rows: Rows, choices: list[tuple[Int64s, Int64s]]) -> None:
        frames, seq = rows["frame"].astype(np.int64), rows["seq"].astype(np.int64)
        length, flags = rows["length"].astype(np.int64), rows["flags"]
        if connection.transport == "UDP":  # Datagrams are known by their frames.
            seq, length = frames, np.ones(len(rows), np.int64)
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
            answered = theirs.tags(acknowledged[bare] - 1, 1, frames[bare])
            chosen[bare] = answered != -1
            tags[bare[answered == SETUP]] = SETUP
        opens_or_ends = (flags & (SYN | FIN | RST)) > 0
        tags[opens_or_ends & (tags == -1)] = SETUP
        chosen |= opens_or_ends
        if connection.number in self._whole:
            chosen[:] = True
        chosen &= alive
        choices.append((frames[chosen], tags[chosen]))


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
        """The frames, among PACKET rows with Management Datagrams, of the CM messages of chosen connections."""
        frames: list[int] = []
        columns = [rows[name].tolist() for name in ("source", "destination", "frame")]
        for message, source, destination, frame in zip(
            read_cms(batch.data, rows["payload"], rows["captured"]), *columns, strict=True
        ):
            ends = addresses.name(source), addresses.name(destination)
            if message is not None and self._chosen(message, *ends, frame):
                frames.append(frame)
        return np.array(frames, np.int64)

    def _chosen(self, message: ManagementMessage, source: str, destination: str, frame: int) -> bool:
        if message.kind in ("REQ", "REP") and message.local_qpn is not None:
            name = (
                (source, destination, message.local_comm_id)
                if message.kind == "REQ"
                else (destination, source, message.remote_comm_id)
            )
            known = any(
                connection.first_frame <= frame <= connection.last_frame
                for connection in self._ends.get((source, destination, message.local_qpn), ())
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
