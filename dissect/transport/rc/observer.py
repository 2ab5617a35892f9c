"""The Reliable Connection observer: sorts packets into connections, by CM exchanges or by inference."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter, itemgetter

import numpy as np

from ...arrays import Bytes, Int64s, Rows, among, joined, places, some, stretches, take, unique
from ...layers import opcodes
from ...layers.transports import TRANSPORTS
from ...link.addresses import AddressTable
from ...link.packets import PacketBatch, is_management
from ...named_tuple import NamedTuple
from ...serial import PSN
from ..connection import (
    AT_END,
    BY_CM,
    BY_ONE_DIRECTION,
    BY_PAIRING,
    ONE_DIRECTION,
    UNANSWERED,
    Connection,
    Endpoint,
    KnownAt,
    PathMigration,
    Registry,
)
from ..operations import Operation
from ..runs import Run
from .cm import TELLING, ConnectionRequest, DisconnectRequested, Established, Management, Refused, read_cms, remember
from .in_order import feed_together
from .link import RcLink
from .lost_packets import HELD_PACKETS, after_silence
from .pairing import NO_READER, Flow, Pair, SendReader, UnpairedFlows, flow_key, flow_keys
from .seen_psns import detach


class Binding(NamedTuple):
    """The connection that a flow belongs to, and its sender."""

    link: RcLink
    sender: int


class _Change(NamedTuple):
    """A new binding, from a row of the batch on."""

    row: int
    binding: Binding
    reused: bool
    """Another connection had the flow before, and packets of it may come late."""


class Bindings:
    """The bindings of all flows, by flow key."""

    def __init__(self) -> None:
        self.bound: dict[int, Binding] = {}
        """The bindings at the start of the batch."""
        self._changes: dict[int, list[_Change]] = {}
        """Changes in the batch."""
        self._before: dict[int, list[Binding]] = {}
        """Earlier bindings, oldest first, whose packets may still come: none of the current binding came so far."""

    def current(self, key: int) -> Binding | None:
        """The binding of a flow after the changes so far."""
        changes = self._changes.get(key)
        return changes[-1].binding if changes else self.bound.get(key)

    def disconnected(self, event: DisconnectRequested) -> Binding | None:
        """The binding that a DREQ ends; it may come late, when the next connection has the queue pair."""
        owners: list[Binding | None] = [*self._before.get(event.key, ()), self.bound.get(event.key)]
        owners += [change.binding for change in self._changes.get(event.key, ())]
        for owner in owners[::-1]:
            if owner is None or owner.link.request is None or owner.link.request.local_comm_id in event.comm_ids:
                return owner
        return None

    def change(self, key: int, row: int, binding: Binding, reused: bool = False) -> None:
        """Bind a flow to another connection, from ``row`` of the batch on.

        ``reused``: only from the first packet on whose PSN fits that connection.
        """
        self._changes.setdefault(key, []).append(_Change(row, binding, reused))

    def sort(self, rows: Rows, indices: Int64s) -> Iterator[tuple[int, Binding | None, Int64s]]:
        """Key, binding and rows of each flow in ``rows[indices]``; the changes then hold for later batches."""
        keys = flow_keys(*(rows[name][indices] for name in ("source", "destination", "dest_qp")))
        order = np.argsort(keys, kind="stable")
        keys, indices = keys[order], indices[order]
        starts = stretches(keys)
        ends = [*starts[1:].tolist(), len(keys)]
        for key, start, end in zip(keys[starts].tolist(), starts.tolist(), ends, strict=False):
            for binding, part in self._split(key, indices[start:end], rows["psn"]):
                yield key, binding, part
        for key in [*self._changes]:
            for _ in self._split(key, _NO_ROWS, rows["psn"]):
                pass

    def _split(self, key: int, members: Int64s, psns: Rows) -> Iterator[tuple[Binding | None, Int64s]]:
        """Split the packets of a flow by the binding they belong to, up to the end of the batch."""
        owners = [*self._before.pop(key, ()), self.bound.get(key)]
        last = _NO_ROWS
        changes = self._changes.pop(key, ())
        for start, change in zip((*[change.row for change in changes], None), (None, *changes), strict=True):
            if change is not None:
                owners = [*owners[-SAME_QPNS:], change.binding] if change.reused else [change.binding]
            stop = len(members) if start is None else int(members.searchsorted(start))
            part, members = members[:stop], members[stop:]
            while len(part) and len(owners) > 1:
                some_of_it, part = part[:LATE], part[LATE:]
                of = _owners(owners, psns[some_of_it], psns[last])
                for owner in unique(of).tolist():
                    yield owners[owner], some_of_it[of == owner]
                owners, last = owners[int(of[-1]) :], some_of_it[of == of[-1]][-NEAR:]
            if len(part):
                yield owners[0], part
                last = part[-NEAR:]
        newest = owners.pop()
        if newest is not None:
            self.bound[key] = newest
        if owners:
            self._before[key] = [owner for owner in owners if owner is not None]

    def drop(self, numbers: set[int]) -> None:
        """Forget the bindings of connections with these numbers."""
        for key in [key for key, binding in self.bound.items() if binding.link.connection.number in numbers]:
            del self.bound[key]
            self._before.pop(key, None)
        for key, owners in [*self._before.items()]:
            if any(owner.link.connection.number in numbers for owner in owners):
                del self._before[key]


LATE = 4096
"""Packets of a flow that are examined together for late ones."""
NEAR = 64
"""Packets of a flow among which a late packet must have a neighbour of the same connection."""
_NO_ROWS = np.empty(0, np.int64)


def _owners(owners: Sequence[Binding | None], numbers: Rows, last: Rows) -> Int64s:
    """By packet, the index of its owner among ``owners``, which have a flow in turn: the one whose PSNs are nearest.

    ``numbers``: PSNs; ``last``: PSNs of the first owner.  A flow has PSNs of both ends: those of its requests, and
    those of the requests that its responses answer."""
    away: list[Int64s] = []
    psns = numbers.astype(np.int64)
    for at, owner in enumerate(owners):
        assert owner is not None
        link, starting = owner.link, _starting(owner.link.connection)
        if not at:
            heads = [head % PSN.modulus for queue in link.queues if (head := queue.head) is not None]
            known = np.array([*starting, *heads, *last], np.int64)
            ahead = np.minimum(_ahead(psns, known), _ahead(-psns, -known)) if len(known) else None
        else:
            ahead = _ahead(psns, starting)
        away.append(np.full(len(psns), HELD_PACKETS) if ahead is None else ahead)
    nearest = len(owners) - 1 - np.argmin(away[::-1], axis=0)
    return np.maximum.accumulate(nearest)


def _starting(connection: Connection) -> list[int]:
    """The PSNs with which a connection's flows begin, as far as known."""
    return [end.start_psn for end in connection.endpoints if end.start_psn is not None]


