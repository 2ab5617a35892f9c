"""A capture beside Wireshark's reading of it: tshark is asked for the fields of every frame, and they are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import decode
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.verify.frame_fields import ASKED, DISPLAY_FILTER, FRAME, FrameFields, tshark_fields
from rdmascope.dissect.verify.second_opinion import FIELD, Comparison, Difference, OtherMessages, Ours

from ..errors import CaptureError
from ..session.session import Session
from .message_fields import MessageFields
from .tshark import Tshark, TsharkInput, UnknownFields, field_lines

OF_FRAMES = (FRAME, "rpc.reqframe", "rpc.repframe")
"""Fields that are numbers of frames."""


def compare(
    session: Session,
    readable: TsharkInput,
    tshark: Tshark,
    on_difference: Callable[[Difference], None],
    fields: bool = True,
) -> Comparison:
    """Read the capture, and hold it against what tshark says; ``on_difference`` is given each difference.

    ``fields``: also every field of the calls and replies, which takes their contents (``Options.contents``).
    ``readable`` is made of the session's paths, and becomes what tshark reads.  Fields that this tshark does not know
    are left out, and are ``unknown`` of the result.  Raises CaptureError where nothing can be compared.
    """
    with MessageFields() as messages:
        ours = _ours(session, readable, messages if fields else None)
        comparison = _frame_by_frame(ours, session, readable, tshark, on_difference)
        if fields:
            for difference in messages.compare(tshark):
                on_difference(difference)
            comparison.tallies[FIELD] = messages.tally
            comparison.names = frozenset(messages.names)
        return comparison


def _frame_by_frame(
    ours: Ours,
    session: Session,
    readable: TsharkInput,
    tshark: Tshark,
    on_difference: Callable[[Difference], None],
) -> Comparison:
    def compared(unknown: frozenset[str]) -> Comparison:
        comparison = Comparison(ours, unknown)
        known = [name for name in ASKED if name not in unknown]
        damaged = session.damage is not None
        with closing(field_lines(tshark, readable.path, known, DISPLAY_FILTER, damaged)) as lines:
            before = session.frames_before
            for difference in comparison.run(_sighting(known, line, before) for line in lines):
                on_difference(difference)
        return comparison

    try:
        return compared(frozenset())
    except UnknownFields as lacking:
        if FRAME in lacking.names:
            raise
        return compared(lacking.names)


def _ours(session: Session, readable: TsharkInput, messages: MessageFields | None) -> Ours:
    """Our reading of the capture; on the way, tshark's copy of it is written where one is needed."""

    def add(rpc: Rpc) -> None:
        ours.add_rpc(rpc)
        if messages is not None:
            messages.add(rpc)

    ours = Ours()
    analyzer = session.analyzer
    analyzer.listener = lambda conversation: OtherMessages(ours)
    analyzer.watch_fpdus(ours.add_fpdus)
    for batch in session.batches():
        readable.add(batch)
        for rpc in analyzer.feed(batch):
            add(rpc)
        ours.add_packets(batch, decode(batch, locate(batch, analyzer.addresses)))
    for rpc in analyzer.finish():
        add(rpc)
    if analyzer.iwarp is not None:
        ours.streams.known |= dict.fromkeys(analyzer.iwarp.connections.values())
    readable.finish()
    return ours


def _sighting(names: Sequence[str], line: Sequence[str], before: int) -> FrameFields:
    """What a line says, with frames numbered behind so many."""
    try:
        found = tshark_fields(line, names)
        if not before:
            return found
        moved = {name: tuple(one + before for one in values) if name in OF_FRAMES else values
                 for name, values in found.fields.items()}  # fmt: skip
        return found._replace(frame=found.frame + before, fields=moved)
    except ValueError as error:
        raise CaptureError(f"what tshark printed is not what was asked for: {error}") from None
