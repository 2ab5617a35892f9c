"""``rdmascope verify``: Wireshark's second opinion."""

from __future__ import annotations

from collections.abc import Sequence

import click

from rdmascope.captures import CaptureError
from rdmascope.captures.wireshark.second_opinion import Tshark, TsharkInput, compare, find_tshark, in_words
from rdmascope.captures.write.output import seekable
from rdmascope.dissect.records.comparison import difference_record, verification_record
from rdmascope.dissect.records.schema import schema
from rdmascope.dissect.verify.second_opinion import FIELD, Difference

from ..each_capture import EachCapture, GivenCaptures
from ..reading import analyzer_options, packets_argument, recognition_options
from ..terminal import EXIT_FOUND, complain, console, print_json, show
from ..views import verify as views

MAX_LISTED = 10
MAX_IN_WORDS = 100
"""Frames that Wireshark is asked to describe."""


@click.command("verify")
@packets_argument
@click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="N",
    help=f"List at most N differences of a kind, 0 for all.  [default: {MAX_LISTED}; with --json all]",
)
@click.option(
    "--headers", is_flag=True, help="Compare headers, and which reply answers which call; no fields inside them."
)
@click.option(
    "--json", "as_json", is_flag=True, help=f"{schema('difference')} objects, and one {schema('verification')}."
)
@recognition_options
def command(
    files: tuple[str, ...],
    limit: int | None,
    headers: bool,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
) -> int:
    """Compare with Wireshark: packet headers, calls and replies, field by field.

    tshark 4.0 or later reads the same frames, in two passes. Where the two differ, both are shown, with which one is
    right and why, if that is known: known errors of Wireshark explain some differences.

    Exit status: 0 where they agree or every difference is explained, 1 where one is not, 2 where nothing can be
    compared.

    Example: are these long calls decoded correctly?

    \b
      $ rdmascope verify longcall-rxe.pcap.zst
      longcall-rxe.pcap.zst beside tshark ...
      they agree, 16 differences explained
    \b
                          compared equal explained unexplained
        packets                216   216         -           -
        transport headers       82    82         -           -
        calls                   41    36         5           -
        replies                 41    36         5           -
        fields               3,309 3,308         1           -

    Both agree on every header field of all 216 packets, and on the fields inside calls and replies, which Wireshark
    reads as ONC RPC over TCP: each field has the same bytes at the same offset, and none is missing on either side
    (docs/verify.md lists the fields). They agree on calls and replies, too, except for five, which have a Read chunk:

    \b
      Both are right: Wireshark shows a call with a Read chunk in the last Read
      response and counts its time from there, rdmascope from the Send (15)
        see Wireshark, epan/dissectors/packet-rpcrdma.c
        frame what  field        rdmascope Wireshark
        107   call  frame.number 107       113
        114   reply rpc.repframe 107       113
        114   reply rpc.time     8.91 ms   3.85 ms
        ...

    The call was sent in frame 107 and was answered 8.91 ms later.  Wireshark shows it when all its data has arrived,
    in frame 113, so its response time excludes the transfer of the data.
    """
    agree = True
    with seekable(files) as paths:
        given = GivenCaptures(files, analyzer_options(ports, force, contents=not headers), paths)
        for at, capture in enumerate(given):
            if at and not as_json:
                click.echo()
            capture.reading().needs_packets()
            with TsharkInput(capture.paths) as readable:
                agree &= _verify(capture, given, readable, find_tshark(), limit, headers, as_json)
    given.check()
    return 0 if agree else EXIT_FOUND


def _verify(
    capture: EachCapture,
    given: GivenCaptures,
    readable: TsharkInput,
    tshark: Tshark,
    limit: int | None,
    headers: bool,
    as_json: bool,
) -> bool:
    """Whether the two agree about a capture."""
    reading = capture.reading()
    name = "standard input" if given.files == ("-",) else capture.name
    if capture.behind is not None:
        first, last = capture.behind.frames
        name = f"{name}, frames {first:,}-{last:,}," if not as_json else reading.path
    kinds = views.Kinds((0 if as_json else MAX_LISTED) if limit is None else limit)

    def found(difference: Difference) -> None:
        listed = kinds.add(difference)
        if as_json and listed:
            print_json(capture.placed(reading, difference_record(difference)))

    comparison = compare(reading, readable, tshark, found, not headers)
    if comparison.unknown:
        complain(f"{tshark} does not know {', '.join(sorted(comparison.unknown))}, so this is not compared")
    if as_json:
        print_json(capture.placed(reading, verification_record(name, tshark.version, comparison, comparison.agree)))
    else:
        words = _in_words(kinds.undecided(), tshark, readable.path, reading.frames_before)
        show(console(), views.verification(name, str(tshark), comparison, kinds, words))
    given.ended(reading)
    return comparison.agree


def _in_words(differences: Sequence[Difference], tshark: Tshark, path: str, before: int) -> dict[int, list[str]]:
    """Wireshark's own words for the frames whose differences are unexplained, so many behind the first of the file."""
    differences = [difference for difference in differences if difference.what != FIELD]
    frames = sorted({difference.frame - before for difference in differences})[:MAX_IN_WORDS]
    fields = [difference.field for difference in differences]
    try:
        return {frame + before: said for frame, said in in_words(tshark, path, frames, fields).items()}
    except CaptureError as error:
        complain(str(error))
        return {}
