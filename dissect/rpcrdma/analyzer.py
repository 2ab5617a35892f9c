"""The way from frames to Rpcs, incremental: feed it FrameBatches, take Rpcs as they end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Bytes
from ..frames import Clock, FrameBatch
from ..layers.oncrpc_codes import CALL, REPLY
from ..layers.rpcrdma_codes import RDMA_ERROR, RDMA_MSG, RDMA_NOMSG
from ..link.duplicates import MIRRORED
from ..link.frame_decoder import DecodedFrames, FrameDecoder
from ..named_tuple import NamedTuple
from ..onc.rpc_header import calls_back
from ..transport.connection import Connection, Link, Registry
from ..transport.health import TransportHealth
from ..transport.rc.link import RcLink
from ..transport.rc.observer import QueueRun, RcObserver
from ..transport.rc.pairing import SendEvidence, SendReader
from .conversation import Conversation
from .dispatch import Dispatcher, Undecoded
from .eviction import AFTERMATH, Evicted, overdue
from .listeners import Listener
from .machine import Machine
from .matching import MAX_OUTSTANDING, Matching
from .messages import TransportHeader
from .pending import LINGER
from .retransmission_waits import TransportWaits, charge_objects, charge_rows
from .row_batch import Event, LinkRun
from .rpc_numbers import LATE, MAX_ANSWERED, EndedRpcs, RpcNumbers
from .rpc_table import RpcRows, RpcTable
from .rpcs import HostTrouble, Rpc
from .transport_header import decode_header
from .unanswered import note_outstanding, reply_may_be_missing

if TYPE_CHECKING:
    from ..transport.iwarp.fpdus import Fpdus
    from ..transport.iwarp.observer import IwarpObserver, TcpRun
    from ..transport.iwarp.tcp_connection import TcpConnection


_ROLES = {CALL: "request", REPLY: "answer"}


def read_send(data: Bytes, start: int, end: int, length: int) -> SendEvidence | None:
    """What a Send tells about RPC: its XID, whether it is a call or a reply, and the handles that a call advertises."""
    if end - start < 8:
        return None
    header = decode_header(data, start, end, length)
    if header.version not in (1, 2):
        return None
    role = _role(header, data, start, end)
    handles: tuple[int, ...] = ()
    from_responder: bool | None = False
    if role == "request":
        written = (*header.writes, header.reply) if header.reply else header.writes
        segments = [segment for read in header.reads for segment in read.segments]
        segments += [segment for chunk in written for segment in chunk.segments]
        handles = tuple(segment.handle for segment in segments)
        from_responder = header.procedure == RDMA_MSG and calls_back(data, start + header.length, end)
    return SendEvidence(header.xid, role, handles, from_responder)


def _role(header: TransportHeader, data: Bytes, start: int, end: int) -> str:
    if header.procedure == RDMA_ERROR:
        return ""  # A client refuses replies that it cannot read.
    if header.procedure == RDMA_MSG and not header.problem and end - start >= header.length + 8:
        at = start + header.length + 4
        return _ROLES.get(int.from_bytes(data[at : at + 4].tobytes()), "")
    if header.procedure == RDMA_NOMSG and not header.problem and header.chunks:
        return "request" if header.reads else "answer" if header.reply else ""
    if header.option is not None:
        return ""  # Either end may send an option as a request to the other.
    return "" if header.direction is None else _ROLES.get(header.direction, "")


RPC_SENDS = SendReader(read_send, "XIDs")


NFS_RDMA_PORT = 20049
"""RFC 8267, 8."""
SWEEP = 1_000_000_000
"""Nanoseconds between two checks of everything that may have waited long enough."""
MAX_LEAVING = 1 << 14
"""Evicted conversations kept until they are asked for."""


class Options(NamedTuple):
    """Settings for what the traffic alone does not tell."""

    ports: frozenset[int] = frozenset({NFS_RDMA_PORT})
    """Service ports that carry RPC-over-RDMA."""
    force: bool = False
    """Treat every connection as RPC-over-RDMA."""
    contents: bool = True
    """Keep the payload references of finished Rpcs; otherwise they are dropped when an Rpc ends."""
    icrc: bool = False
    """``Analyzer.health`` counts wrong invariant CRCs even of hosts that never send a right one."""
    outstanding: int = MAX_OUTSTANDING
    """Unanswered calls that are kept, per connection and direction."""
    answered: int = MAX_ANSWERED
    """XIDs of answered calls that are kept, per connection and direction."""
    ended: int = 4096
    """Ended connections that are reported one by one; for older ones only sums are kept."""
    max_connections: int = 1 << 14
    """Connections in all; beyond that those that were silent the longest are evicted."""
    max_addresses: int = 0
    """Host addresses that are kept, per transport; 0: all."""


class Analyzer:
    """Carries all state from batch to batch.  No input makes it raise."""

    traced = ""
    """Host whose kernel's trace is analysed, 'client' or 'server'; '' for frames."""

    def __init__(
        self, options: Options | None = None, listener: Callable[[Conversation], Listener | None] | None = None
    ) -> None:
        """``listener``: makes the Listener of a new conversation, or returns None for none."""
        self.listener = listener
        self.options = options or Options()
        self.decoder = FrameDecoder(self.options.max_addresses)
        self.addresses = self.decoder.addresses
        self.frames = 0
        self.truncated_frames = 0
        """Frames that the capture truncated."""
        self.dropped_frames = 0
        """Frames that the capture says it lost: at the interface, or for want of memory."""
        self.time_steps: set[int] = set()
        """Resolutions of the capture's time stamps in nanoseconds, as it says."""
        self.packets = 0
        self.skipped: Counter[str] = Counter()
        """Frames that are not RDMA packets, by what they are."""
        self.first_time: int | None = None
        """Nanoseconds since the epoch: start of the first batch, from which times are counted.  None before any
        frame."""
        self.earliest_time: int | None = None
        self.last_time: int | None = None
        """The earliest and the latest time of all frames, ns."""
        self.clock: Clock | None = None
        self._now = 0
        """Time of the last frame, ns."""
        self._data: Bytes = np.empty(0, np.uint8)
        """The bytes of the last batch."""
        self.troubles: list[HostTrouble] = []
        """Troubles of the hosts, if traces of their kernels are read."""
        self.connections: list[Connection] = []
        """The connections that were not evicted, in order of appearance."""
        self.evicted = Evicted()
        self._leaving: list[Conversation] = []
        self._conversations: dict[int, Conversation] = {}
        """By connection number; made when first needed."""
        self._registry = Registry(self.connections)
        self._observer = RcObserver(self.addresses, self._registry, self.options.ports, self.options.icrc, RPC_SENDS)
        self._iwarp: IwarpObserver | None = None
        self._watch_fpdus: Callable[[TcpConnection, int, Fpdus], None] | None = None
        self._swept = 0
        self._dispatchers: dict[int, Dispatcher] = {}
        self._unsettled: dict[int, Dispatcher] = {}
        """Dispatchers with something to settle after the last batch, or with events since."""
        self._numbers = RpcNumbers()
        self._machine = Machine(self._dispatcher, self._open_since)
        self._done = EndedRpcs(self._numbers)

    def watch_fpdus(self, watch: Callable[[TcpConnection, int, Fpdus], None]) -> None:
        """Call ``watch`` with the FPDUs, and their direction, of every iWARP connection that begins from now on."""
        self._watch_fpdus = watch
        if self._iwarp is not None:
            self._iwarp.listener = watch

    @property
    def conversations(self) -> list[Conversation]:
        """The conversation on each of ``connections``, whatever its protocol."""
        return [self.conversation(connection) for connection in self.connections]

    def conversation(self, connection: Connection) -> Conversation:
        """The conversation on ``connection``."""
        conversation = self._conversations.get(connection.number)
        if conversation is None:
            conversation = self._conversations[connection.number] = Conversation(connection)
        return conversation

    def number_behind(self, connections: int, rpcs: int) -> None:
        """Number connections and RPCs after these; to be called before the first batch."""
        self._registry.last, self._numbers.last = connections, rpcs

    @property
    def connections_so_far(self) -> int:
        """Number of connections, including evicted ones."""
        return len(self.connections) + self.evicted.connections

    @property
    def iwarp(self) -> IwarpObserver | None:
        """The observer of TCP; None before any TCP was seen."""
        return self._iwarp

    @property
    def mirrored(self) -> int:
        """Packets left out because a mirror of two ports, or a merge of two captures, has them twice."""
        return self.skipped[MIRRORED]

    @property
    def other_packets(self) -> Counter[str]:
        """Packets of transport services other than Reliable Connection, by name."""
        return self._observer.other

    @property
    def undecoded(self) -> list[Undecoded]:
        """What could not be decoded on RPC-over-RDMA connections, by frame."""
        return sorted(note for dispatcher in self._dispatchers.values() for note in dispatcher.undecoded)

    @property
    def unplaced(self) -> dict[int, int]:
        """By connection number: RDMA Reads and Writes on memory that no captured call advertised."""
        return {
            number: dispatcher.matching.unplaced_count
            for number, dispatcher in sorted(self._dispatchers.items())
            if dispatcher.matching.unplaced_count
        }

    def outstanding(self) -> Iterator[Rpc]:
        """Calls without a reply so far; their names are not decoded yet."""
        self._machine.open_as_objects(self._numbers)
        for dispatcher in self._dispatchers.values():
            for direction in dispatcher.matching.directions:
                for rpcs in direction.calls.values():
                    yield from rpcs

    def unanswered(self, before: int) -> Iterator[Rpc]:
        """Outstanding calls from before time ``before`` (ns) whose reply the capture cannot have missed."""
        for rpc in self.outstanding():
            if rpc.first_time < before and not reply_may_be_missing(rpc):
                yield rpc

    def health(self, number: int) -> TransportHealth:
        """The transport health of connection ``number`` so far."""
        if self._iwarp is not None and number in self._iwarp.connections:
            return self._iwarp.connections[number].transport_health()
        notes = self._observer.notes
        notes.settle(self._observer.bindings.bound)
        health = self._observer.links[number].health
        return health.result(self.end_of(health.connection.last_frame), notes.verified)

    def rnr_naks(self, number: int) -> int:
        """Number of RNR NAKs on connection ``number``."""
        link = self._observer.links.get(number)
        return sum(queue.rnr_count for queue in link.health.retransmissions) if link is not None else 0

    def end_of(self, frame: int) -> int:
        """The end of the capture, ns, by the capture's clock as it runs from ``frame`` on."""
        return self.clock.end(frame) if self.clock is not None else self.last_time or 0

    def feed(self, batch: FrameBatch) -> list[Rpc]:
        """Take a batch; returns the Rpcs that ended in it."""
        return [*self.feed_table(self.decoder.take(batch))] if len(batch) else []

    def feed_table(self, decoded: DecodedFrames) -> RpcTable:
        """``feed`` for a batch that a ``FrameDecoder`` with this Analyzer's addresses decoded; returns a table."""
        batch, packets = decoded.batch, decoded.packets
        self._data = batch.data
        self.frames += len(batch)
        self.truncated_frames += int(np.count_nonzero(batch.rows["captured"] < batch.rows["original"]))
        times = batch.rows["time"]
        clock, low, high = Clock.of(batch.rows["number"], times), int(times.min()), int(times.max())
        if self.first_time is None or self.earliest_time is None or self.last_time is None:
            self.first_time, self.earliest_time, self.last_time = low, low, high
        # A capture of several interfaces may have their frames one interface after the other.
        self.earliest_time, self.last_time = min(self.earliest_time, low), max(self.last_time, high)
        self.clock = clock if self.clock is None else self.clock.then(clock)
        self._now = clock.last
        self.packets += len(packets)
        self.skipped.update(packets.skipped)
        queues: list[QueueRun] = []
        runs: list[LinkRun] = []
        events: list[Event] = []
        if len(decoded.segments):
            events += self._feed_iwarp(decoded, runs)
        of_both = bool(events)
        frame = int(batch.rows["number"][-1])
        events += self._observer.feed(packets, queues, frame)
        if of_both:
            events.sort(key=itemgetter(0))
        if self._iwarp is not None:
            self._iwarp.number()
            self._count_iwarp()
        self._observer.number()
        rows = self._machine.take(batch.data, [*runs, *queues], events, self._numbers)
        self._unsettled = {
            number: dispatcher for number, dispatcher in self._unsettled.items() if dispatcher.matching.waiting
        }
        for number, dispatcher in sorted(self._unsettled.items()):
            self._numbers.place = LATE + number
            dispatcher.matching.settle(self._now, frame, self._open_since(dispatcher))
        return RpcTable.joined(self._collect(rows), self._evict())

    def tick(self, now: int) -> list[Rpc]:
        """Release what need not wait longer at time ``now`` (ns since the epoch); nothing older will be fed.

        To be called regularly while frames come from a network, which may be silent.
        """
        if now - self._swept >= SWEEP:
            self._swept = now
            events: list[Event] = [*self._observer.idle(now), *(self._iwarp.idle(now) if self._iwarp else ())]
            self._take(sorted(events, key=itemgetter(0)))
            for dispatcher in self._dispatchers.values():
                dispatcher.matching.detach(now - LINGER)
                connection = dispatcher.conversation.connection
                if connection.ended_by and now - connection.last_time >= AFTERMATH:
                    dispatcher.finish()
        for dispatcher in self._dispatchers.values():
            if dispatcher.matching.waiting:
                dispatcher.matching.idle(now, self._open_since(dispatcher))
        return [*self._collect(), *self._evict()]

    def evicted_since(self) -> list[Conversation]:
        """The conversations evicted since the last call; none of their Rpcs is still to come."""
        leaving, self._leaving = self._leaving, []
        return leaving

    @property
    def unpaired_flows(self) -> int:
        """Number of flows that wait for the flow in the other direction."""
        return len(self._observer.unpaired.flows)

    def keep_fewer(self, connections: int, ended: int, flows: int) -> None:
        """Set new limits: ``Options.max_connections``, ``Options.ended``, and unpaired flows."""
        self.options = self.options._replace(max_connections=connections, ended=ended)
        self._observer.max_flows = flows

    def _calling(self, connection: Connection) -> bool:
        """Whether a connection has open calls."""
        dispatcher = self._dispatchers.get(connection.number)
        return dispatcher is not None and dispatcher.matching.outstanding > 0

    def _evict(self) -> Sequence[Rpc]:
        """Evict connections so that memory stays bounded; returns the Rpcs that this ended."""
        options = self.options
        chosen = overdue(self.connections, self._now, options.ended, options.max_connections, self._calling)
        if not chosen:
            return []
        numbers = {connection.number for connection in chosen}
        iwarp = self._iwarp
        events: list[Event] = [
            *self._observer.finish_links(numbers),
            *(iwarp.finish_connections(numbers) if iwarp else ()),
        ]
        self._take(sorted(events, key=itemgetter(0)))
        evicted: list[Conversation] = []
        for connection in chosen:
            conversation = self.conversation(connection)
            dispatcher = self._dispatchers.pop(connection.number, None)
            self._unsettled.pop(connection.number, None)
            undecoded = unplaced = calls = 0
            if dispatcher is not None:
                calls = dispatcher.matching.outstanding
                dispatcher.finish()
                undecoded, unplaced = len(dispatcher.undecoded), dispatcher.matching.unplaced_count
            self.evicted.add(conversation, undecoded, unplaced, calls)
            del self._conversations[connection.number]
            evicted.append(conversation)
        done = self._collect()
        self._observer.drop(numbers)
        if iwarp is not None:
            iwarp.drop(numbers)
        self.connections[:] = [connection for connection in self.connections if connection.number not in numbers]
        self._leaving = [*self._leaving, *evicted][-MAX_LEAVING:]
        return done

    def _feed_iwarp(self, decoded: DecodedFrames, runs: list[LinkRun]) -> Sequence[Event]:
        """The events of iWARP connections, which have no numbers yet."""
        observer = self._iwarp
        if observer is None:
            # Most captures have no TCP, so load iWARP only when needed.
            from ..transport.iwarp.observer import IwarpObserver
            from .records import PORTS, RPC_RECORDS

            observer = self._iwarp = IwarpObserver(
                self._registry, self.options.ports, self.decoder.tcp_addresses, RPC_SENDS, RPC_RECORDS, PORTS
            )
            observer.listener = self._watch_fpdus
        made: list[TcpRun] = []
        events = observer.feed(decoded.batch.data, decoded.segments, made, numbered=False)
        runs += made
        return events

    def _count_iwarp(self) -> None:
        """Count newly recognised iWARP as RDMA; a connection may be recognised only at its end."""
        if self._iwarp is None:
            return
        packets, segments = self._iwarp.uncounted()
        self.packets += packets
        for (_, unknown), count in segments.items():
            self.skipped[unknown] -= count
        self.skipped = +self.skipped

    def finish(self) -> list[Rpc]:
        """Release the rest: the input is over."""
        return [*self.finish_table()]

    def finish_table(self) -> RpcTable:
        """``finish``, as a table."""
        events: list[Event] = [*self._observer.finish(), *(self._iwarp.finish() if self._iwarp else ())]
        self._count_iwarp()
        events.sort(key=itemgetter(0))
        rows = self._machine.take(self._data, [], events, self._numbers)
        self._machine.open_as_objects(self._numbers)
        for number, dispatcher in sorted(self._dispatchers.items()):
            self._numbers.place = LATE + number
            dispatcher.finish()
            dispatcher.matching.release()
        return self._collect(rows)

    def _take(self, events: Sequence[Event]) -> None:
        self._count_iwarp()
        self._machine.take_singly(events, self._numbers)

    def _dispatcher(self, link: Link) -> Dispatcher:
        connection = link.connection
        assert connection is not None
        dispatcher = self._dispatchers.get(connection.number)
        if dispatcher is None:
            options, conversation = self.options, self.conversation(connection)
            matching = Matching(conversation, self._numbers, self._done, options.outstanding, options.answered)
            if self.listener is not None:
                matching.listener = self.listener(conversation)
            dispatcher = Dispatcher(conversation, matching, options.ports, options.force)
            self._dispatchers[connection.number] = dispatcher
        self._unsettled[connection.number] = dispatcher
        return dispatcher

    def _open_since(self, dispatcher: Dispatcher) -> Sequence[int | None]:
        """By endpoint, the first frame of a message that is still incomplete; None for none."""
        number = dispatcher.conversation.connection.number
        link: RcLink | TcpConnection | None = self._observer.links.get(number)
        if link is None and self._iwarp is not None:
            link = self._iwarp.connections.get(number)
        return (None, None) if link is None else (link.open_since(0), link.open_since(1))

    def _collect(self, rows: RpcRows | None = None) -> RpcTable:
        """The Rpcs that ended since the last call; ``rows``: those that are not objects."""
        done, places = self._done.take()
        links = self._observer.links
        iwarp = self._iwarp.connections if self._iwarp else {}

        def health(number: int) -> TransportWaits:
            return links[number].health if number in links else iwarp[number].health

        ended: dict[int, list[Rpc]] = {}
        for rpc in done:
            ended.setdefault(rpc.connection.number, []).append(rpc)
        for number, rpcs in ended.items():
            charge_objects(rpcs, rpcs[0].connection, health(number))
        note_outstanding(done, self.connections, self.end_of)
        if rows is not None:
            charge_rows(rows, health)
        if not self.options.contents:
            for rpc in done:
                drop_contents(rpc)
            if rows is not None:
                rows.drop_contents()
        return RpcTable.of_ended(done, rows, places)


_NOTHING = memoryview(b"")


def drop_contents(rpc: Rpc) -> None:
    """Free the payloads of an RPC's Operations."""
    for message in (rpc.call, rpc.reply):
        if message is not None:
            message.operation.payload.drop()
            message.data = _NOTHING
    for chunk in rpc.chunks:
        for use in chunk.segments:
            for operation in use.operations:
                operation.payload.drop()
    for operation in rpc.claimed:
        operation.payload.drop()
