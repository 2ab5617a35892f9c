"""Plays a script: endpoints, links and a tape, and what became of the calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..endpoint import Answered, Call, Failed, Role, RpcRdmaEndpoint, Settled, service, whole
from .conversation import Dialogue
from .iwarp import IwarpLink
from .network import Tape, TapedFrame
from .rocev2 import Rocev2Link
from .script import Script, ScriptConnection, ScriptStep

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
