"""Scripts of what two endpoints shall say to each other, as TOML, and the driver that plays them on a link.

The keys of a script are the rows of the tables below."""

from __future__ import annotations

import re
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Any

from rdmascope.dissect.layers.characteristics_codes import XCHAR_BRS, XCHAR_RBSIZ, XCHAR_REQREMINV
from rdmascope.dissect.layers.opcodes import PATH_MTU
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.rpcrdma.messages import Segment

from ...errors import CaptureError
from ..endpoint import (
    Answered,
    Call,
    Called,
    Chunks,
    Completed,
    Connected,
    ConnectionEnded,
    Disconnect,
    EndpointSettings,
    Event,
    Failed,
    Output,
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
from ..endpoint.endpoint import Fault
from ..endpoint.nouns import Report, Value
from ..faults import FAULTS, find_fault
from .network import EPOCH, IwarpLink, Path, Rocev2Link, Tape, TapedFrame, WireLink

PAGE = 4096
"""Memory is registered in whole pages, so the device lets the peer access the rest of a segment's last page."""

TURNAROUND = 60_000, 200_000
"""Nanoseconds that an end takes to react to the other, minimum and maximum."""


@dataclass(slots=True)
class HostMemory:
    owner: int
    handle: int
    base: int
    length: int
    data: bytearray
    """The contents, up to the end of the last page."""


class Dialogue:
    """Two endpoints on a link; ``reports``: what they reported, in order, each with the index of its end."""

    def __init__(
        self,
        client: RpcRdmaEndpoint,
        server: RpcRdmaEndpoint,
        link: WireLink,
    ) -> None:
        self.ends = client, server
        self.link = link

        self.reports: list[tuple[int, Report]] = []
        self.broken = False
        self._last = 0
        """The end that last acted."""
        self._todo: deque[tuple[int, Output]] = deque()
        self._regions: dict[int, HostMemory] = {}
        """Registered memory, by handle."""
        self._owned: dict[tuple[int, int], HostMemory] = {}
        """By end and the endpoint's own number."""
        self._last_handle = 0x1000
        """The last of the consecutive handles."""
        self._next_base = link.tape.random.randrange(1 << 20, 1 << 35) * PAGE

    # What happens

    def connect(self) -> None:
        private = [end.private_data for end in self.ends]
        self.link.connect(*private)
        for index, end in enumerate(self.ends):
            self._add(index, end.take(Connected(private[1 - index])))
        self.run()

    def submit(self, end: int, *calls: Call) -> None:
        """Submit calls of one end, all at once as far as credits and the connection allow; ``run`` executes them."""
        for call in calls:
            self._add(end, self.ends[end].call(call))

    def call(self, end: int, *calls: Call) -> None:
        """Submit calls of one end, and run until nothing is outstanding."""
        self.submit(end, *calls)
        self.run()

    def request(self, end: int, want: Mapping[int, Value]) -> None:
        """Let one end ask the other for changes; ``run`` executes them."""
        self._add(end, self.ends[end].request(want))

    def update(self, end: int, which: int, value: Value) -> None:
        self._add(end, self.ends[end].update(which, value))
        self.run()

    def disconnect(self, end: int = 0) -> None:
        self._add(end, self.ends[end].disconnect())
        self.run()

    def run(self) -> None:
        """Execute what is to be done, and what follows from it, in order."""
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
                self._add(end, self.ends[end].reply(call, service.serve(message)))
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
                target = self._place(1 - end, segment, segment.length)
                if target is None:
                    link.read_refused(end, segment)
                    self._break("a Remote Access Error")
                    return
                data = bytes(target)
                link.read(end, segment, data)
                self._tell(end, Completed(operation, data))
            case RdmaWrite(segment, data):
                target = self._place(1 - end, segment, len(data))
                if target is None:
                    link.write_refused(end, segment, data)
                    self._break("a Remote Access Error")
                    return
                target[:] = data
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
        """The bytes at a handle and an offset; None if the device refuses access."""
        region = self._regions.get(segment.handle)
        if region is None or region.owner != owner:
            return None
        start = segment.offset - region.base
        return memoryview(region.data)[start : start + length] if 0 <= start <= len(region.data) - length else None


FIRST_XID = (0x5C00_0001, 0x5B00_0001)
"""First XIDs of the client and the server, far apart for tools that do not distinguish the directions."""
LISTING_EXTRA = 256
"""Bytes by which a directory listing may exceed the size asked for, with its RPC header."""
REPLY_EXTRA = 256
"""Bytes of any other reply, without DDP-eligible data."""


@dataclass(slots=True)
class Played:
    """What happened on one connection."""

    version: int | None = None
    calls: int = 0
    answered: int = 0
    """Calls answered correctly, byte for byte."""
    wrong: list[int] = field(default_factory=list)
    """XIDs of calls answered incorrectly."""
    failed: list[Failed] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)
    """By end: how often its fault was committed."""


