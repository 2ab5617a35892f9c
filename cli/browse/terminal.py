"""Panes on a terminal, which is put back whatever ends them."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

import click

from rdmascope.captures.errors import need
from rdmascope.dissect.rpcrdma.analyzer import Options

from ..terminal import EXIT_SIGNAL
from .filling import BACKGROUND, BrowseFeed

if TYPE_CHECKING:
    from rdmascope.captures.live import CaptureSettings, Keep

    from .app import BrowseApp


def need_terminal(instead: str) -> None:
    """Raises ClickException where there is none; ``instead``: commands that need none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        raise click.ClickException(f"browse needs a terminal; {instead} not")
    need("textual")


def load(module: str) -> None:
    """Import one while processes read: they come first, and only a thread can be nice for no longer than it lives."""

    def run() -> None:
        os.nice(BACKGROUND)  # Of this thread alone, as Linux has it.
        import_module(module)

    thread = Thread(target=run)
    thread.start()
    thread.join()


def walk(feed: BrowseFeed, make: Callable[[], BrowseApp]) -> int:
    """Show the panes until they are left; gives the exit status.  ``make``: of the application, once all is forked."""
    with closing(feed):
        gc.disable()  # Imports make no garbage.
        app = make()
        gc.freeze()
        gc.enable()

        def end(number: int, _: object) -> None:
            """The screen is put back; but not that of a terminal that went away, for nothing takes what is written."""
            if number == signal.SIGHUP:
                feed.abandon()
                os._exit(EXIT_SIGNAL + number)
            app.end(EXIT_SIGNAL + number)

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, end)
        app.run()
    return app.return_code or 0


def walk_live(
    device: str, settings: CaptureSettings, options: Options, keep: Keep, duration: int | None, paused: bool
) -> int:
    """Show a device's traffic in the panes until they are left; gives the exit status. ``keep``: the packets that can
    be inspected."""
    need_terminal("rdmascope live --json does")
    from .live_app import LiveFeed, WatchedDevice

    feed = LiveFeed(WatchedDevice(device, settings, options, keep, duration))

    def make() -> BrowseApp:
        from .live_app import LiveBrowseApp

        return LiveBrowseApp(feed, paused)

    return walk(feed, make)
