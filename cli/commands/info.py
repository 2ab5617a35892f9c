"""``rdmascope info``: what a capture file is, before anything is made of its RPCs."""

from __future__ import annotations

from contextlib import closing

import click
from rich.text import Text

from rdmascope.captures import CaptureError, open_capture
from rdmascope.captures.read.file_info import FileInfo, file_info_record, trace_info_record
from rdmascope.captures.read.merge import expand
from rdmascope.captures.read.traces import Trace, is_trace
from rdmascope.dissect.records.schema import schema
from rdmascope.dissect.units import count

from ..reading import captures_of, file_argument
from ..terminal import EXIT_BAD_INPUT, Meter, complain, console, print_json, show
from ..views import info as views


@click.command("info")
@file_argument
@click.option("--checksums", is_flag=True, help="Verify the ICRC of every packet, and the VCRC where there is one.")
@click.option("--json", "as_json", is_flag=True, help=f"One {schema('info')} object a file.")
def command(files: tuple[str, ...], checksums: bool, as_json: bool) -> None:
    """A capture file at a glance: format, interfaces, time span, drops, truncation, and protocols.

    FILE may be a directory: then every capture in it is listed, one after the other.

    Example: is this capture complete?

    \b
      $ rdmascope info loss-rxe.pcap.zst --checksums
      loss-rxe.pcap.zst
        format    pcap, little-endian, zstd, 1.05 MiB (13.5 MiB unpacked)
        frames    4,473, 13.4 MiB on the wire, 3,144 bytes on average
        from      2026-11-21 01:41:27.185342 UTC
        to        2026-11-21 01:42:39.132277 UTC, 71.9 s
        rate      62 frames/s, 1.56 Mbit/s
        link type Ethernet (1)
        truncated none, the largest frame in the file has 4,170 bytes; snaplen
                  70,000
        drops     not recorded in the file
        ICRC      4,447 of 4,447 correct
    \b
      Frames  by what was found in them
        what   frames share
        RoCEv2  4,447   99% ███████████████████████████████████████████▊
        ICMPv6     22    0% ▎
        ARP         4    0% ▏

    Nothing is truncated, and every packet is intact.  A pcap file does not record what the capturing host dropped; a
    pcapng file may.  Frames that it dropped look like packets that the network lost: "report" calls both missing.
    """
    failed = False
    paths: list[tuple[str, bool]] = []
    for file in captures_of(files, "what files say of themselves"):
        try:
            paths += expand(file)
        except CaptureError as error:
            complain(str(error))
            failed = True
    shown = 0
    for path, listed in paths:
        if is_trace(path):
            failed = not _trace(path, as_json, bool(shown)) or failed
            shown += 1
            continue
        info = FileInfo(path, checksums)
        try:
            with closing(Meter(path)) as progress, open_capture(path) as capture:
                try:
                    for batch in capture.batches():
                        info.add(batch)
                        progress.at(capture.position, capture.size, f"{count(info.frames)} frames")
                except CaptureError as error:
                    info.damage = str(error)
                info.finish()
                if as_json:
                    print_json(file_info_record(info, capture))
                else:
                    out = console()
                    show(out, *([Text()] if shown else []), views.file_info_view(info, capture, out.width))
                shown += 1
        except CaptureError as error:
            complain(f"passed over: {error}" if listed else str(error))
            failed = failed or not listed
            continue
        if info.damage is not None:
            complain(info.damage)
            failed = True
    if not shown and not failed:
        raise click.ClickException(f"{files[0]}: no capture in this directory")
    if failed:
        click.get_current_context().exit(EXIT_BAD_INPUT)


def _trace(path: str, as_json: bool, behind: bool) -> bool:
    """What a trace of a kernel is; False where it is damaged.  ``behind``: something was shown before."""
    with Trace(path) as trace:
        said = trace_info_record(trace)
    if as_json:
        print_json(said)
    else:
        show(console(), *([Text()] if behind else []), views.trace_info_view(said))
    if said["error"] is not None:
        complain(said["error"])
    return said["error"] is None
