"""The driver of two endpoints: carries out on a link what they want, and keeps their memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rdmascope.dissect.rpcrdma.messages import Segment

from ..endpoint import (
    Called,
    Completed,
    Connected,
    ConnectionEnded,
    Disconnect,
    Event,
    Output,
    Parts,
    RdmaRead,
    RdmaWrite,
    Register,
    Registered,
    Release,
    Released,
    RpcRdmaEndpoint,
    Send,
    SendReceived,
    service,
)
from ..endpoint.build_header import Value
from ..endpoint.nouns import Call, Report
from .network import WireLink

PAGE = 4096
"""Memory is registered in whole pages, so the device lets the peer touch what lies behind a segment in its page."""

TURNAROUND = 60_000, 200_000
"""Nanoseconds that an end takes to act on what the other one did, minimum and maximum."""


@dataclass(slots=True)
class HostMemory:
    owner: int
    handle: int
    base: int
    length: int
    data: bytearray
    """Whole pages."""


class Dialogue:
    """Two endpoints on a link; ``reports`` is what they reported, in order, each with the index of its end."""

    def __init__(
        self,
        client: RpcRdmaEndpoint,
        server: RpcRdmaEndpoint,
        link: WireLink,
        serve: Callable[[bytes], Parts] = service.serve,
    ) -> None:
        self.ends = client, server
        self.link = link
        self.serve = serve
        self.reports: list[tuple[int, Report]] = []
        self.broken = False
        self._last = 0
        """The end that acted last."""
        self._todo: deque[tuple[int, Output]] = deque()
        self._regions: dict[int, HostMemory] = {}
        """By handle."""
        self._owned: dict[tuple[int, int], HostMemory] = {}
        """By end and the endpoint's own number."""
        self._last_handle = 0x1000
        """Of those that follow each other."""
        self._next_base = link.tape.random.randrange(1 << 20, 1 << 35) * PAGE

    # What happens

    def connect(self) -> None:
        private = [end.private_data for end in self.ends]
        self.link.connect(*private)
        for index, end in enumerate(self.ends):
            self._add(index, end.take(Connected(private[1 - index])))
        self.run()

    def submit(self, end: int, *calls: Call) -> None:
        """Calls of one end, all at once as far as credits and the connection go; ``run`` carries them out."""
        for call in calls:
            self._add(end, self.ends[end].call(call))

    def call(self, end: int, *calls: Call) -> None:
        """The same; returns when nothing is under way any more."""
        self.submit(end, *calls)
        self.run()

    def request(self, end: int, want: Mapping[int, Value]) -> None:
        """Changes that one end asks the other for; ``run`` carries them out."""
        self._add(end, self.ends[end].request(want))

    def update(self, end: int, which: int, value: Value) -> None:
        self._add(end, self.ends[end].update(which, value))
        self.run()

    def disconnect(self, end: int = 0) -> None:
        self._add(end, self.ends[end].disconnect())
        self.run()

    def run(self) -> None:
        """Carry out what is to be done, and what follows from it, in order."""
        while self._todo:
            index, output = self._todo.popleft()
            self._carry_out(index, output)

    # How it is carried out

    def _add(self, end: int, outputs: list[Output]) -> None:
        self._todo.extend((end, output) for output in outputs)

    def _tell(self, end: int, event: Event) -> None:
        self._add(end, self.ends[end].take(event))

    def _carry_out(self, end: int, output: Output) -> None:
        match output:
            case Register(memory, length, data):
                region = self._register(end, length, data)
                self._owned[end, memory] = region
                self._tell(end, Registered(memory, region.handle, region.base))
            case Release(memory):
                region = self._owned.pop((end, memory))
                self._regions.pop(region.handle, None)
                self._tell(end, Released(memory, bytes(region.data[: region.length])))
            case Called(call, message):
                self.reports.append((end, output))
                self._add(end, self.ends[end].reply(call, self.serve(message)))
            case Send() | RdmaRead() | RdmaWrite() | Disconnect():
                if not self.broken:
                    self._transfer(end, output)
            case _:
                self.reports.append((end, output))

    def _transfer(self, end: int, action: Send | RdmaRead | RdmaWrite | Disconnect) -> None:
        link = self.link
        if end != self._last:
            self._last = end
            link.tape.pause(link.tape.random.randrange(*TURNAROUND))
        match action:
            case Send(data, invalidate):
                link.send(end, data, invalidate)
                if invalidate is not None:
                    self._regions.pop(invalidate, None)
                self._tell(1 - end, SendReceived(data, invalidate))
            case RdmaRead(operation, segment):
                place = self._place(1 - end, segment, segment.length)
                if place is None:
                    link.read_refused(end, segment)
                    self._break("a Remote Access Error")
                    return
                data = bytes(place)
                link.read(end, segment, data)
                self._tell(end, Completed(operation, data))
            case RdmaWrite(segment, data):
                place = self._place(1 - end, segment, len(data))
                if place is None:
                    link.write_refused(end, segment, data)
                    self._break("a Remote Access Error")
                    return
                place[:] = data
                link.write(end, segment, data)
            case Disconnect(reason):
                link.disconnect(end)
                self._break(reason)

    def _break(self, reason: str) -> None:
        self.broken = True
        for end in (0, 1):
            self._tell(end, ConnectionEnded(reason))

    def _register(self, owner: int, length: int, data: bytes) -> HostMemory:
        pages = max(1, -(-length // PAGE)) * PAGE
        handle = self.link.tape.random.randrange(1, 1 << 32)
        while handle in self._regions:
            handle = self.link.tape.random.randrange(1, 1 << 32)
        if self.ends[owner].bends("random handles"):
            self._last_handle += 0x100
            handle = self._last_handle
        region = HostMemory(owner, handle, self._next_base, length, bytearray(data.ljust(pages, b"\0")))
        self._next_base += pages + PAGE
        self._regions[handle] = region
        return region

    def _place(self, owner: int, segment: Segment, length: int) -> memoryview | None:
        """The bytes behind a handle and an offset; None where the device refuses."""
        region = self._regions.get(segment.handle)
        if region is None or region.owner != owner:
            return None
        start = segment.offset - region.base
        return memoryview(region.data)[start : start + length] if 0 <= start <= len(region.data) - length else None