def _ahead(psns: Int64s, known: Sequence[int] | Int64s) -> Int64s:
    """How far each PSN is ahead of the nearest of ``known`` before it."""
    return np.array(((psns[:, None] - np.array(known)) % PSN.modulus).min(axis=1))


NOTICE, DAMAGED, WRONG = "CNP", "damaged", "wrong ICRC"
MAX_NOTED = 4096
MAX_PACKETS = 4096
"""Packets kept per flow until its connection is known."""

Bound = Mapping[int, Binding]
"""By flow key."""


class FlowNotes:
    """Passes CNPs and damaged packets to the health of their connection, as soon as that is known."""

    def __init__(self, every_wrong: bool) -> None:
        self.every_wrong = every_wrong
        """Count wrong invariant CRCs even of hosts none of whose packets has a right one."""
        self.verified = 0
        """Packets whose ICRC was verified."""
        self._waiting: dict[int, list[tuple[Rows, str]]] = {}
        self.unknown = 0
        """Packets that were dropped without a connection."""

    def look(self, batch: PacketBatch, bound: Bound) -> None:
        """Collect such packets of a batch."""
        rows, icrc = batch.rows, batch.icrc
        self.verified += icrc.verified
        self._take(take(rows, rows["opcode"] == opcodes.CNP), bound, NOTICE)
        self._take(take(rows, icrc.damaged[opcodes.IS_RC[rows["opcode"][icrc.damaged]]]), bound, DAMAGED)
        if self.every_wrong and len(icrc.wrong) != len(icrc.damaged):
            self._take(take(rows, np.setdiff1d(icrc.wrong, icrc.damaged)), bound, WRONG)

    def _take(self, rows: Rows, bound: Bound, what: str) -> None:
        if not len(rows):
            return
        keys = flow_keys(rows["source"], rows["destination"], rows["dest_qp"])
        for key in unique(keys).tolist():
            part = take(rows, keys == key)
            owner = bound.get(key)
            if owner is not None:
                _count(owner, part, what)
                continue
            waiting = self._waiting.setdefault(key, []) if len(self._waiting) < MAX_NOTED else []
            if sum(len(packets) for packets, _ in waiting) < MAX_PACKETS:
                waiting.append((part, what))
            else:
                self.unknown += len(part)

    def settle(self, bound: Bound) -> None:
        """Pass on packets whose connection is known by now."""
        for key in [key for key in self._waiting if key in bound]:
            for rows, what in self._waiting.pop(key):
                _count(bound[key], rows, what)


