"""A capture beside Wireshark's reading of it: tshark is asked for the fields of every frame, and they are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import decode
from rdmascope.dissect.verify.frame_fields import ASKED, DISPLAY_FILTER, FRAME, FrameFields, tshark_fields
from rdmascope.dissect.verify.second_opinion import Comparison, Difference, OtherMessages, Ours

from .errors import CaptureError
from .session import Session
from .wireshark import Tshark, TsharkInput, UnknownFields, field_lines


def compare(
    session: Session, readable: TsharkInput, tshark: Tshark, on_difference: Callable[[Difference], None]
) -> Comparison:
    """Read the capture, and hold it against what tshark says; ``on_difference`` is given each difference.

    ``readable`` is made of the session's paths, and becomes what tshark reads.  Fields that this tshark does not know
    are left out, and are ``unknown`` of the result.  Raises CaptureError where nothing can be compared.
    """
    ours = _ours(session, readable)

    def compared(unknown: frozenset[str]) -> Comparison:
        comparison = Comparison(ours, unknown)
        known = [name for name in ASKED if name not in unknown]
        damaged = session.damage is not None
        with closing(field_lines(tshark, readable.path, known, DISPLAY_FILTER, damaged)) as lines:
            for difference in comparison.run(_sighting(known, line) for line in lines):
                on_difference(difference)
        return comparison

    try:
        return compared(frozenset())
    except UnknownFields as lacking:
        if FRAME in lacking.names:
            raise
        return compared(lacking.names)


def _ours(session: Session, readable: TsharkInput) -> Ours:
    """Our reading of the capture; on the way, tshark's copy of it is written where one is needed."""
    ours = Ours()
    analyzer = session.analyzer
    analyzer.listener = lambda conversation: OtherMessages(ours)
    analyzer.watch_fpdus(ours.add_fpdus)
    for batch in session.batches():
        readable.add(batch)
        for rpc in analyzer.feed(batch):
            ours.add_rpc(rpc)
        ours.add_packets(batch, decode(batch, locate(batch, analyzer.addresses)))
    for rpc in analyzer.finish():
        ours.add_rpc(rpc)
    if analyzer.iwarp is not None:
        ours.streams.known |= dict.fromkeys(analyzer.iwarp.connections.values())
    readable.finish()
    return ours


def _sighting(names: Sequence[str], line: Sequence[str]) -> FrameFields:
    try:
        return tshark_fields(line, names)
    except ValueError as error:
        raise CaptureError(f"what tshark printed is not what was asked for: {error}") from None
