"""The verbs of this machine's RDMA devices, through pyverbs and librdmacm.

Each connection has an asynchronous identifier with an event channel, because only the events of the connection manager
carry the peer's private data.  Queue pairs, completion queues and memory are made here, on a device context of the
connection's own.  pyverbs does not expose the file descriptors of its channels: they are looked up in /proc/self/fd,
and one ``select`` waits for all of them.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pyverbs.cm_enums as cm
import pyverbs.enums as ib
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from .interface import (
    MAX_SENDS,
    SEND_BUFFERS,
    SEND_SIZE,
    ConnectionLost,
    ConnectionParameters,
    ConnectRequested,
    Depths,
    Event,
    LinkLost,
    MessageReceived,
    OutgoingWork,
    PeerAddress,
    RdmaFinished,
    RegisteredMemory,
    VerbsError,
    is_iwarp,
    listening_addresses,
    local_address,
    new_descriptor,
    readable,
    resolve,
    source_of,
)

_RETRIES = 7
"""How often a device retransmits a packet that nothing acknowledges: the most that three bits can say."""
_RNR_RETRIES = 6
"""How often a device repeats a Send for which the peer has no Receive posted; 7 would mean for ever."""
_BACKLOG = 64
_REQUEST_PRIVATE_DATA = 56
_REPLY_PRIVATE_DATA = 196

_REFUSALS = {
    cm.RDMA_CM_EVENT_ADDR_ERROR: "no RDMA device leads there",
    cm.RDMA_CM_EVENT_ROUTE_ERROR: "no route",
    cm.RDMA_CM_EVENT_CONNECT_ERROR: "the connection failed",
    cm.RDMA_CM_EVENT_UNREACHABLE: "unreachable, or it does not answer",
    cm.RDMA_CM_EVENT_REJECTED: "refused: nothing listens on that port, or it takes no more connections",
    cm.RDMA_CM_EVENT_DISCONNECTED: "disconnected while connecting",
    cm.RDMA_CM_EVENT_DEVICE_REMOVAL: "the device was removed",
}


class EventChannel:
    """An event channel of the connection manager, read without blocking."""

    def __init__(self) -> None:
        try:
            with new_descriptor("rdma_cm") as descriptors:
                self.channel = CMEventChannel()
        except PyverbsError as error:
            raise VerbsError(f"the connection manager cannot be reached: {error}") from None
        self.descriptor = descriptors[0]
        os.set_blocking(self.descriptor, False)

    def next(self) -> Any | None:
        """The next event, which the caller has to acknowledge; None where none is waiting."""
        if not readable([self.descriptor], 0):
            return None
        try:
            return CMEvent(self.channel)
        except PyverbsError:
            return None  # one that librdmacm keeps to itself

    def close(self) -> None:
        self.channel.close()


class DeviceRequest:
    """A connection request from a peer, which waits for ``accept`` or ``reject`` (``interface.Request``)."""

    def __init__(self, verbs: RdmaCm, identifier: Any, device: str, private_data: bytes) -> None:
        self.private_data = private_data
        self.peer = ""
        self._verbs = verbs
        self._identifier = identifier
        self._device = device

    def accept(self, terms: ConnectionParameters) -> QueuePair:
        link: QueuePair | None = None
        try:
            link = QueuePair(self._verbs, self._device, self._identifier, terms, self.peer)
            link.private_data = self.private_data
            link.ready()
            self._identifier.accept(_parameters(link, terms, _REPLY_PRIVATE_DATA))
        except PyverbsError as error:
            if link is not None:
                link.close()
            else:
                self.reject()
            raise VerbsError(f"cannot accept a connection: {refused(error)}") from None
        self._verbs.links.append(link)
        return link

    def reject(self) -> None:
        with suppress(PyverbsError):
            self._identifier.reject()
        with suppress(PyverbsError):
            self._identifier.close()


class PortListener:
    def __init__(self, device: str, address: str, port: int) -> None:
        self.device = device
        self.events = EventChannel()
        self.identifier = CMID(creator=self.events.channel)
        where = AddrInfo(src=address, src_service=str(port), port_space=cm.RDMA_PS_TCP, flags=cm.RAI_PASSIVE)
        self.identifier.bind_addr(where)
        self.identifier.listen(_BACKLOG)

    def close(self) -> None:
        with suppress(PyverbsError):
            self.identifier.close()
        self.events.close()


class RdmaCm:
    """The implementation of ``interface.Verbs`` for the devices of this machine."""

    def __init__(self) -> None:
        self.links: list[QueuePair] = []
        self._listeners: list[PortListener] = []
        self._ready: deque[Event] = deque()

    def now(self) -> int:
        return time.monotonic_ns()

    def connect(self, target: PeerAddress, terms: ConnectionParameters, deadline: int) -> QueuePair:
        peer = resolve(target.host, target.port, target.family)
        source = target.source or (source_of(target.device, peer) if target.device else None)
        events = EventChannel()
        identifier = CMID(creator=events.channel)
        link: QueuePair | None = None
        try:
            where = AddrInfo(src=source, dst=peer, dst_service=str(target.port), port_space=cm.RDMA_PS_TCP)
            identifier.resolve_addr(where, self._milliseconds(deadline))
            self._expect(events, cm.RDMA_CM_EVENT_ADDR_RESOLVED, target, deadline)
            identifier.resolve_route(self._milliseconds(deadline))
            self._expect(events, cm.RDMA_CM_EVENT_ROUTE_RESOLVED, target, deadline)
            device = _text(identifier.dev_name)
            if target.device not in (None, device):
                raise VerbsError(f"{target}: the way there leads through {device}, not {target.device}")
            link = QueuePair(self, device, identifier, terms, str(target))
            link.events = events
            link.local = source or local_address(peer)
            identifier.connect(_parameters(link, terms, _REQUEST_PRIVATE_DATA))
            kind, link.private_data = self._expect(
                events, (cm.RDMA_CM_EVENT_CONNECT_RESPONSE, cm.RDMA_CM_EVENT_ESTABLISHED), target, deadline
            )
            link.ready()
            if kind == cm.RDMA_CM_EVENT_CONNECT_RESPONSE:
                identifier.establish()
        except (PyverbsError, VerbsError) as error:
            if link is not None:
                link.close()
            else:
                identifier.close()
                events.close()
            if isinstance(error, VerbsError):
                raise
            refused_there = getattr(error, "error_code", 0) == errno.ECONNREFUSED
            why = _REFUSALS[cm.RDMA_CM_EVENT_REJECTED] if refused_there else refused(error)
            raise VerbsError(f"{target}: {why}") from None
        self.links.append(link)
        return link

    def listen(self, target: PeerAddress) -> list[str]:
        listening: list[str] = []
        problems: list[str] = []
        for device, address in listening_addresses(target.device, target.source):
            try:
                self._listeners.append(PortListener(device, address, target.port))
                listening.append(f"{PeerAddress(address, target.port)} {device}")
            except PyverbsError as error:
                problems.append(f"{PeerAddress(address, target.port)}: {error}")
        if not listening:
            raise VerbsError("cannot listen: " + ("; ".join(problems) or "no address to listen at"))
        return listening

    def poll(self, deadline: int) -> Event | None:
        self.until(lambda: bool(self._ready), deadline)
        return self._ready.popleft() if self._ready else None

    def until(self, done: Callable[[], bool], deadline: int) -> None:
        """Collect events until ``done`` is true or the monotonic clock reaches ``deadline``, in nanoseconds."""
        while True:
            self._look()
            if done() or self.now() >= deadline:
                return
            for link in self.links:
                link.arm()
            self._look()  # what came before it was armed
            if done():
                return
            self._sleep(max(0, deadline - self.now()))

    def forget(self, link: QueuePair) -> None:
        if link in self.links:
            self.links.remove(link)

    def close(self) -> None:
        for link in list(self.links):
            link.close()
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def _milliseconds(self, deadline: int) -> int:
        return max(1, (deadline - self.now()) // 1_000_000)

    def _expect(
        self, events: EventChannel, wanted: int | tuple[int, ...], target: PeerAddress, deadline: int
    ) -> tuple[int, bytes]:
        """Wait for the next event of a connection that is being made; returns its type and private data.

        Raises VerbsError where the event is none of ``wanted``, or there is none before ``deadline``.
        """
        while (event := events.next()) is None:
            left = deadline - self.now()
            if left <= 0:
                raise VerbsError(f"{target}: no answer in time while connecting")
            readable([events.descriptor], left)
        kind, data = event.event_type, bytes(event.private_data or b"")
        event.ack_cm_event()
        if kind not in (wanted if isinstance(wanted, tuple) else (wanted,)):
            raise VerbsError(f"{target}: {_REFUSALS.get(kind, f'connection manager event {kind}')}")
        return kind, data

    def _look(self) -> None:
        """Collect the events that are waiting, of all connections and listeners."""
        for link in list(self.links):
            self._ready.extend(link.completions())
            while link.events is not None and (event := link.events.next()) is not None:
                kind = event.event_type
                event.ack_cm_event()
                if kind in (cm.RDMA_CM_EVENT_DISCONNECTED, cm.RDMA_CM_EVENT_DEVICE_REMOVAL):
                    self._gone(link, kind)
        for listener in self._listeners:
            while (event := listener.events.next()) is not None:
                self._listened(listener, event)

    def _listened(self, listener: PortListener, event: Any) -> None:
        kind = event.event_type
        if kind == cm.RDMA_CM_EVENT_CONNECT_REQUEST:
            data = bytes(event.private_data or b"")
            identifier = CMID(creator=event, listen_id=listener.identifier)
            event.ack_cm_event()
            self._ready.append(ConnectRequested(DeviceRequest(self, identifier, listener.device, data)))
            return
        event.ack_cm_event()
        if kind in (cm.RDMA_CM_EVENT_DISCONNECTED, cm.RDMA_CM_EVENT_DEVICE_REMOVAL):
            # The event does not say whose it is.
            for link in [link for link in self.links if link.events is None and link.closing()]:
                self._gone(link, kind)

    def _gone(self, link: QueuePair, kind: int) -> None:
        removed = kind == cm.RDMA_CM_EVENT_DEVICE_REMOVAL
        lost = link.lose("the device was removed" if removed else "the peer disconnected")
        if lost is not None:
            self._ready.append(lost)

    def _sleep(self, nanoseconds: int) -> None:
        channels = {link.descriptor: link for link in self.links}
        others = [link.events.descriptor for link in self.links if link.events is not None]
        others += [listener.events.descriptor for listener in self._listeners]
        for descriptor in readable([*channels, *others], nanoseconds):
            if descriptor in channels:
                channels[descriptor].woken()


def _parameters(link: QueuePair, terms: ConnectionParameters, room: int) -> Any:
    data = terms.private_data[:room]
    parameters = ConnParam(
        resources=link.reads,
        depth=link.reads,
        retry=_RETRIES,
        rnr_retry=_RNR_RETRIES,
        qp_num=link.number,
        data_len=len(data),
    )
    if data:
        parameters.set_private_data(data)
    return parameters


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


_FIRST_WORK = 1 << 20
"""Work requests with lower numbers are Receives, whose number is that of their buffer."""
_KERNEL_WITH_INVALIDATE = 4
"""The kernel's flag for Send With Invalidate, which rxe passes on unchanged.  In user space the same bit means
something else, but for datagrams only."""
_BIND_TIME = 2_000_000_000
_SETTLING = 0.05
"""Seconds.  Linux's siw sends its MPA reply, then begins to listen to the socket, and does not look at what received in
between until more comes (siw_accept): a Send right behind the reply may never be read."""

_ACCESS = ib.IBV_ACCESS_LOCAL_WRITE | ib.IBV_ACCESS_REMOTE_READ | ib.IBV_ACCESS_REMOTE_WRITE
_STATUSES = {
    ib.IBV_WC_LOC_LEN_ERR: "a message was longer than the Receive",
    ib.IBV_WC_LOC_QP_OP_ERR: "this device ended the connection",
    ib.IBV_WC_LOC_PROT_ERR: "local protection error",
    ib.IBV_WC_WR_FLUSH_ERR: "the peer ended the connection",
    ib.IBV_WC_REM_INV_REQ_ERR: "the peer reports an invalid request",
    ib.IBV_WC_REM_ACCESS_ERR: "the peer reports a remote access error",
    ib.IBV_WC_REM_OP_ERR: "the peer reports an operational error",
    ib.IBV_WC_RETRY_EXC_ERR: "the peer no longer acknowledges",
    ib.IBV_WC_RNR_RETRY_EXC_ERR: "the peer has no Receive posted",
}


def refused(error: Exception) -> str:
    """Why the kernel refused a request, in words; with a hint where a limit of locked memory is the reason."""
    if getattr(error, "error_code", 0) == errno.ENOMEM:
        return "no memory may be locked for it ('ulimit -l' says how much)"
    return str(error)


class DeviceMemory:
    """Memory that the peer may access under ``handle``: the R_key of a memory window where one is bound to it, else of
    the region itself."""

    def __init__(self, region: Any, handle: int, window: Any = None) -> None:
        self.region = region
        self.handle = handle
        self.bound = window
        self.address = int(region.buf)
        self.length = int(region.length)

    def fetch(self, at: int, length: int) -> bytes:
        return bytes(self.region.read(length, at))

    def store(self, at: int, data: bytes) -> None:
        self.region.write(data, len(data), at)

    def close(self) -> None:
        with suppress(PyverbsError):  # a window that the peer invalidated, or a device that is gone
            (self.bound or self.region).close()


class QueuePair:
    """One connection on one device, with its queue pair (``interface.VerbsConnection``)."""

    def __init__(
        self, verbs: RdmaCm, device: str, identifier: Any, parameters: ConnectionParameters, peer: str
    ) -> None:
        self.device = device
        self.local = ""
        self.peer = peer
        self.private_data = b""
        self.depths = Depths()
        self.identifier = identifier
        self.events: Any = None
        """The event channel of this connection; None where the connection was accepted: its events come to the
        listener's channel."""
        self._verbs = verbs
        self._number = _FIRST_WORK
        self._work: dict[int, tuple[int, Callable[[], Event | None]]] = {}
        """By number of the work request: the bytes registered for it, and what to call when it completes."""
        self._outgoing = OutgoingWork()
        self._memory: list[DeviceMemory] = []
        self._lost = ""
        self._closed = False
        self._context = Context(name=device)
        limits = self._context.query_device()
        self.reads = max(1, min(parameters.reads, limits.max_qp_rd_atom, limits.max_qp_init_rd_atom, 255))
        self._windows = bool(
            limits.device_cap_flags & (ib.IBV_DEVICE_MEM_WINDOW_TYPE_2A | ib.IBV_DEVICE_MEM_WINDOW_TYPE_2B)
        )
        self._domain = PD(self._context)
        with new_descriptor("infinibandevent") as descriptors:
            self._channel = CompChannel(self._context)
        self.descriptor = descriptors[0]
        self._queue = CQ(self._context, parameters.receives + MAX_SENDS + 8, None, self._channel, 0)
        capacity = QPCap(max_send_wr=MAX_SENDS, max_recv_wr=parameters.receives, max_send_sge=1, max_recv_sge=1)
        wanted = QPInitAttr(qp_type=ib.IBV_QPT_RC, scq=self._queue, rcq=self._queue, cap=capacity)
        self._pair = QP(self._domain, wanted, QPAttr())
        self.number = int(self._pair.qp_num)
        self._receive_size = parameters.receive_size
        self._receives = MR(self._domain, parameters.receives * parameters.receive_size, ib.IBV_ACCESS_LOCAL_WRITE)
        self._sends = MR(self._domain, SEND_BUFFERS * SEND_SIZE, ib.IBV_ACCESS_LOCAL_WRITE)
        self._free = list(range(SEND_BUFFERS))
        self.step(ib.IBV_QPS_INIT)
        for slot in range(parameters.receives):
            self._post_receive(slot)

    def step(self, state: int) -> Any:
        """Bring the queue pair into ``state`` (INIT, RTR or RTS) with the attributes that the connection manager
        gives."""
        attributes, mask = self.identifier.init_qp_attr(state)
        self._pair.modify(attributes, mask)
        return attributes, mask

    def ready(self) -> None:
        """Bring the queue pair to RTR and RTS, and note the depths of outstanding Reads that are in force."""
        if not is_iwarp(self.device):
            self.step(ib.IBV_QPS_INIT)  # again: what the peer may access is known only now
        to_receive, receive_mask = self.step(ib.IBV_QPS_RTR)
        to_send, send_mask = self.step(ib.IBV_QPS_RTS)
        self.depths = Depths(
            to_receive.max_dest_rd_atomic if receive_mask & ib.IBV_QP_MAX_DEST_RD_ATOMIC else None,
            to_send.max_rd_atomic if send_mask & ib.IBV_QP_MAX_QP_RD_ATOMIC else None,
        )

    def settle(self) -> None:
        if is_iwarp(self.device):
            time.sleep(_SETTLING)

    def register(self, length: int) -> DeviceMemory:
        access = _ACCESS | (ib.IBV_ACCESS_MW_BIND if self._windows else 0)
        region = self._region(length, access)
        memory = DeviceMemory(region, int(region.rkey))
        self._memory.append(memory)
        return memory

    def window(self, memory: RegisteredMemory) -> DeviceMemory | None:
        if not self._windows or not isinstance(memory, DeviceMemory):
            return None
        bound: list[bool] = []
        access = ib.IBV_ACCESS_REMOTE_READ | ib.IBV_ACCESS_REMOTE_WRITE
        try:
            window = MW(self._domain, ib.IBV_MW_TYPE_2)
        except PyverbsError:
            return None
        request = SendWR(self._next(lambda: bound.append(True)), opcode=ib.IBV_WR_BIND_MW)
        request.set_bind_wr(window, MWBindInfo(memory.region, memory.address, memory.length, access))
        self._outgoing.submit(0, lambda: self._post(request))
        self._verbs.until(lambda: bool(bound) or self.gone, self._verbs.now() + _BIND_TIME)
        if not bound:
            return None
        view = DeviceMemory(memory.region, int(request.rkey), window)
        self._memory.append(view)
        return view

    def release(self, memory: RegisteredMemory) -> None:
        if isinstance(memory, DeviceMemory) and memory in self._memory:
            self._memory.remove(memory)
            memory.close()

    def send(self, data: bytes, invalidate: int | None = None) -> None:
        def start(number: int) -> None:
            if len(data) <= SEND_SIZE and self._free:
                slot = self._free.pop()
                region, at = self._sends, slot * SEND_SIZE
                self._work[number] = 0, lambda: self._free.append(slot)
            else:
                region, at = self._region(len(data), ib.IBV_ACCESS_LOCAL_WRITE), 0
                self._work[number] = 0, region.close
            region.write(data, len(data), at)
            segment = SGE(region.buf + at, len(data), region.lkey)
            if invalidate is None:
                self._post(SendWR(number, opcode=ib.IBV_WR_SEND, num_sge=1, sg=[segment]))
            else:
                opcode = ib.IBV_WR_SEND_WITH_INV
                self._post(SendWR(number, opcode=opcode, num_sge=1, sg=[segment], imm_data=invalidate))

        self._submit(0, start)

    def read(self, handle: int, address: int, length: int) -> int:
        return self._rdma(ib.IBV_WR_RDMA_READ, handle, address, length)

    def write(self, handle: int, address: int, data: bytes) -> int:
        return self._rdma(ib.IBV_WR_RDMA_WRITE, handle, address, len(data), data)

    @property
    def gone(self) -> bool:
        return self._closed or bool(self._lost)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with suppress(PyverbsError):  # the peer may have been faster
            self.identifier.disconnect()
        # Windows first: one holds its queue pair and its memory.
        windows = [memory for memory in self._memory if memory.bound]
        regions = [memory for memory in self._memory if not memory.bound]
        parts = (self._receives, self._sends, self._queue, self._channel, self._domain, self._context)
        for part in (*windows, self._pair, *regions, *parts):
            with suppress(PyverbsError):
                part.close()
        with suppress(PyverbsError):
            self.identifier.close()
        if self.events is not None:
            self.events.channel.close()
        self._verbs.forget(self)

    def lose(self, reason: str) -> ConnectionLost | None:
        """Note that the connection is gone; returns the event to report, None where it was reported before."""
        if self._lost or self._closed:
            return None
        self._lost = reason
        return ConnectionLost(self, reason)

    def closing(self) -> bool:
        """Whether the connection manager has left the established state, or the queue pair is in the error state."""
        try:
            self.identifier.init_qp_attr(ib.IBV_QPS_RTS)
            attributes, _ = self._pair.query(ib.IBV_QP_STATE)
        except PyverbsError:
            return True
        return bool(attributes.qp_state == ib.IBV_QPS_ERR)

    def completions(self) -> Iterator[Event]:
        """The events of all work completions that are waiting in the completion queue."""
        while not self._closed:
            _, completions = self._queue.poll(16)
            if not completions:
                return
            now = self._verbs.now()
            for completion in completions:
                event = self._completed(completion, now)
                if event is not None:
                    yield event

    def arm(self) -> None:
        self._queue.req_notify()

    def woken(self) -> None:
        """Take the notification that made the completion channel readable."""
        self._channel.get_cq_event(self._queue)
        self._queue.ack_events(1)

    def _completed(self, completion: Any, now: int) -> Event | None:
        if completion.status != ib.IBV_WC_SUCCESS:
            self._work.pop(completion.wr_id, None)
            return self.lose(_STATUSES.get(completion.status, f"work completion status {completion.status}"))
        if completion.wr_id >= _FIRST_WORK:
            size, done = self._work.pop(completion.wr_id)
            event = done()
            try:
                self._outgoing.finished(size)
            except VerbsError as error:
                return self.lose(str(error))
            return event
        data = bytes(self._receives.read(completion.byte_len, completion.wr_id * self._receive_size))
        self._post_receive(completion.wr_id)
        invalidated: int | None = None
        if completion.wc_flags & ib.IBV_WC_WITH_INV or (
            completion.wc_flags & _KERNEL_WITH_INVALIDATE
            and any(completion.imm_data == memory.handle for memory in self._memory)
        ):
            invalidated = int(completion.imm_data)
        return MessageReceived(self, data, invalidated, now)

    def _post_receive(self, slot: int) -> None:
        segment = SGE(self._receives.buf + slot * self._receive_size, self._receive_size, self._receives.lkey)
        with suppress(PyverbsError):  # a queue pair in error takes none; its completions say why
            self._pair.post_recv(RecvWR(slot, 1, [segment]))

    def _region(self, length: int, access: int) -> Any:
        """Register ``length`` bytes of new memory, at least one.  Raises VerbsError."""
        try:
            return MR(self._domain, max(1, length), access)
        except PyverbsError as error:
            raise VerbsError(
                f"{self.peer or self.device}: {length:,} bytes cannot be registered: {refused(error)}"
            ) from None

    def _rdma(self, opcode: int, handle: int, address: int, length: int, data: bytes | None = None) -> int:
        """Start an RDMA Write of ``data`` or, without ``data``, an RDMA Read; returns the number of the work
        request."""

        def start(number: int) -> None:
            # On iWARP the answer to a Read is a tagged message, for which the memory must be writable from outside.
            access = ib.IBV_ACCESS_LOCAL_WRITE | (ib.IBV_ACCESS_REMOTE_WRITE if data is None else 0)
            region = self._region(length, access)
            if data is not None:
                region.write(data, length)

            def finished() -> Event:
                data_read = bytes(region.read(length, 0)) if data is None else b""
                region.close()
                return RdmaFinished(self, number, data_read)

            self._work[number] = length, finished
            request = SendWR(number, opcode=opcode, num_sge=1, sg=[SGE(region.buf, length, region.lkey)])
            request.set_wr_rdma(handle, address)
            self._post(request)

        return self._submit(length, start)

    def _submit(self, length: int, start: Callable[[int], None]) -> int:
        """Start a request as soon as ``length`` more bytes may be outstanding; returns its number.  Raises LinkLost."""
        if self.gone:
            raise LinkLost(f"{self.peer}: {self._lost or 'closed'}")
        number = self._next(lambda: None)
        self._outgoing.submit(length, partial(start, number))
        return number

    def _post(self, request: Any) -> None:
        try:
            self._pair.post_send(request)
        except PyverbsError as error:
            raise LinkLost(f"{self.peer}: {error}") from None

    def _next(self, then: Callable[[], Any]) -> int:
        """A new number for a work request; ``then`` is called when it completes."""
        self._number += 1
        self._work[self._number] = 0, then
        return self._number