def _count(binding: Binding, rows: Rows, what: str) -> None:
    health = binding.link.health
    if what == NOTICE:
        health.notified(binding.sender, rows["time"].copy())
    else:
        health.corrupt(binding.sender, rows, dropped=what == DAMAGED)


UNPAIRED = 30_000_000_000
"""Nanoseconds without a packet after which a flow is paired as well as possible, or goes on alone."""
HELD_IN_ALL = 1 << 19
"""Packets of unpaired flows; beyond that the oldest flows are paired as well as possible, or go on alone."""
MAX_FLOWS = 4096
"""Unpaired flows; beyond that the same happens."""
FIRST_LOOK, EACH_LOOK = 16, 1 << 12
"""Frames at which flows are paired: the first, doubled each time, then at multiples of the second; independent of where
batches end."""
DISORDERED = 64
"""Frames by which a CM message may follow the first packets of its connection, which begin with a starting PSN."""
SAME_QPNS = 8
"""Connections remembered between queue pairs with the same numbers."""
MIGRATED = 4096
"""PSNs that may lie between the end of a queue pair on one path and its continuation on another."""
BEHIND_DREQ = 256
"""Frames after a DREQ in which packets of its connection may be retransmitted."""
DISCONNECTED = "DREQ from the client", "DREQ from the server"


Event = tuple[int, RcLink, Operation]
"""The number of the frame that it counts at, its link, the Operation."""
QueueRun = tuple[RcLink, Run]