def play_script(script: Script) -> tuple[list[TapedFrame], list[Played]]:
    """The frames of all connections, in the order sent, and what happened on each connection."""
    tape = Tape(script.seed, script.start)
    return tape.frames, [_play(tape, setup) for setup in script.connections]


def captured(script: Script, frames: list[TapedFrame]) -> list[tuple[TapedFrame, int]]:
    """What the capture contains: frames, truncated by its snaplen, with their lengths on the wire."""
    kept = (frame for number, frame in enumerate(frames, 1) if number not in script.lose)
    return [(frame._replace(data=frame.data[: script.snaplen or None]), len(frame.data)) for frame in kept]


def _play(tape: Tape, setup: ScriptConnection) -> Played:
    ends = [RpcRdmaEndpoint(role, setup.settings[role], setup.faults[role]) for role in Role]
    link: WireLink = Rocev2Link(tape, setup.path)
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


MAX_STEPS, MAX_CALLS, LARGEST, MAX_BYTES = 10_000, 1_000, 1 << 20, 1 << 28
"""Steps of a script, calls of a step, bytes of a call, and of all calls: more is a mistake."""


class ScriptError(CaptureError):
    """A script that cannot be played; the message says where and why."""


class Key(NamedTuple):
    type: type
    help: str
    values: tuple[Any, ...] = ()
    """Allowed values, if not everything of its type is allowed."""
    maximum: int = LARGEST


