"""Hypothesis strategies for whole iWARP conversations: connections, RPCs, segments, faults, and their truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from hypothesis.vendor.pretty import RepresentationPrinter

from . import cm, faults, tcp_faults
from .iwarp import IwarpCapture, IwarpWire
from .strategies import FOREIGN, talk
from .tcp import TcpSegment

PRIVATE = (None, b"", b"xyz" + cm.private_data(), bytes(32))


@dataclass(slots=True)
class IwarpConversation:
    """A drawn conversation; str() of it is what Hypothesis shows."""

    wire: IwarpWire
    segments: list[TcpSegment]
    story: list[str] = field(default_factory=list)
    """What was drawn, in words."""

    @property
    def capture(self) -> IwarpCapture:
        return IwarpCapture(self.wire, self.segments)

    def __repr__(self) -> str:
        return "; ".join(self.story)

    def _repr_pretty_(self, printer: RepresentationPrinter, cycle: bool) -> None:
        printer.text(repr(self))


@st.composite
def iwarp_conversations(
    draw: DrawFn,
    *,
    max_connections: int = 3,
    max_rpcs: int = 6,
    cm: st.SearchStrategy[bool] | None = None,
    crc: st.SearchStrategy[bool] | None = None,
    markers: st.SearchStrategy[bool] | None = None,
    strangers: bool = True,
) -> IwarpConversation:
    """What two hosts said, nothing wrong on the wire or in the capture."""
    wire = IwarpWire(mss=draw(st.sampled_from([256, 536, 1448, 4148, 8960])), seed=draw(st.integers(0, 1 << 16)))
    story = [f"mss {wire.mtu}"]
    for _ in range(draw(st.integers(1, max_connections))):
        managed = draw(cm if cm is not None else st.booleans())
        options: dict[str, Any] = {
            "revision": draw(st.sampled_from([1, 2])),
            "markers": tuple(draw(markers if markers is not None else st.booleans()) for _ in range(2)),
            "crc": draw(crc if crc is not None else st.booleans()),
            "filler": draw(st.sampled_from([bytes(4), b"\xde\xad\xbe\xef"])),
            "mulpdu": draw(st.sampled_from([None, 64, 500, 8192, 65000])),
            "cutting": draw(st.sampled_from(["aligned", "merged", "random"])),
            "options": draw(st.booleans()),
            "client_isn": draw(st.one_of(st.none(), st.integers((1 << 32) - 3000, (1 << 32) - 1))),
            "server_isn": draw(st.one_of(st.none(), st.integers((1 << 32) - 3000, (1 << 32) - 1))),
            "client_private": draw(st.sampled_from(PRIVATE)),
            "server_private": draw(st.sampled_from(PRIVATE)),
            "acks": draw(st.sampled_from(["message", "packet", "lazy"])),
        }
        if options["revision"] == 2:
            options["ready"] = draw(st.sampled_from(["", "", "F", "W", "R"]))
        addresses = draw(st.sampled_from([("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")]))
        connection = wire.connect(*addresses, cm=managed, **options)
        story.append(f"connection {connection.number}: cm {managed}, {options}")
        talk(draw, connection, story, max_rpcs)
        connection.push()
        ending = draw(st.sampled_from(["", "FIN", "RST", "Terminate"]))
        if ending == "FIN":
            connection.disconnect(draw(st.integers(0, 1)))
        elif ending == "RST":
            connection.reset(draw(st.integers(0, 1)))
        elif ending:
            connection.terminate(draw(st.integers(0, 1)), 0, 1, 0)
        story.append(f"  ended by {ending or 'nothing'}")
    if strangers and draw(st.booleans()):
        stranger = draw(st.sampled_from(FOREIGN))
        stranger(wire)
        story.append(f"beside it: {stranger.__name__}")
    segments = wire.sent()
    if draw(st.booleans()):
        segments = faults.interleave(wire, segments, wire.random)
        story.append("interleaved")
    return IwarpConversation(wire, segments, story)


REPAIRED = ("lost", "lost and more", "reorder", "repeat", "ghost", "keepalive", "duplicate", "drop ack")
"""Nothing is missing in the end."""
FATAL = ("terminate", "reset", "drop", "swap")
SPOILED = ("corrupt", "corrupt and repaired")
"""Only right CRCs seen before make a wrong one tell."""


@st.composite
def iwarp_faulty(
    draw: DrawFn,
    kinds: tuple[str, ...] = REPAIRED + FATAL,
    conversation: st.SearchStrategy[IwarpConversation] | None = None,
    max_faults: int = 4,
) -> IwarpConversation:
    """A conversation with faults of the given kinds."""
    base = draw(conversation if conversation is not None else iwarp_conversations())
    segments, story = base.segments, [*base.story]
    for _ in range(draw(st.integers(1, max_faults))):
        kind = draw(st.sampled_from(kinds))
        index = aim(segments, kind, draw(st.integers(0, len(segments))))
        if index is None:
            continue
        recorded, distance, size = draw(st.booleans()), draw(st.integers(1, 5)), draw(st.integers(0, 2000))
        segments = harm(base.wire, segments, kind, index, recorded, distance, size)
        story.append(f"{kind} at {index}, recorded {recorded}, distance {distance}, size {size}")
    return IwarpConversation(base.wire, segments, story)


def aim(segments: list[TcpSegment], kind: str, start: int) -> int | None:
    """The first segment from ``start`` on, around the end, that this fault can happen to."""
    wanted = "ack" if kind == "drop ack" else "data"
    for step in range(len(segments)):
        index = (start + step) % len(segments)
        if segments[index].kind == wanted:
            return index
    return None


def harm(
    wire: IwarpWire, segments: list[TcpSegment], kind: str, index: int, recorded: bool, distance: int, size: int
) -> list[TcpSegment]:
    match kind:
        case "lost" | "lost and more":
            return tcp_faults.lose(wire, segments, index, recorded=recorded, more=kind != "lost")
        case "reorder":
            return tcp_faults.reorder(segments, index)
        case "repeat":
            return tcp_faults.repeat(wire, segments, index, size, distance)
        case "ghost":
            return faults.ghost(segments, index, distance)
        case "keepalive":
            return tcp_faults.keepalive(wire, segments, index)
        case "corrupt" | "corrupt and repaired":
            return tcp_faults.corrupt(wire, segments, index, size, repaired=kind != "corrupt")
        case "terminate":
            return tcp_faults.terminate(wire, segments, index, 0, 1, 0)
        case "reset":
            return tcp_faults.reset(wire, segments, index)
        case "drop" | "drop ack":
            return faults.drop(segments, [index])
        case "swap":
            return faults.swap(segments, index, distance)
        case "duplicate":
            return faults.duplicate(segments, index, distance)
    raise AssertionError(kind)
