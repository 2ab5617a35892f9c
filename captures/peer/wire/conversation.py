"""The driver of two endpoints: carries out on a link what they want, and keeps their memory; and what plays a
script.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from rdmascope.dissect.rpcrdma.messages import Segment

from ..endpoint import (
    Answered,
    Call,
    Called,
    Completed,
    Connected,
    ConnectionEnded,
    Disconnect,
    Event,
    Failed,
    Output,
    Parts,
    RdmaRead,
    RdmaWrite,
    Register,
    Registered,
    Release,
    Released,
    Role,
    RpcRdmaEndpoint,
    Send,
    SendReceived,
    Settled,
    service,
    whole,
)
from ..endpoint.nouns import Report, Value
from .network import IwarpLink, Rocev2Link, Tape, TapedFrame, WireLink
from .script import Script, ScriptConnection, ScriptStep

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


FIRST_XID = (0x5C00_0001, 0x5B00_0001)
"""Of calls of the client and the server: apart, for tools that do not distinguish the directions."""
LISTING_EXTRA = 256
"""Bytes that a directory listing may be longer than was asked for, with its RPC header."""
REPLY_EXTRA = 256
"""Bytes of any other reply, without what is DDP-eligible."""


@dataclass(slots=True)
class Played:
    """What happened on one connection."""

    version: int | None = None
    calls: int = 0
    answered: int = 0
    """As they should be, to the last byte."""
    wrong: list[int] = field(default_factory=list)
    """XIDs of those answered otherwise."""
    failed: list[Failed] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    """By end: how often its fault was committed."""


def play_script(script: Script) -> tuple[list[TapedFrame], list[Played]]:
    """The frames of all connections in order, as they were sent, and what happened on each."""
    tape = Tape(script.seed, script.start)
    return tape.frames, [_play(tape, setup) for setup in script.connections]


def captured(script: Script, frames: list[TapedFrame]) -> list[tuple[TapedFrame, int]]:
    """What the capture holds: each frame, cut, with its length on the wire."""
    kept = (frame for number, frame in enumerate(frames, 1) if number not in script.lose)
    return [(frame._replace(data=frame.data[: script.snaplen or None]), len(frame.data)) for frame in kept]


def _play(tape: Tape, setup: ScriptConnection) -> Played:
    ends = [RpcRdmaEndpoint(role, setup.settings[role], setup.faults[role]) for role in Role]
    link: Rocev2Link | IwarpLink = Rocev2Link(tape, setup.path)
    if setup.transport == "iwarp":
        link = IwarpLink(tape, setup.path, revision=setup.mpa_revision, markers=setup.markers)
    conversation = Dialogue(ends[0], ends[1], link)
    expected: dict[tuple[int, int], bytes] = {}
    connected = False
    for number, (step, calls) in enumerate(_steps(setup)):
        tape.pause(step.pause)
        for call in calls:
            expected[step.end, call.xid] = whole(service.serve(whole(call.parts)))
        conversation.submit(step.end, *calls)
        if not connected:
            conversation.connect()  # the first calls wait for it
            connected = True
        if step.request:
            conversation.request(step.end, dict(step.request))
        for which, value in step.update:
            conversation.update(step.end, which, value)
        if step.disconnect:
            conversation.disconnect(step.end)
        following = setup.steps[number + 1] if number + 1 < len(setup.steps) else None
        if following is None or not following.together:
            conversation.run()
    if not connected:
        conversation.connect()
    return _sum_up(conversation, expected)


def calls_of(setup: ScriptConnection) -> list[tuple[Role, Call]]:
    """Every call of a connection, with the end it comes from."""
    return [(step.end, call) for step, calls in _steps(setup) for call in calls]


def _steps(setup: ScriptConnection) -> Iterator[tuple[ScriptStep, list[Call]]]:
    xids = list(FIRST_XID)
    for step in setup.steps:
        calls = [_call(step, xids[step.end] + index) for index in range(step.count if step.call else 0)]
        xids[step.end] += len(calls)
        yield step, calls


def _call(step: ScriptStep, xid: int) -> Call:
    match step.call:
        case "getattr":
            parts = service.getattr_(xid)
        case "read":
            parts = service.read(xid, step.offset, step.size)
            return Call(parts, REPLY_EXTRA, (max(step.room, step.size),), step.chunks)
        case "write":
            parts = service.write(xid, step.offset, service.pattern(step.offset, step.size))
        case "readdirplus":
            return Call(service.readdirplus(xid, step.size), step.size + LISTING_EXTRA, (), step.chunks)
        case "create_session":
            parts = service.create_session(xid)
        case "callback":
            parts = service.callback(xid, service.pattern(0, step.size))
            return Call(parts, REPLY_EXTRA + step.size, (), step.chunks)
        case _:
            parts = service.null(xid)
    return Call(parts, REPLY_EXTRA, (), step.chunks)


def _sum_up(conversation: Dialogue, expected: dict[tuple[int, int], bytes]) -> Played:
    played = Played(calls=len(expected), committed=[end.committed for end in conversation.ends])
    for end, report in conversation.reports:
        match report:
            case Settled(version) if end == Role.CLIENT:
                played.version = version
            case Answered(xid, message):
                if expected.get((end, xid)) == message:
                    played.answered += 1
                else:
                    played.wrong.append(xid)
            case Failed():
                played.failed.append(report)
            case _:
                pass
    return played
