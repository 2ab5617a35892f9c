"""What two reference endpoints say over the in-memory wire, and what the analyzer and the audit make of it.

``script()`` is a conversation in which every rule finds something to judge; ``OCCASIONS`` changes what a fault needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rdmascope.captures.peer.endpoint import Chunks, EndpointSettings, Role
from rdmascope.captures.peer.faults import FAULTS
from rdmascope.captures.peer.wire.network import EPOCH, Path, TapedFrame
from rdmascope.captures.peer.wire.script import Script, ScriptConnection, ScriptStep, with_fault
from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpcs import Rpc

from .capture import frame_batch
from .packets import Frame as Captured

CLIENT, SERVER = Role.CLIENT, Role.SERVER
RBSIZ, REQREMINV = 1, 2
SIX = Path("2001:db8::2", "2001:db8::1")

OPENING = (
    ScriptStep(CLIENT, "null", count=3),
    ScriptStep(CLIENT, "create_session"),
    ScriptStep(CLIENT, "getattr", count=4),
)
READS = (
    ScriptStep(CLIENT, "read", size=5001, room=8192, chunks=Chunks(segments=2)),
    ScriptStep(CLIENT, "read", size=4096, room=8192, chunks=Chunks(segments=2)),
    ScriptStep(CLIENT, "read", size=4096),
    ScriptStep(CLIENT, "read", size=5001),
    ScriptStep(CLIENT, "read", size=501, room=501, chunks=Chunks(write=True)),
)
WRITES = (
    ScriptStep(CLIENT, "write", size=9001),
    ScriptStep(CLIENT, "write", size=101, chunks=Chunks(read=True, zero=True, segments=2)),
)
LISTINGS = (ScriptStep(CLIENT, "readdirplus", size=34000), ScriptStep(CLIENT, "readdirplus", size=8000))
CALLBACKS = (ScriptStep(SERVER, "callback", size=64), ScriptStep(SERVER, "callback", count=3, size=64))
CLOSING = (ScriptStep(CLIENT, "null"), ScriptStep(CLIENT, "null", count=2), ScriptStep(CLIENT, disconnect=True))
CHANGES = (
    ScriptStep(CLIENT, request=((RBSIZ, 8192),)),
    ScriptStep(CLIENT, "null"),
    ScriptStep(SERVER, request=((RBSIZ, 16384),)),
    ScriptStep(SERVER, update=((RBSIZ, 20480),)),
    ScriptStep(CLIENT, update=((RBSIZ, 20480),)),
)
STEPS = (*OPENING, *READS, *WRITES, *LISTINGS, *CALLBACKS)


def script(version: int = 1, transport: str = "rocev2", path: Path | None = None, seed: int = 0) -> Script:
    """Everything, by the book."""
    steps = (*STEPS, *(CHANGES if version == 2 else ()), *CLOSING)
    settings = EndpointSettings(version=version), EndpointSettings(version=version)
    setup = ScriptConnection(transport, path or Path(), 1, False, settings, (None, None), steps)
    return Script("", seed, EPOCH, frozenset(), 0, (setup,))


def change(given: Script, **changes: Any) -> Script:
    """With other fields of its connection."""
    return replace(given, connections=(replace(given.connections[0], **changes), *given.connections[1:]))


def settle(end: Role, **changes: Any) -> Callable[[Script], Script]:
    """With other settings of an end."""

    def changed(given: Script) -> Script:
        settings = list(given.connections[0].settings)
        settings[end] = replace(settings[end], **changes)
        return change(given, settings=(settings[0], settings[1]))

    return changed


def both(**changes: Any) -> Callable[[Script], Script]:
    return lambda given: settle(SERVER, **changes)(settle(CLIENT, **changes)(given))


def add(*steps: ScriptStep) -> Callable[[Script], Script]:
    """With more steps before those that close it."""

    def added(given: Script) -> Script:
        before = given.connections[0].steps[: -len(CLOSING)]
        return change(given, steps=(*before, *steps, *CLOSING))

    return added


def first_message_is_a_call(given: Script) -> Script:
    """A version 2 client without the extension, and a server of version 1."""
    return settle(SERVER, version=1)(settle(CLIENT, version=2, extension=False)(given))


def without_session(given: Script) -> Script:
    steps = [step for step in given.connections[0].steps if step.call not in ("create_session", "callback")]
    return change(given, steps=tuple(steps))


def same_data(given: Script) -> Script:
    """The same WRITE twenty times."""
    again = tuple(ScriptStep(CLIENT, "write", size=5000) for _ in range(20))
    return change(given, steps=(*OPENING, *again, *CLOSING))


def many_reads(given: Script) -> Script:
    """Forty READs, each with a Write chunk."""
    reads = tuple(ScriptStep(CLIENT, "read", size=4096, chunks=Chunks(write=True)) for _ in range(40))
    return change(given, steps=(*OPENING, *reads, *CLOSING))


def three_callbacks_at_once(given: Script) -> Script:
    return change(given, steps=(*OPENING, CALLBACKS[1], *CLOSING))


OCCASIONS: dict[str, Callable[[Script], Script]] = {
    "one-call-too-many": settle(SERVER, credits=2),
    "one-callback-too-many": settle(CLIENT, backward_credits=2),
    "too-long-for-both": settle(SERVER, receive_size=16384),
    "too-long-for-all": both(announce=False),
    "callback-too-long": add(ScriptStep(SERVER, "callback", size=30000)),
    "callback-unannounced": without_session,
    "memory-kept": same_data,
    "handles-in-order": many_reads,
    "two-first-callbacks": three_callbacks_at_once,
    "xc-request-ignored": add(
        ScriptStep(CLIENT, request=((RBSIZ, 4096),)), ScriptStep(CLIENT, "write", size=6000, together=True)
    ),
    "xc-shrinks": settle(SERVER, receive_buffer=8192),
    "error-range": first_message_is_a_call,
    "version-as-header": first_message_is_a_call,
    "invalidate-other": both(remote_invalidation=True),
    "invalidate-in-call": both(remote_invalidation=True),
    "v2-again": settle(SERVER, version=1),
    "v2-too-long": settle(SERVER, extension=False),
}
"""Fault -> what must be otherwise for it to find an occasion."""


def with_occasion(name: str, version: int, transport: str, path: Path | None = None) -> Script:
    """Everything, with a fault and what it needs."""
    given = script(version, transport, path)
    if name in OCCASIONS:
        given = OCCASIONS[name](given)
    return with_fault(given, name)


def rules_of(name: str) -> set[str]:
    """Those that the fault breaks, and the one of the peer that it needs."""
    fault = FAULTS[name]
    return {fault.rule, FAULTS[fault.cause].rule if fault.cause else ""} - {""}


def analyzed(frames: Sequence[TapedFrame]) -> tuple[Analyzer, Auditor, list[Rpc]]:
    """What came out of the frames, all of which were captured whole."""
    auditor = Auditor()
    analyzer = Analyzer(listener=auditor.listener)
    rpcs = analyzer.feed(frame_batch([Captured(frame.time, frame.data, len(frame.data)) for frame in frames]))
    rpcs += analyzer.finish()
    auditor.finish(analyzer.conversations)
    return analyzer, auditor, rpcs


def broken(auditor: Auditor) -> set[str]:
    return {place.rule for place, tally in auditor.tallies.items() if tally.violated}


def undecided(auditor: Auditor) -> set[str]:
    return {place.rule for place, tally in auditor.tallies.items() if tally.undecidable}