# fmt: off
TOP = {
    "title": Key(str, "What it shows, in a line."),
    "seed": Key(int, "Of the random numbers: queue pairs, sequence numbers, handles, gaps of time.", maximum=1 << 32),
    "start": Key(int, "Time of the first frame, in seconds since 1970-01-01 UTC.", maximum=1 << 32),
    "lose": Key(list, "Frames that the capture missed, from 1: numbers, and stretches such as \"4-9\"."),
    "snaplen": Key(int, "Bytes of a frame that the capture keeps, 0 for all."),
    "connection": Key(list, "[[connection]], one after the other."),
}
CONNECTION = {
    "transport": Key(str, "The network.", ("rocev2", "iwarp")),
    "client": Key(dict, "[connection.client], the end that connects."),
    "server": Key(dict, "[connection.server], the other one."),
    "mtu": Key(int, "Bytes of payload: of a RoCEv2 packet, 1024 by default, or a TCP segment, 1460."),
    "port": Key(int, "The service port, 20049 by default.", maximum=65535),
    "mpa_revision": Key(int, "iWARP: of the MPA start-up frames.", (1, 2)),
    "markers": Key(bool, "iWARP: MPA markers in both directions."),
    "step": Key(list, "[[connection.step]], in order: a call, or request, update, disconnect."),
}
END = {
    "address": Key(str, "IPv4 or IPv6."),
    "version": Key(int, "The highest version it supports, 1 by default.", (1, 2)),
    "lowest": Key(int, "The lowest.", (1, 2)),
    "credits": Key(int, "Asked for by the client, granted by the server.", maximum=65535),
    "backward_credits": Key(int, "Asked for by the server, granted by the client.", maximum=65535),
    "private_data": Key(bool, "Announces sizes in the connection's private data."),
    "send_size": Key(int, "Announced there, a multiple of 1024.", maximum=262144),
    "receive_size": Key(int, "Announced there, a multiple of 1024.", maximum=262144),
    "remote_invalidation": Key(bool, "Ready for Send With Invalidate."),
    "extension": Key(bool, "Version 2: knows transport characteristics."),
    "receive_buffer": Key(int, "Version 2: Receive Buffer Size, 4096 or more."),
    "backward_support": Key(str, "Version 2: Backward Request Support.", ("none", "inline", "general")),
    "unchanging": Key(list, "Version 2: characteristics that it says will not change."),
    "on_request": Key(str, "Version 2: what it does with changes asked for.", ("done", "pending", "reject")),
    "fault": Key(str, "What it does wrong, once: a name that --faults lists, or a rule."),
}
STEP = {
    "call": Key(str, "A call.", ("null", "getattr", "read", "write", "readdirplus", "create_session", "callback")),
    "count": Key(int, "How many, all at once as far as credits go.", maximum=MAX_CALLS),
    "size": Key(int, "Bytes: read or written, of the listing, of the callback's tag."),
    "offset": Key(int, "Of a read or write.", maximum=1 << 40),
    "room": Key(int, "Bytes of the Write chunk of a read, where that is more than its size."),
    "with": Key(list, "Chunks it has in any case: \"read\", \"write\", \"reply\", \"zero\"."),
    "without": Key(list, "Chunks it does not have."),
    "segments": Key(int, "Segments of each chunk.", maximum=64),
    "together": Key(bool, "With the step before it, without waiting for replies."),
    "request": Key(dict, "Asks the peer to change characteristics: receive_buffer, remote_invalidation, …"),
    "update": Key(dict, "Changes a characteristic of its own."),
    "from": Key(str, "Which end: the client by default, of a callback the server.", ("client", "server")),
    "pause": Key(str, "Before the step: 10ms, 250us, 2s."),
    "disconnect": Key(bool, "Ends the connection."),
}
CHARACTERISTIC_KEYS = {
    "receive_buffer": (XCHAR_RBSIZ, Key(int, "")),
    "remote_invalidation": (XCHAR_REQREMINV, Key(bool, "")),
    "backward_support": (XCHAR_BRS, Key(str, "", ("none", "inline", "general"))),
}
# fmt: on
CHUNK_NAMES = ("read", "write", "reply", "zero")
_PATH = Path()
LEVELS = {"none": 0, "inline": 1, "general": 2}
_DURATION = re.compile(r"(\d+)(ns|us|ms|s)")
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class ScriptStep:
    end: Role
    call: str = ""
    count: int = 1
    size: int = 4096
    offset: int = 0
    room: int = 0
    chunks: Chunks = field(default_factory=Chunks)
    together: bool = False
    request: tuple[tuple[int, int | bool], ...] = ()
    update: tuple[tuple[int, int | bool], ...] = ()
    pause: int = 0
    """Nanoseconds."""
    disconnect: bool = False


@dataclass(frozen=True, slots=True)
class ScriptConnection:
    transport: str
    path: Path
    mpa_revision: int
    markers: bool
    settings: tuple[EndpointSettings, EndpointSettings]
    faults: tuple[Fault | None, Fault | None]
    steps: tuple[ScriptStep, ...]


@dataclass(frozen=True, slots=True)
class Script:
    title: str
    seed: int
    start: int
    """Nanoseconds since the Unix epoch."""
    lose: frozenset[int]
    """Numbers of the frames that are lost."""
    snaplen: int
    connections: tuple[ScriptConnection, ...]