class RcObserver:
    """Takes PacketBatches, and gives the Operations of all connections in the order of events."""

    def __init__(
        self, addresses: AddressTable, registry: Registry, ports: frozenset[int], verify: bool = False,
        reader: SendReader = NO_READER,
    ) -> None:  # fmt: skip
        """``registry``: shared with the observers of other transports; ``ports``: service ports; ``reader``: reads
        Sends, to pair flows."""
        self.addresses = addresses
        self.registry = registry
        self.ports = ports
        self.notes = FlowNotes(verify)
        self.links: dict[int, RcLink] = {}
        """By connection number."""
        self._new: list[RcLink] = []
        """Links of connections without a number so far."""
        self._by_qpns: dict[tuple[int, int], list[RcLink]] = {}
        """The latest links by the numbers of their queue pairs."""
        self.bindings = Bindings()
        self.unpaired = UnpairedFlows(reader)
        self.max_flows = MAX_FLOWS
        self._look = FIRST_LOOK
        """The frame at which flows are paired next."""
        self._now = AT_END
        """The frame at which they are being paired."""
        self._paired: dict[int, Binding] = {}
        """Flows paired in this batch: CM exchanges that bind them came later."""
        self.management = Management(addresses)
        self.closing: dict[RcLink, int] = {}
        """Links disconnected a while ago, with the frame of the DREQ; packets may still be retransmitted."""
        self._unbound: dict[int, tuple[int, int]] = {}
        """Frame and time of DREQs for flows whose connection is not known so far."""
        self._filled: dict[RcLink, None] = {}
        """Links where something waits only because copies of it may follow."""
        self.replayed: list[tuple[RcLink, Bytes, tuple[Rows, Rows]]] = []
        """Packets that were held and belong to a connection now."""
        self._frames: Sequence[int] = ()
        """The frames of the batch's rows."""
        self._data: Bytes | None = None
        """The bytes of the last batch: the whole file if it is mapped into memory, else the batch's own."""
        self.other: Counter[str] = Counter()
        """Packets of other transport services, by name."""

    def feed(self, batch: PacketBatch, runs: list[QueueRun] | None = None, last: int | None = None) -> list[Event]:
        """Take a batch; returns the Operations that are certain by now.

        With ``runs``, ordinary Operations go there instead.  ``last``: the last frame of the batch, if it is not one of
        these packets.
        """
        rows = batch.rows
        if last is None:
            last = int(rows["frame"][-1]) if len(rows) else 0
        if batch.data is not self._data:
            self._data = batch.data
            detach(queue.sent for link in self.links.values() for queue in link.health.retransmissions)
        opcode = rows["opcode"]
        reliable = opcodes.IS_RC[opcode]
        managing = is_management(rows)
        for link in [link for link in self.closing if link.closing]:
            del self.closing[link]
            link.forget()
        datagrams = places(managing)
        if len(batch.icrc.damaged):
            datagrams = np.setdiff1d(datagrams, batch.icrc.damaged, assume_unique=True)
        self._manage(batch, datagrams)
        for link, frame in self.closing.items():
            link.closing = frame + BEHIND_DREQ <= last
        unreliable = opcode[~(reliable | managing)]
        if len(unreliable):
            for value, count in zip(*np.unique(unreliable, return_counts=True), strict=True):
                self.other[opcodes.transport_service(int(value))] += int(count)
        indices = places(reliable)
        kept = np.setdiff1d(indices, batch.icrc.damaged, assume_unique=True) if len(batch.icrc.damaged) else indices
        events: list[Event] = []
        for link, data, sent in self.replayed:
            events += self._feed(link, data, sent)
        self.replayed.clear()
        events += self._sort_out(batch.data, rows, kept, runs, last)
        self.notes.look(batch, self.bindings.bound)
        flows = self.unpaired.flows
        while self.unpaired.packets > HELD_IN_ALL or len(flows) > self.max_flows:
            # Two flows make a pair: releasing half of the excess may be enough.
            events += self._give_up([*islice(flows, max(1, (len(flows) - self.max_flows) // 2))])
        for link in [*self._filled]:
            ended = after_silence(rows, link.connection.last_frame, link.connection.last_time)
            if ended is not None:
                events += [(order, link, operation) for order, operation in link.give_up_gaps(True, ended)]
            if not link.gap_filled:
                del self._filled[link]
        events.sort(key=itemgetter(0))
        return events

    def _feed(
        self,
        link: RcLink,
        data: Bytes,
        sent: tuple[Rows, Rows],
        runs: list[Run] | None = None,
        every: Rows | None = None,
    ) -> list[Event]:
        events: list[Event] = [(order, link, operation) for order, operation in link.feed(data, sent, runs, every)]
        link.settle()
        if link.gap_filled:
            self._filled[link] = None
        return events

    def idle(self, now: int) -> list[Event]:
        """Release what need not wait longer, as nothing came up to ``now`` (ns)."""
        events: list[Event] = []
        flows = self.unpaired.flows
        old = [key for key, flow in flows.items() if now - flow.last_time >= UNPAIRED]
        if old and len(old) == len(flows):
            events += self._pair(last_chance=True)
        events += self._give_up([key for key in old if key in flows])
        for link in list(self.links.values()):
            delivered = link.idle(now - link.connection.last_time)
            events += [(order, link, operation) for order, operation in delivered]
        events.sort(key=itemgetter(0))
        self.number()
        return events

    def number(self) -> None:
        """Number the connections that became known."""
        self.registry.settle()
        self.links |= {link.connection.number: link for link in self._new}
        self._new.clear()

    def finish_links(self, numbers: set[int]) -> list[Event]:
        """Release everything of the connections with these numbers: they are over."""
        events: list[Event] = []
        for number in numbers & self.links.keys():
            link = self.links[number]
            events += [(order, link, operation) for order, operation in link.finish()]
        return events

    def drop(self, numbers: set[int]) -> None:
        """Forget the connections with these numbers."""
        for number in numbers & self.links.keys():
            link = self.links.pop(number)
            first, second = sorted(end.qpn for end in link.connection.endpoints)
            left = [other for other in self._by_qpns.pop((first, second), ()) if other is not link]
            if left:
                self._by_qpns[first, second] = left
            self._filled.pop(link, None)
            request = link.request
            if request is not None:
                self.management.forget(request)
        self.bindings.drop(numbers)
        self.closing = {link: frame for link, frame in self.closing.items() if link.connection.number not in numbers}

    def finish(self) -> list[Event]:
        """Release everything: the capture is over."""
        events = self._pair(last_chance=True)
        for flow in sorted(self.unpaired.flows.values(), key=attrgetter("first_frame")):
            events += self._one_direction(flow.key)
        self._note_unanswered()
        self.number()
        for link in self.links.values():
            events += [(order, link, operation) for order, operation in link.finish()]
            link.release()
        events.sort(key=itemgetter(0))
        self.notes.settle(self.bindings.bound)
        self.bindings = Bindings()
        return events

    # Sorting packets into connections

    def _sort_out(
        self, data: Bytes, rows: Rows, indices: Int64s, runs: list[QueueRun] | None, last: int
    ) -> list[Event]:
        portions: dict[int, tuple[RcLink, list[list[Int64s]]]] = {}

        def sort_in(key: int, binding: Binding | None, part: Int64s) -> None:
            if binding is None:
                self.unpaired.hold(key, data, take(rows, part))
            else:
                portions.setdefault(id(binding.link), (binding.link, [[], []]))[1][binding.sender].append(part)

        unknown: list[tuple[int, Int64s]] = []
        for key, binding, part in self.bindings.sort(rows, indices):
            if binding is None:
                unknown.append((key, part))
            else:
                sort_in(key, binding, part)
        paired: list[Event] = []
        self._paired.clear()
        while self._look <= last:
            self._now = look = self._look
            left: list[tuple[int, Int64s]] = []
            self._look = _next_look(look if unknown or self.unpaired.flows else last)
            for key, part in unknown:
                behind = int(rows["frame"][part].searchsorted(look, side="right"))
                if behind:
                    sort_in(key, self._paired.get(key), part[:behind])
                if behind < len(part):
                    left.append((key, part[behind:]))
            unknown = left
            # Events of a connection count from where it became known.
            known = len(self._paired)
            pairs = sorted(self._pair(last_chance=False), key=itemgetter(0))
            for binding in islice(self._paired.values(), known, None):
                binding.link.begin(look)
            paired += [(max(order, look), link, operation) for order, link, operation in pairs]
        self._now = AT_END
        for key, part in unknown:
            sort_in(key, self._paired.get(key), part)
        joined = [(link, _joined(first), _joined(second)) for link, (first, second) in portions.values()]
        events, joined = feed_together(data, rows, joined, runs)
        events += paired
        for link, first, second in joined:
            sent = take(rows, first), take(rows, second)
            made: list[Run] | None = None if runs is None else []
            events += self._feed(link, data, sent, made, rows)
            if runs is not None and made:
                runs += [(link, run) for run in made]
        return events

    # Connections by their CM exchange

    def _manage(self, batch: PacketBatch, datagrams: Int64s) -> None:
        """Process the CM messages in these rows."""
        if not len(datagrams):
            return
        self._frames = batch.rows["frame"].copy().data
        carrying = take(batch.rows, datagrams)
        messages = read_cms(batch.data, carrying["payload"], carrying["captured"], TELLING)
        columns = [carrying[name].tolist() for name in ("source", "destination", "transport", "frame", "time")]
        for index, message, *sent in zip(datagrams.tolist(), messages, *columns, strict=True):
            if message is not None:
                self._happened(self.management.take(message, *sent), batch.rows, index)

    def _happened(self, event: Established | Refused | DisconnectRequested | None, rows: Rows, index: int) -> None:
        """Process what a CM exchange says as of the message in row ``index``."""
        if isinstance(event, Established):
            self._established(event, rows, index)
        elif isinstance(event, Refused):
            frame, time = int(rows["frame"][index]), int(rows["time"][index])
            connection = _of_request(event.request, event.passive)
            self._link(connection, event.request, (frame, BY_CM, 0))
            connection.ended_by = f"REJ ({event.reason})"
            connection.last_frame, connection.last_time = frame, time
        elif isinstance(event, DisconnectRequested):
            binding = self.bindings.disconnected(event)
            frame, time = int(rows["frame"][index]), int(rows["time"][index])
            if binding is None:
                remember(self._unbound, event.key, (frame, time))
            else:
                self._disconnected(binding, frame, time)

    def _disconnected(self, binding: Binding, frame: int, time: int) -> None:
        """A DREQ asks for the end of a connection."""
        link = binding.link
        if not link.connection.ended_by:
            link.connection.ended_by, link.connection.ended_time = DISCONNECTED[binding.sender], time
            self.closing[link] = frame
            if link.request is not None:
                self.management.forget(link.request)
                link.request = None

    def _disconnected_before(self, key: int, binding: Binding, first: int) -> None:
        """It is known now whose a flow is that begins in frame ``first``: a DREQ may have ended it."""
        frame, time = self._unbound.pop(key, (0, 0))
        if frame > first:
            self._disconnected(binding, frame, time)

    def _established(self, event: Established, rows: Rows, index: int) -> None:
        request, passive = event.request, event.passive
        active = request.endpoint
        to_passive = flow_key(request.source, request.destination, passive.qpn)
        to_active = flow_key(request.destination, request.source, active.qpn)
        current = self.bindings.current(to_passive)
        if (
            current is not None
            and not current.link.connection.ended_by
            and current.link.request is request
            and current.link.connection.endpoints == (active, passive)
        ):
            return  # the REP again
        connection = _of_request(request, passive)
        link = self._link(connection, request, (int(rows["frame"][index]), BY_CM, 0))
        link.connection.path_mtu = request.path_mtu
        link.connection.first_frame, link.connection.first_time = event.frame, event.time
        starting = _starting(connection)
        for key, sender in ((to_passive, 0), (to_active, 1)):
            old = self.bindings.current(key)
            former = None if old is None else old.link.connection
            # A capture of several interfaces may have the REP and what follows it before the REQ.
            first = min(request.frame, connection.endpoints[sender].private_data_frame)
            start = index
            if former is None or former.ended_by or (starting and former.first_frame < request.frame):
                start = bisect_left(self._frames, first, 0, index)
            if former is None:
                begun = self._early(link, sender, self.unpaired.release(key), first)
                low = bisect_left(self._frames, first - DISORDERED, 0, start)
                near = rows[low:start]
                if some(near["dest_qp"] == (key & 0xFFFFFF)):
                    keys = flow_keys(near["source"], near["destination"], near["dest_qp"])
                    mine = places((keys == key) & opcodes.IS_RC[near["opcode"]])
                    start = [*(mine + low).tolist(), start][0 if begun else _first_row(near[mine], first, starting)]
            self.bindings.change(key, start, Binding(link, sender), reused=former is not None and bool(starting))
            self.management.half_known.pop(key, None)

    def _note_unanswered(self) -> None:
        """Add connections for REQs that were repeated and never answered."""
        # If the capture has only one direction of the hosts' traffic, the answer may have been sent.
        went_on: dict[frozenset[str], int] = {}
        for link in (*self.links.values(), *self._new):
            if link.connection.paired_by != "CM":
                ends = frozenset(end.address for end in link.connection.endpoints)
                went_on[ends] = max(link.connection.last_time, went_on.get(ends, -1))
        for request, count, frame, time in filter(None, self.management.asked.values()):
            if count < 2 or request.service_port not in self.ports:
                continue
            connection = _of_request(request, Endpoint(self.addresses.name(request.destination), 0))
            if went_on.get(frozenset(end.address for end in connection.endpoints), -1) < request.time:
                self._link(connection, request, (AT_END, BY_CM, request.frame))
                connection.ended_by = f"{UNANSWERED}{count} REQs"
                connection.last_frame, connection.last_time = frame, time

    def _early(self, link: RcLink, sender: int, flow: Flow | None, first: int) -> bool:
        """Give the link a flow's packets from frame ``first`` on, older ones continue to wait; False if there are
        none."""
        if flow is None:
            return False
        begin = _first_row(joined([rows for _, rows in flow.pieces]), first, _starting(link.connection))
        found = begin < sum(len(rows) for _, rows in flow.pieces)
        for data, rows in flow.pieces:
            before, part = rows[:begin], rows[begin:]
            begin = max(0, begin - len(rows))
            if len(before):
                self.unpaired.hold(flow.key, data, before)
            if len(part):
                self.replayed.append((link, data, (part[: len(part) * (1 - sender)], part[: len(part) * sender])))
        return found

    def _link(self, connection: Connection, request: ConnectionRequest | None, known_at: KnownAt) -> RcLink:
        if request is not None:
            connection.service_port = request.service_port
            connection.service_id = request.service_id
            connection.first_frame, connection.first_time = request.frame, request.time
        link = RcLink(connection, request)
        self.registry.add(known_at, connection)
        self._new.append(link)
        first, second = sorted(end.qpn for end in connection.endpoints)
        same = self._by_qpns.get((first, second), [])
        self._by_qpns[first, second] = [*same[1 - SAME_QPNS :], link]
        return link

    # Connections from the traffic

    def _pair(self, last_chance: bool) -> list[Event]:
        """Pair the flows that can be paired."""
        return self._all_inferred(self.unpaired.pairs(last_chance))

    def _give_up(self, keys: Sequence[int]) -> list[Event]:
        """Pair these flows as well as possible, or let them go on alone: they have waited long enough."""
        events = self._all_inferred(self.unpaired.partners(keys)) if keys else []
        for key in keys:
            if key in self.unpaired.flows:
                events += self._one_direction(key)
        return events

    def _all_inferred(self, pairs: Iterable[Pair]) -> list[Event]:
        return [event for pair in sorted(pairs, key=_began) for event in self._inferred(pair)]

    def _inferred(self, pair: Pair) -> list[Event]:
        active, passive = pair.active, pair.passive
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
            confidence=pair.confidence,
            evidence=pair.evidence,
            opened=False,
        )
        link = self._link(connection, known[0][2] if known[0] else None, (self._now, BY_PAIRING, _began(pair)))
        for key, sender, flow in ((to_passive, 0, active), (to_active, 1, passive)):
            # A CM exchange may have bound the flow to a later connection since.
            self._paired[key] = Binding(link, sender)
            self._disconnected_before(key, self._paired[key], flow.first_frame)
            self.bindings.bound.setdefault(key, self._paired[key])
            self.unpaired.release(key)
        self.notes.settle(self.bindings.bound)
        self._migrated(link, active, passive)
        return self._replay(link, active, passive)

    def _migrated(self, link: RcLink, active: Flow, passive: Flow) -> None:
        """Note the connection, if any, whose queue pairs and PSNs these flows continue between other addresses."""
        connection = link.connection
        qpns = [end.qpn for end in connection.endpoints]
        frame = min(active.first_frame, passive.first_frame)
        for other in self._by_qpns.get((min(qpns), max(qpns)), ()):
            if other is link or other.connection.ended_by or other.connection.migrated_to is not None:
                continue
            ends = other.connection.endpoints
            swapped = ends[0].qpn != qpns[0]
            queues = other.queues[::-1] if swapped else other.queues
            steps = [
                PSN.unwrap(queue.head, psn) - queue.head
                for queue, flow in zip(queues, (active, passive), strict=True)
                if queue.head is not None and (psn := flow.first_psn) is not None
            ]
            if steps and all(abs(step) <= MIGRATED for step in steps) and other.connection.first_frame < frame:
                before, after = [
                    (endpoints[0].address, endpoints[1].address) for endpoints in (ends, connection.endpoints)
                ]
                connection.migrated_from = PathMigration(frame, before[::-1] if swapped else before)
                other.connection.migrated_to = PathMigration(frame, after[::-1] if swapped else after)
                return

    def _replay(self, link: RcLink, active: Flow | None, passive: Flow | None) -> list[Event]:
        """Feed the packets that were held, in the batches in which they came."""
        pieces: dict[int, tuple[int, Bytes, list[Rows]]] = {}
        for sender, flow in enumerate((active, passive)):
            if flow is not None:
                link.queues[sender].begin(joined([rows for _, rows in flow.pieces]))
            for data, rows in flow.pieces if flow else []:
                slot = pieces.setdefault(id(data), (int(rows["frame"][0]), data, [rows[:0], rows[:0]]))
                before = slot[2][sender]
                slot[2][sender] = joined((before, rows)) if len(before) else rows
        events: list[Event] = []
        for _, data, sent in sorted(pieces.values(), key=itemgetter(0)):
            events += self._feed(link, data, (sent[0], sent[1]))
        return events

    def _one_direction(self, key: int) -> list[Event]:
        """Make a connection of a flow without a partner."""
        flow = self.unpaired.release(key)
        assert flow is not None
        near, far = self.addresses.name(flow.source), self.addresses.name(flow.destination)
        known = self.management.half_known.pop(key, None)
        end = known[0] if known else Endpoint(far, flow.dest_qp)
        from_active = known[1] == 1 if known else flow.requester_score >= 0
        ends = (Endpoint(near, 0), end) if from_active else (end, Endpoint(near, 0))
        connection = Connection(
            0,
            _transport(flow.pieces[0][1][0]),
            ends,
            paired_by=ONE_DIRECTION,
            confidence=0.0,
            evidence=("no packet of the other direction fits",),
            opened=False,
        )
        link = self._link(connection, known[2] if known else None, (self._now, BY_ONE_DIRECTION, flow.first_frame))
        self._disconnected_before(key, Binding(link, int(not from_active)), flow.first_frame)
        return self._replay(link, flow if from_active else None, None if from_active else flow)


def _began(pair: Pair) -> int:
    """The first frame of either flow."""
    return min(pair.active.first_frame, pair.passive.first_frame)


def _next_look(frame: int) -> int:
    """The next frame after this one at which flows are paired."""
    return max(FIRST_LOOK, 1 << frame.bit_length()) if frame < EACH_LOOK else (frame // EACH_LOOK + 1) * EACH_LOOK


def _first_row(rows: Rows, first: int, starting: Sequence[int]) -> int:
    """The first row of a flow that belongs to a connection shown by frame ``first``.

    If frames are out of order, the first packets of the connection may precede that frame.
    """
    low, behind = rows["frame"].searchsorted((first - DISORDERED, first)).tolist()
    early = rows[low:behind]
    fits = places(among(early["psn"], np.array(starting, np.uint32)))
    return int(low + fits[0] if len(fits) else behind)


def _of_request(request: ConnectionRequest, passive: Endpoint) -> Connection:
    return Connection(0, TRANSPORTS[request.transport], (request.endpoint, passive))


def _transport(row: Rows) -> str:
    """The transport of a packet, as Connection names it."""
    return TRANSPORTS[int(row["transport"])]


def _joined(parts: list[Int64s]) -> Int64s:
    if len(parts) == 1:
        return parts[0]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)
