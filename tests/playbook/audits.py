"""The audit of a played conversation."""

from __future__ import annotations

from rdmascope.dissect.audit.auditor import Auditor, RuleTally
from rdmascope.dissect.audit.rule import all_rules
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

from . import Capture, Wire, faults, frame_batch
from .iwarp import IwarpCapture, IwarpWire
from .packets import Packet
from .tcp import TcpSegment
from .violations import SCRIPTS, SERVER, Broken, hello

RULES = all_rules()
JUDGED = [rule.id for rule in RULES.values() if not rule.unjudgeable]


def audit(wire: Wire, packets: list[Packet] | None = None) -> Auditor:
    return audit_capture(Capture(wire, packets))


def audit_segments(wire: IwarpWire, segments: list[TcpSegment] | None = None) -> Auditor:
    return audit_capture(IwarpCapture(wire, wire.sent() if segments is None else segments))


def audit_capture(capture: Capture) -> Auditor:
    auditor = Auditor()
    analyzer = Analyzer(listener=auditor.listener)
    analyzer.feed(frame_batch(capture.frames))
    analyzer.finish()
    auditor.finish(analyzer.conversations)
    return auditor


def total(auditor: Auditor, rule: str) -> RuleTally:
    """Over all endpoints."""
    result = RuleTally()
    for place, tally in auditor.tallies.items():
        if place.rule == rule:
            result.passed += tally.passed
            result.violated += tally.violated
            result.undecidable += tally.undecidable
    return result


def broken_rules(auditor: Auditor) -> set[str]:
    return {place.rule for place, tally in auditor.tallies.items() if tally.violated}


def play(rule: str, version: int = 1) -> tuple[Wire, Broken]:
    wire = Wire(seed=11)
    wire.version = version
    broken = SCRIPTS[rule](wire)
    hello(wire.connections[0])
    return wire, broken


# What a capture may be lacking


def late(wire: Wire) -> list[Packet]:
    """The capture began after the connection was made."""
    return wire.packets[3:]


def gapped(wire: Wire) -> list[Packet]:
    """A reply is not in the capture."""
    for _ in range(3):
        hello(wire.connections[0])
    replies = faults.where(wire.packets, kind="send", sender=SERVER)
    return faults.drop(wire.packets, [replies[-2]])


def short(wire: Wire) -> list[Packet]:
    """Frames are cut behind the first words of the RPC message, or inside the chunk lists."""
    return faults.snap(wire.packets, 96)


def shorter(wire: Wire) -> list[Packet]:
    return faults.snap(wire.packets, 72)


def longer(wire: Wire) -> list[Packet]:
    return faults.snap(wire.packets, 150)
