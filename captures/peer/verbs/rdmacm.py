"""Verbs of this machine's devices, by pyverbs and librdmacm.

Connections are made with asynchronous identifiers and an event channel each, since only its events carry the peer's
private data; queue pairs, completion queues and memory are our own, on a context of our own.  The descriptors of both
kinds of channel are found in /proc/self/fd, as pyverbs does not expose them, and are polled by one ``select``.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyverbs.cm_enums as cm
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.pyverbs_error import PyverbsError

from .devices import listening_addresses, local_address, new_descriptor, readable, resolve, source_of
from .interface import ConnectionParameters, ConnectRequested, Event, PeerAddress, VerbsError
from .queuepair import QueuePair, refused

_RETRIES = 7
"""Of a packet that was not acknowledged: the maximum of three bits."""
_RNR_RETRIES = 6
"""Of a Send that found no Receive; seven would be for ever."""
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
    """A channel of the connection manager that never blocks."""

    def __init__(self) -> None:
        try:
            with new_descriptor("rdma_cm") as found:
                self.channel = CMEventChannel()
        except PyverbsError as error:
            raise VerbsError(f"the connection manager cannot be reached: {error}") from None
        self.descriptor = found[0]
        os.set_blocking(self.descriptor, False)

    def next(self) -> Any | None:
        """The next event, to be acknowledged; None where there is none."""
        if not readable([self.descriptor], 0):
            return None
        try:
            return CMEvent(self.channel)
        except PyverbsError:
            return None  # one that librdmacm keeps to itself

    def close(self) -> None:
        self.channel.close()


class DeviceRequest:
    """A ``Request``: an identifier that waits for accept or reject."""

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
    """``Verbs`` of this machine."""

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
        """Collect events until ``done``, or ``deadline``."""
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
        """The next event of a connection in the making, which must be one of ``wanted``: its type and private data."""
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
        """Collect the events there are."""
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
            for link in [one for one in self.links if one.events is None and one.closing()]:
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
