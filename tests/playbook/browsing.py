"""``rdmascope browse`` without a terminal: its keys pressed, its state looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot

from rdmascope.captures.tables.browsed_tables import LATER
from rdmascope.captures.tables.saved import is_data_set
from rdmascope.cli.browse.app import BrowseApp
from rdmascope.cli.browse.filling import BrowsedCapture, BrowseFeed
from rdmascope.cli.reading import analyzer_options

PATIENCE = 60.0
"""Seconds after which something will never be."""


@dataclass
class Browsing:
    """A running application."""

    app: BrowseApp
    pilot: Pilot[None]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        """Into a prompt, faster than it is drawn."""
        await self.until(lambda: len(self.app.screen_stack) > 1)
        for letter in text:
            self.app.post_message(events.Key(letter if letter.isalnum() else _character_to_key(letter), letter))
        await self.pilot.pause()

    async def until(self, happened: Callable[[], object]) -> None:
        """Wait for what processes do; never for a fixed time."""
        waited = 0.0
        while not happened():
            assert waited < PATIENCE, f"never: {self.status}, {self.said}"
            await self.pilot.pause(0.02)
            waited += 0.02

    @property
    def status(self) -> str:
        return str(self.app.query_one("#status").render())

    @property
    def said(self) -> list[str]:
        """Notifications that are on the screen."""
        return [one.message for one in self.app._notifications]

    def lines(self, pane: str) -> list[str]:
        """What a pane shows, all of it."""
        found = self.app.query_one(f"#{pane}")
        return [found.line(index).plain for index in range(found.count)]  # type: ignore[attr-defined]

    def screen(self) -> str:
        """The text on the screen."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())


@asynccontextmanager
async def browsing(
    path: Path | str, size: tuple[int, int] = (160, 50), where: str = "", whole: bool = True
) -> AsyncIterator[Browsing]:
    """``whole``: once the capture was read, and judged."""
    data_set = str(path) if is_data_set(str(path)) else ""
    captured = BrowsedCapture((str(path),), analyzer_options((), None), data_set=data_set)
    with closing(BrowseFeed(captured)) as feed:
        app = BrowseApp(feed, where)
        async with app.run_test(size=size) as pilot:
            found = Browsing(app, pilot)
            if whole:
                await found.until(lambda: {"rpcs", "findings", *LATER} <= app.finished)
                await found.until(lambda: app.diagnosis.node is not None)
                await found.until(lambda: app.strip.timeline is not None and (where or app.listed.count))
            yield found


def browse(
    path: Path | str, steps: Callable[[Browsing], Awaitable[None]], size: tuple[int, int] = (160, 50), where: str = ""
) -> None:
    """Run an application, and what is done with it."""

    async def run() -> None:
        async with browsing(path, size, where) as found:
            await steps(found)

    asyncio.run(run())
