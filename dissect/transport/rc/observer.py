"""The Reliable Connection observer: sorts packets into connections and follows both send queues of each."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from operator import itemgetter

import numpy as np

from ...arrays import Bytes, Int64s, Rows, places, take
from ...layers import opcodes
from ...layers.transports import TRANSPORTS
from ...link.addresses import AddressTable
from ...link.packets import PacketBatch
from ..connection import Connection, Endpoint, Registry
from ..operations import Operation
from .assembly import Delivered
from .cm import read_cm
from .flow_notes import FlowNotes
from .health import RcHealth
from .management import Disconnected, Established, Management, Refused, Request, flow_key
from .pairing import HELD_PACKETS, Flow, Pair, pair, requester_score
from .send_queue import SendQueue

PATIENCE = 5_000_000_000
"""Nanoseconds without any packet of a connection, after which a lost one is not sent again any more."""
SETTLED = 10_000_000_000
"""The same, after which nothing is repeated."""
UNPAIRED = 30_000_000_000
"""Nanoseconds without a packet, after which a flow finds its partner as well as it can, or none."""
HELD_IN_ALL = 1 << 19
"""Packets of flows without a partner; then the oldest go on without."""
MAX_FLOWS = 4096

_UD_SEND_ONLY = 0x64
_GSI = 1
"""The queue pair of the General Services Interface, where CM messages go (IBA 3.9)."""


class Link:
    """A connection and the observers of its two send queues."""

    def __init__(self, connection: Connection, request: Request | None) -> None:
        self.connection = connection
        self.queues = tuple(
            SendQueue(connection, sender, connection.endpoints[1 - sender].start_psn) for sender in (0, 1)
        )
        self.health = RcHealth(connection)
        self.request = request
        """The CM REQ, None where none was seen."""
        self.packets = 0
        self.forgotten = False
        """It was quiet for so long that no repetition is expected."""
        self.waiting: Delivered = []

    def feed(self, data: Bytes, sent: tuple[Rows, Rows]) -> Delivered:
        """Packets of one batch, by sender, each in capture order; Operations in the order of events."""
        connection = self.connection
        split: list[tuple[Rows, Rows]] = []
        for sender, rows in enumerate(sent):
            responding = opcodes.IS_RESPONSE[rows["opcode"]]
            split.append((take(rows, ~responding), take(rows, responding)))
            if not len(rows):
                continue
            connection.packets[sender] += len(rows)
            connection.bytes[sender] += int(rows["length"].sum())
            if not connection.first_frame or rows["frame"][0] < connection.first_frame:
                connection.first_frame, connection.first_time = int(rows["frame"][0]), int(rows["time"][0])
            if rows["frame"][-1] > connection.last_frame:
                connection.last_frame, connection.last_time = int(rows["frame"][-1]), int(rows["time"][-1])
        self.packets += len(sent[0]) + len(sent[1])
        self.forgotten = False
        for sender in (0, 1):
            self.waiting += self.queues[sender].feed(data, split[sender][0], split[1 - sender][1], self.packets)
        self.health.feed(sent, split)
        return self._release()

    def _release(self) -> Delivered:
        """What happened before the first packet that still waits behind a hole, on either queue."""
        self.waiting.sort(key=itemgetter(0))
        marks = [mark for queue in self.queues if (mark := queue.waiting_since()) is not None]
        if not marks:
            ready, self.waiting = self.waiting, []
            return ready
        mark = min(marks)
        cut = next((index for index, (order, _) in enumerate(self.waiting) if order >= mark), len(self.waiting))
        ready, self.waiting = self.waiting[:cut], self.waiting[cut:]
        return ready

    def open_since(self, sender: int) -> int | None:
        """The first frame of a message of ``sender`` that is not complete, and may still become so."""
        return self.queues[sender].open_since()

    def forget(self) -> None:
        """The connection is over: what could be repeated will not be."""
        self.health.flush()
        for queue in self.queues:
            queue.messages.recent.clear()
            queue.reads.forget()

    def idle(self, since: int) -> Delivered:
        """No packet came for ``since`` nanoseconds: holes that are still open will not be filled."""
        if since >= SETTLED and not self.forgotten:
            self.forgotten = True
            self.forget()
            if self.connection.ended_by:
                return self.finish()
        if since < PATIENCE or not any(queue.held for queue in self.queues):
            return []
        for queue in self.queues:
            self.waiting += queue.give_up_holes()
        return self._release()

    def finish(self) -> Delivered:
        """Nothing more is expected."""
        for queue in self.queues:
            self.waiting += queue.finish()
        self.waiting.sort(key=itemgetter(0))
        ready, self.waiting = self.waiting, []
        return ready


Event = tuple[int, Link, Operation]
"""Frame number in whose place it stands, where, what."""


class Observer:
    """Feed it PacketBatches; it gives Operations in the order of events, over all connections."""

    def __init__(self, addresses: AddressTable, registry: Registry, verify: bool = False) -> None:
        """``registry`` is shared with the observers of other transports."""
        self.addresses = addresses
        self.registry = registry
        self.notes = FlowNotes(_keys, verify)
        self.links: dict[int, Link] = {}
        """By connection number."""
        self.bound: dict[int, tuple[Link, int]] = {}
        """Flow key -> connection and sender."""
        self.flows: dict[int, Flow] = {}
        """Flows that have no partner yet, the oldest first."""
        self.held = 0
        """Packets of those."""
        self.changed: set[tuple[int, int]] = set()
        """Hosts between which one of those grew since they were compared."""
        self.management = Management(addresses)
        self.moves: dict[int, list[tuple[int, Link, int]]] = {}
        """Flow key -> the rows of this batch from which on it belongs to another connection and sender."""
        self.closing: list[Link] = []
        """Disconnected in this batch."""
        self.replayed: list[tuple[Link, Bytes, tuple[Rows, Rows]]] = []
        """Packets that were held and now have a connection."""
        self.other: Counter[str] = Counter()
        """Packets of other transport services, by name."""

    def feed(self, batch: PacketBatch) -> list[Event]:
        """Take a batch; give every Operation that became clear."""
        rows = batch.rows
        opcode = rows["opcode"]
        reliable = opcodes.IS_RC[opcode]
        managing = (opcode == _UD_SEND_ONLY) & (rows["dest_qp"] == _GSI)
        for link in self.closing:
            link.forget()
        self.closing.clear()
        self.moves = {}
        for index in places(managing).tolist():
            self._manage(batch, index)
        unreliable = opcode[~(reliable | managing)]
        if len(unreliable):
            for value, count in zip(*np.unique(unreliable, return_counts=True), strict=True):
                self.other[opcodes.opcode_name(int(value)).split(" ")[0]] += int(count)
        indices = places(reliable)
        kept = np.setdiff1d(indices, batch.damaged) if len(batch.damaged) else indices
        events: list[Event] = []
        for link, data, sent in self.replayed:
            events += [(order, link, operation) for order, operation in link.feed(data, sent)]
        self.replayed.clear()
        events += self._sort_out(batch.data, rows, kept)
        self.notes.look(batch, indices, kept, self.bound)
        events += self._pair(last_chance=False)
        while self.held > HELD_IN_ALL or len(self.flows) > MAX_FLOWS:
            events += self._unpaired(next(iter(self.flows)))
        events.sort(key=itemgetter(0))
        return events

    def idle(self, now: int) -> list[Event]:
        """Nothing came up to ``now`` (ns) that was not fed: give what need not wait any longer."""
        events: list[Event] = []
        old = [key for key, flow in self.flows.items() if now - flow.last_time >= UNPAIRED]
        if len(old) == len(self.flows):
            self.changed |= {flow.hosts for flow in self.flows.values()}
            events += self._pair(last_chance=True)
        for key in old:
            if key in self.flows:
                events += self._unpaired(key)
        for link in list(self.links.values()):
            delivered = link.idle(now - link.connection.last_time)
            events += [(order, link, operation) for order, operation in delivered]
        events.sort(key=itemgetter(0))
        return events

    def finish_links(self, numbers: set[int]) -> list[Event]:
        """The connections with these numbers are over."""
        events: list[Event] = []
        for number in numbers & self.links.keys():
            link = self.links[number]
            events += [(order, link, operation) for order, operation in link.finish()]
        return events

    def drop(self, numbers: set[int]) -> None:
        """Let go of everything about the connections with these numbers."""
        for number in numbers & self.links.keys():
            request = self.links.pop(number).request
            if request is not None:
                self.management.forget(request)
        for key in [key for key, binding in self.bound.items() if binding[0].connection.number in numbers]:
            del self.bound[key]
        self.closing = [link for link in self.closing if link.connection.number not in numbers]

    def finish(self) -> list[Event]:
        """The capture is over."""
        self.changed |= {flow.hosts for flow in self.flows.values()}
        events = self._pair(last_chance=True)
        for key in list(self.flows):
            events += self._unpaired(key)
        for link in self.links.values():
            events += [(order, link, operation) for order, operation in link.finish()]
        events.sort(key=itemgetter(0))
        return events

    # Sorting packets into connections

    def _sort_out(self, data: Bytes, rows: Rows, indices: Int64s) -> list[Event]:
        keys = _keys(rows["source"], rows["destination"], rows["dest_qp"])[indices]
        order = np.argsort(keys, kind="stable")
        keys, indices = keys[order], indices[order]
        starts = places(np.diff(keys, prepend=~keys[:1]))
        portions: dict[int, tuple[Link, list[list[Int64s]]]] = {}
        for key, start, end in zip(
            keys[starts].tolist(), starts.tolist(), [*starts[1:].tolist(), len(keys)], strict=False
        ):
            for binding, part in self._bindings(key, indices[start:end]):
                if binding is None:
                    self._hold(key, data, take(rows, part))
                else:
                    link, sender = binding
                    portions.setdefault(id(link), (link, [[], []]))[1][sender].append(part)
        for key, moves in self.moves.items():
            self.bound[key] = moves[-1][1:]
        events: list[Event] = []
        for link, (first, second) in portions.values():
            sent = take(rows, _joined(first)), take(rows, _joined(second))
            events += [(order, link, operation) for order, operation in link.feed(data, sent)]
        return events

    def _bindings(self, key: int, members: Int64s) -> list[tuple[tuple[Link, int] | None, Int64s]]:
        """Who a flow's packets belong to, where a CM exchange inside the batch may have changed it."""
        binding = self.bound.get(key)
        found: list[tuple[tuple[Link, int] | None, Int64s]] = []
        for index, link, sender in self.moves.get(key, ()):
            cut = int(members.searchsorted(index))
            if cut:
                found.append((binding, members[:cut]))
            members = members[cut:]
            binding = link, sender
        if len(members):
            found.append((binding, members))
        return found

    # Connections by their CM exchange

    def _manage(self, batch: PacketBatch, index: int) -> None:
        """Take the CM message in row ``index``."""
        row = batch.rows[index]
        start = int(row["payload"])
        message = read_cm(batch.data, start, start + int(row["captured"]))
        event = self.management.take(message, row) if message is not None else None
        if isinstance(event, Established):
            self._established(event, batch.rows, index)
        elif isinstance(event, Refused):
            connection = Connection(0, _transport(row), (event.request.endpoint, event.passive))
            self._link(connection, event.request)
            connection.ended_by = f"REJ ({event.reason})"
            connection.last_frame, connection.last_time = int(row["frame"]), int(row["time"])
        elif isinstance(event, Disconnected):
            binding = self._current(event.key)
            if binding is not None and not binding[0].connection.ended_by:
                side = "active" if binding[1] == 0 else "passive"
                binding[0].connection.ended_by = f"DREQ from the {side} side"
                binding[0].connection.ended_time = int(row["time"])
                self.closing.append(binding[0])
                if binding[0].request is not None:
                    self.management.forget(binding[0].request)

    def _current(self, key: int) -> tuple[Link, int] | None:
        """What a flow belongs to at this point of the batch."""
        moves = self.moves.get(key)
        return moves[-1][1:] if moves else self.bound.get(key)

    def _established(self, event: Established, rows: Rows, index: int) -> None:
        request, passive = event
        active = request.endpoint
        to_passive = flow_key(request.source, request.destination, passive.qpn)
        to_active = flow_key(request.destination, request.source, active.qpn)
        current = self._current(to_passive)
        if (
            current is not None
            and not current[0].connection.ended_by
            and current[0].request is request
            and current[0].connection.endpoints == (active, passive)
        ):
            return  # the REP again
        link = self._link(Connection(0, _transport(rows[index]), (active, passive)), request)
        link.connection.path_mtu = request.message.path_mtu
        for key, sender in ((to_passive, 0), (to_active, 1)):
            old = self._current(key)
            start = index
            if old is None or old[0].connection.ended_by:
                # A capture may show the first packets before the REP; before the REQ there were none.
                start = bisect_left(rows["frame"], request.frame, 0, index)
                self._early(link, sender, self._release(key), request.frame)
            self.moves.setdefault(key, []).append((start, link, sender))
            self.management.half_known.pop(key, None)

    def _early(self, link: Link, sender: int, flow: Flow | None, since: int) -> None:
        """Packets of a flow from frame ``since`` on belong to the link; what is older does not."""
        for data, rows in flow.pieces if flow else []:
            part = rows[rows["frame"] >= since]
            if len(part):
                self.replayed.append((link, data, (part[: len(part) * (1 - sender)], part[: len(part) * sender])))

    def _link(self, connection: Connection, request: Request | None) -> Link:
        if request is not None:
            connection.service_port = request.message.service_port
            connection.service_id = request.message.service_id
            connection.first_frame, connection.first_time = request.frame, request.time
        link = Link(connection, request)
        self.registry.add(connection)
        self.links[connection.number] = link
        return link

    # Connections from the traffic

    def _hold(self, key: int, data: Bytes, rows: Rows) -> None:
        flow = self.flows.get(key)
        if flow is None:
            flow = self.flows[key] = Flow(int(rows["source"][0]), int(rows["destination"][0]), int(rows["dest_qp"][0]))
        if flow.packets < HELD_PACKETS:
            flow.add(data, rows)
            self.held += len(rows)
            self.changed.add(flow.hosts)
        else:
            self.other["unpaired, beyond what is held"] += len(rows)

    def _release(self, key: int) -> Flow | None:
        """The flow waits no longer."""
        flow = self.flows.pop(key, None)
        if flow is not None:
            self.held -= flow.packets
            self.changed.add(flow.hosts)
        return flow

    def _pair(self, last_chance: bool) -> list[Event]:
        """Pair what can be paired between every two hosts where something changed."""
        if not self.changed:
            return []
        changed, self.changed = self.changed, set()
        hosts: dict[tuple[int, int], tuple[list[Flow], list[Flow]]] = {}
        for flow in self.flows.values():
            if flow.hosts in changed:
                hosts.setdefault(flow.hosts, ([], []))[0 if flow.source <= flow.destination else 1].append(flow)
        events: list[Event] = []
        for forth, back in hosts.values():
            if forth and back:
                for found in pair(forth, back, last_chance):
                    events += self._inferred(found)
        return events

    def _inferred(self, found: Pair) -> list[Event]:
        active, passive = found.active, found.passive
        to_passive = flow_key(active.source, active.destination, active.dest_qp)
        to_active = flow_key(passive.source, passive.destination, passive.dest_qp)
        known = self.management.half_known.pop(to_active, None), self.management.half_known.pop(to_passive, None)
        if (known[0] and known[0][1] == 1) or (known[1] and known[1][1] == 0):
            active, passive = passive, active
            to_passive, to_active = to_active, to_passive
            known = known[1], known[0]
        ends = (
            known[0][0] if known[0] else Endpoint(self.addresses.name(active.source), passive.dest_qp),
            known[1][0] if known[1] else Endpoint(self.addresses.name(active.destination), active.dest_qp),
        )
        connection = Connection(
            0,
            _transport(active.pieces[0][1][0]),
            ends,
            paired_by="inferred",
            confidence=found.confidence,
            evidence=found.evidence,
        )
        link = self._link(connection, known[0][2] if known[0] else None)
        self.bound[to_passive], self.bound[to_active] = (link, 0), (link, 1)
        self._release(to_passive)
        self._release(to_active)
        return self._replay(link, active, passive)

    def _replay(self, link: Link, active: Flow | None, passive: Flow | None) -> list[Event]:
        """Feed what was held, batch by batch as it came."""
        pieces: dict[int, tuple[int, Bytes, list[Rows]]] = {}
        for sender, flow in enumerate((active, passive)):
            for data, rows in flow.pieces if flow else []:
                slot = pieces.setdefault(id(data), (int(rows["frame"][0]), data, [rows[:0], rows[:0]]))
                slot[2][sender] = np.concatenate((slot[2][sender], rows))
        events: list[Event] = []
        for _, data, sent in sorted(pieces.values(), key=itemgetter(0)):
            events += [(order, link, operation) for order, operation in link.feed(data, (sent[0], sent[1]))]
        return events

    def _unpaired(self, key: int) -> list[Event]:
        """Only one direction was captured."""
        flow = self._release(key)
        assert flow is not None
        near, far = self.addresses.name(flow.source), self.addresses.name(flow.destination)
        known = self.management.half_known.pop(key, None)
        end = known[0] if known else Endpoint(far, flow.dest_qp)
        from_active = known[1] == 1 if known else requester_score(flow) >= 0
        ends = (Endpoint(near, 0), end) if from_active else (end, Endpoint(near, 0))
        connection = Connection(
            0,
            _transport(flow.pieces[0][1][0]),
            ends,
            paired_by="one direction only",
            confidence=0.0,
            evidence=("no packet of the other direction fits",),
        )
        link = self._link(connection, known[2] if known else None)
        return self._replay(link, flow if from_active else None, None if from_active else flow)


def _transport(row: Rows) -> str:
    """What carried a packet, as Connection says it."""
    return TRANSPORTS[int(row["transport"])]


def _keys(source: Rows, destination: Rows, dest_qp: Rows) -> Rows:
    """Flow keys of packets: 20 bits for either address, 24 for the queue pair."""
    return (
        source.astype(np.uint64) << np.uint64(44)
        | destination.astype(np.uint64) << np.uint64(24)
        | dest_qp.astype(np.uint64)
    )


def _joined(parts: list[Int64s]) -> Int64s:
    if len(parts) == 1:
        return parts[0]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