def parse_script(text: str) -> Script:
    """Read a script; raises ScriptError."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScriptError(f"no TOML: {error}") from None
    top = _checked("the script", raw, TOP)
    start = top.get("start")
    connections = _tables("connection", top.get("connection", []))
    if not connections:
        raise ScriptError("there is no [[connection]] in it")
    setups = tuple(_setup(f"connection {number}", connection) for number, connection in enumerate(connections, 1))
    steps = [step for setup in setups for step in setup.steps]
    if len(steps) > MAX_STEPS:
        raise ScriptError(f"the script: {len(steps)} steps, at most {MAX_STEPS}")
    size = sum(step.count * (step.size + 1024) for step in steps if step.call)
    if size > MAX_BYTES:
        raise ScriptError(f"the script: calls of {size} bytes, at most {MAX_BYTES}")
    return Script(
        top.get("title", ""),
        top.get("seed", 0),
        EPOCH if start is None else start * _UNITS["s"],
        _frames(top.get("lose", [])),
        top.get("snaplen", 0),
        setups,
    )


def _checked(where: str, raw: Mapping[str, Any], keys: Mapping[str, Key]) -> dict[str, Any]:
    """The table, after checking that its keys are known and of their types."""
    for name, value in raw.items():
        key = keys.get(name)
        if key is None:
            near = get_close_matches(name, keys, 1) or [", ".join(keys)]
            raise ScriptError(f"{where}: there is no key {name!r}; is it {near[0]}?")
        wrong = not isinstance(value, key.type) or (key.type is not bool and isinstance(value, bool))
        if wrong:
            kind = {int: "a number", str: "a string", bool: "true or false", list: "a list", dict: "a table"}
            raise ScriptError(f"{where}: {name} is {value!r}, not {kind[key.type]}")
        if key.values and value not in key.values:
            raise ScriptError(f"{where}: {name} is {value!r}, not one of {', '.join(map(str, key.values))}")
        if isinstance(value, int) and not 0 <= value <= key.maximum:
            raise ScriptError(f"{where}: {name} is {value}, not in 0 to {key.maximum}")
    return dict(raw)


def _tables(name: str, values: list[Any]) -> list[dict[str, Any]]:
    if not all(isinstance(value, dict) for value in values):
        raise ScriptError(f"{name} is a list of other things than tables; write [[{name}]]")
    return values


def _setup(where: str, raw: Mapping[str, Any]) -> ScriptConnection:
    table = _checked(where, raw, CONNECTION)
    transport = table.get("transport", "rocev2")
    ends = [_checked(f"{where}, {name}", table.get(name, {}), END) for name in ("client", "server")]
    addresses = [end.get("address", default) for end, default in zip(ends, _PATH.hosts, strict=True)]
    try:
        versions = {ip_address(address).version for address in addresses}
    except ValueError as error:
        raise ScriptError(f"{where}: {error}") from None
    if len(versions) > 1:
        raise ScriptError(f"{where}: one address is IPv4, the other IPv6")
    mtu = table.get("mtu", 1024 if transport == "rocev2" else 1460)
    if transport == "rocev2" and mtu not in PATH_MTU.values():
        raise ScriptError(f"{where}: mtu is {mtu}, not one of {', '.join(map(str, PATH_MTU.values()))}")
    if transport == "iwarp" and not 256 <= mtu <= 9000:
        raise ScriptError(f"{where}: mtu is {mtu}, not in 256 to 9000")
    steps = _tables("connection.step", table.get("step", []))
    named = [_fault(f"{where}, {role.name.lower()}", role, end) for role, end in zip(Role, ends, strict=True)]
    return ScriptConnection(
        transport,
        Path(addresses[0], addresses[1], table.get("port", _PATH.port), mtu),
        table.get("mpa_revision", 1),
        table.get("markers", False),
        (_settings(f"{where}, client", ends[0]), _settings(f"{where}, server", ends[1])),
        (named[0], named[1]),
        tuple(_step(f"{where}, step {number}", step) for number, step in enumerate(steps, 1)),
    )


def _settings(where: str, end: dict[str, Any]) -> EndpointSettings:
    given = {name: value for name, value in end.items() if name not in ("address", "fault", "private_data")}
    if "private_data" in end:
        given["announce"] = end["private_data"]
    for name in ("send_size", "receive_size"):
        if given.get(name, 1024) % 1024 or not given.get(name, 1024):
            raise ScriptError(f"{where}: {name} is {given[name]}, no multiple of 1024")
    if given.get("receive_buffer", 4096) < 4096:
        raise ScriptError(f"{where}: receive_buffer is {given['receive_buffer']}, and 4096 is the least")
    for name in ("credits", "backward_credits"):
        if given.get(name) == 0:
            raise ScriptError(f"{where}: {name} is 0, and 1 is the least")
    if "backward_support" in given:
        given["backward_support"] = LEVELS[given["backward_support"]]
    if "unchanging" in given:
        given["unchanging"] = frozenset(_characteristic(where, name)[0] for name in given["unchanging"])
    if "on_request" in given:
        given["on_request"] = dict.fromkeys((which for which, _ in CHARACTERISTIC_KEYS.values()), given["on_request"])
    settings = EndpointSettings(**given)
    if settings.lowest > settings.version:
        raise ScriptError(f"{where}: lowest is {settings.lowest}, and version {settings.version}")
    return settings


def with_fault(script: Script, name: str) -> Script:
    """The script with a fault on its first connection, and with the fault of the peer that gives the occasion for it.

    Raises ScriptError where there is no such fault.
    """
    fault = known_fault(name)
    first, *rest = script.connections
    faults = list(first.faults)
    for each in (fault, FAULTS[fault.cause] if fault.cause else None):
        if each is not None:
            faults[each.by] = each
    return replace(script, connections=(replace(first, faults=(faults[0], faults[1])), *rest))


def known_fault(name: str) -> Fault:
    fault = find_fault(name)
    if fault is None:
        near = get_close_matches(name, FAULTS, 1)
        raise ScriptError(f"there is no fault {name!r}" + (f"; is it {near[0]}?" if near else ""))
    return fault


def _fault(where: str, role: Role, end: dict[str, Any]) -> Fault | None:
    if "fault" not in end:
        return None
    try:
        fault = known_fault(end["fault"])
    except ScriptError as error:
        raise ScriptError(f"{where}: {error}") from None
    if fault.by is not role:
        raise ScriptError(f"{where}: the fault {end['fault']!r} is one of the {fault.by.name.lower()}")
    return fault


def _characteristic(where: str, name: Any) -> tuple[int, Key]:
    if name not in CHARACTERISTIC_KEYS:
        raise ScriptError(f"{where}: {name!r} is none of {', '.join(CHARACTERISTIC_KEYS)}")
    return CHARACTERISTIC_KEYS[name]


def _values(where: str, table: dict[str, Any]) -> tuple[tuple[int, int | bool], ...]:
    _checked(where, table, {name: key for name, (_, key) in CHARACTERISTIC_KEYS.items()})
    return tuple((CHARACTERISTIC_KEYS[name][0], LEVELS.get(value, value)) for name, value in table.items())


def _step(where: str, raw: Mapping[str, Any]) -> ScriptStep:
    table = _checked(where, raw, STEP)
    deeds = [name for name in ("call", "request", "update", "disconnect") if name in table]
    if len(deeds) != 1:
        raise ScriptError(
            f"{where}: {' and '.join(deeds) or 'nothing'} in it, not one of call, request, update, disconnect"
        )
    callback = table.get("call") == "callback"
    end = Role[table.get("from", "server" if callback else "client").upper()]
    if "call" in table and (end is Role.SERVER) is not callback:
        raise ScriptError(f"{where}: a {table['call']} comes from the {'server' if callback else 'client'}")
    wishes: dict[str, bool] = {}
    for key, wanted in (("with", True), ("without", False)):
        for name in table.get(key, []):
            if name not in CHUNK_NAMES:
                raise ScriptError(f"{where}: {name!r} is none of the chunks {', '.join(CHUNK_NAMES)}")
            wishes[name] = wanted
    return ScriptStep(
        end,
        table.get("call", ""),
        table.get("count", 1),
        table.get("size", 64 if callback else 4096),
        table.get("offset", 0),
        max(table.get("room", 0), table.get("size", 4096)),
        Chunks(**wishes, segments=max(1, table.get("segments", 1))),
        table.get("together", False),
        _values(where, table.get("request", {})),
        _values(where, table.get("update", {})),
        _duration(where, table.get("pause", "0ns")),
        bool(table.get("disconnect", False)),
    )


def _duration(where: str, text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ScriptError(f"{where}: {text!r} is no duration such as 10ms, 250us or 2s")
    return int(match[1]) * _UNITS[match[2]]


def _frames(values: list[Any]) -> frozenset[int]:
    frames: set[int] = set()
    for value in values:
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", str(value))
        if match is None or isinstance(value, bool):
            raise ScriptError(f'the script: lose has {value!r}, neither a frame number nor a stretch such as "4-9"')
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first > 1 << 20:
            raise ScriptError(f"the script: lose has {value!r}, which is too many")
        frames.update(range(first, last + 1))
    return frozenset(frames)
