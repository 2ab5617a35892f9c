"""``rdmascope browse``: a capture in panes."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import closing

import click

from rdmascope.captures.merge import open_captures
from rdmascope.captures.saved import refuse_tables

from ..browse.feed import BrowseFeed
from ..browse.jobs import BrowsedCapture
from ..exit_status import EXIT_SIGNAL
from ..reading import analyzer_options, file_argument, recognition_options


@click.command("browse")
@file_argument
@click.option("--where", metavar="SQL", default="", help="Begin with this filter, a condition as of other commands.")
@recognition_options
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], where: str, ports: tuple[int, ...], force: str | None) -> None:
    """Walk through a capture on the terminal: RPCs, packets, connections, files and findings as lists, and beside them
    the tree of what is chosen, its packets or its bytes, and what is wrong.

    Keys are those of most programs: arrows or h j k l, Tab for the next list, / to find, f to filter, s to sort, n for
    the next error, Enter to go into something, Esc to come back, ? for all of them, q to quit. A mouse does, too. On
    top are rates and latencies over time: drag over a part of it, and the lists have only that.

    The lists fill while the capture is being read. What was marked or filtered can be written as a capture, or opened
    in Wireshark.

    Example: look at the calls that took long

    \b
      $ rdmascope browse nfs.pcap --where 'latency_ms > 10'
    """
    if "-" in files:
        raise click.UsageError("standard input is the keyboard: browse takes files", ctx)
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        raise click.ClickException("browse needs a terminal; rdmascope report and rpcs do not")
    refuse_tables(files)
    with open_captures(files):  # What cannot be read is said here.
        pass
    feed = BrowseFeed(BrowsedCapture(files, analyzer_options(ports, force)))
    with closing(feed):
        from ..browse.app import BrowseApp

        app = BrowseApp(feed, where)

        def end(number: int, _: object) -> None:
            """The screen is put back; but not that of a terminal that went away, for nothing takes what is written."""
            if number == signal.SIGHUP:
                feed.abandon()
                os._exit(EXIT_SIGNAL + number)
            app.call_later(app.exit, return_code=EXIT_SIGNAL + number)

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, end)
        app.run()
    ctx.exit(app.return_code or 0)
