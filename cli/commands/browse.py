"""``rdmascope browse``: a capture in panes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rdmascope.captures.read.merge import open_captures

from ..browse.filling import BrowsedCapture, BrowseFeed
from ..browse.terminal import load, need_terminal, walk
from ..each_capture import GivenCaptures
from ..reading import analyzer_options, no_jobs_option, packets_argument, recognition_options

if TYPE_CHECKING:
    from ..browse.app import BrowseApp


@click.command("browse")
@packets_argument
@click.option("--where", metavar="SQL", default="", help="Begin with this filter, a condition as of other commands.")
@recognition_options
@no_jobs_option("what is on the screen is read as it is looked at, by one process")
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], where: str, ports: tuple[int, ...], force: str | None) -> None:
    """Walk through a capture on the terminal: RPCs, packets, connections, files and findings as lists, and beside them
    the tree of the selected row, its packets or its bytes, and what is wrong.

    Keys are those of most programs: arrows or h j k l, Tab for the next list, / to find, f to filter, s to sort, n for
    the next error, Enter to go into something, Esc to come back, ? for all of them, q to quit. The mouse works, too. At
    the top are rates and latencies over time: drag over a part to limit the lists to it.

    The lists fill while the capture is being read. Marked or filtered RPCs can be written as a capture, or opened in
    Wireshark.

    Example: look at the calls that took long

    \b
      $ rdmascope browse nfs.pcap --where 'latency > 10ms'
    """
    if "-" in files:
        raise click.UsageError("standard input is the keyboard: browse takes files", ctx)
    need_terminal("rdmascope report and rpcs do")
    options = analyzer_options(ports, force)
    data_set = GivenCaptures(files, options).behind  # What cannot be read is said here.
    if data_set is None:
        with open_captures(files):
            pass
    feed = BrowseFeed(BrowsedCapture(files, options, data_set="" if data_set is None else files[0]))

    def make() -> BrowseApp:
        load("rdmascope.cli.browse.app")
        from ..browse.app import BrowseApp

        return BrowseApp(feed, where)

    ctx.exit(walk(feed, make))
