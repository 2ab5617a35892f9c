"""The panes of ``rdmascope live --browse``: the lists grow, and can be held still."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, ClassVar

from textual.binding import BindingType

from rdmascope.captures.tables.browsed_tables import LATER
from rdmascope.dissect.units import count

from .app import BrowseApp
from .filling import ReadToEnd
from .keys import KEYS, KeyBinding, bindings
from .lines_pane import TreePane
from .live_feed import LiveFeed, WatchStatus
from .panes import Came

PAUSE = KeyBinding("p", "p", "pause", "pause", "hold the lists still, or go on")
AGAIN = 2.0
"""Seconds after which what is made of all packets that are kept is made again."""
OF_PACKETS = ("packets", "files", "diagnosis")


class LiveBrowseApp(BrowseApp):
    """Traffic as it passes."""

    KEYS = (PAUSE, *KEYS)
    BINDINGS: ClassVar[list[BindingType]] = [*bindings((PAUSE,))]
    feed: LiveFeed

    def __init__(self, feed: LiveFeed, paused: bool = False) -> None:
        super().__init__(feed)
        self.title = "rdmascope live"
        feed.paused = paused
        self.capture_name = feed.first.device
        self.listed.tails = True
        self.watched = feed.first
        self.filled.update(OF_PACKETS)
        self.finished.update(LATER)
        self.opening = False
        self._taken = 0
        self._asked: dict[str, tuple[int, float]] = {}
        """How many frames there were when something was asked for, and when that was answered."""
        self.diagnosis = TreePane("diagnosis", "diagnosis", "5 diagnoses the packets that are kept")

    @property
    def first_time(self) -> int:
        return self.watched.first_time

    @property
    def follows(self) -> bool:
        """The cursor stays on the newest row."""
        return not self.feed.paused and self.listed.cursor >= self.listed.count - 1

    def action_pause(self) -> None:
        self.feed.paused = not self.feed.paused
        self._settle()
        self.show_status()

    def on_came(self, message: Came) -> None:
        value = message.reply.value
        if isinstance(value, WatchStatus):
            self._take_status(value)
        if message.reply.ended and (noun := message.job.removeprefix("fill ")) in self._asked:
            self._asked[noun] = self._asked[noun][0], time.monotonic()
        super().on_came(message)

    def _take_status(self, status: WatchStatus) -> None:
        if status.trouble and self.watched.trouble != status.trouble:
            self.notify(f"{self.capture_name}: {status.trouble}", severity="warning", markup=False)
        self.watched = status
        if self._taken != self.feed.taken:
            self._taken = self.feed.taken
            self._stale = True
        self.lay_out_list()
        self._make_again()

    def _make_again(self) -> None:
        """What is shown of the packets that are kept, where others are kept now."""
        shown = [self.listed.noun, *(["diagnosis"] if self.diagnosis.has_focus else [])]
        for noun in shown:
            frames, answered = self._asked.get(noun, (0, 0.0))
            if (
                noun in OF_PACKETS
                and not self.feed.paused
                and frames != self.watched.frames
                and time.monotonic() - answered > AGAIN
            ):
                self._asked[noun] = self.watched.frames, math.inf
                if noun == "diagnosis":
                    self.feed.judge()
                else:
                    self.feed.fill(noun)

    def list_noun(self, noun: str) -> None:
        super().list_noun(noun)
        self._make_again()

    def action_pane(self, name: str) -> None:
        super().action_pane(name)
        self._make_again()

    def _take_read(self, job: str, read: ReadToEnd) -> None:
        """What is kept is read again and again, and its last frame may be half written."""

    def _look_at(self, noun: str, row: dict[str, Any], number: int) -> None:
        if self.follows:
            self.ladder.show((), "the newest RPC: p, or a line above, shows the packets")
        else:
            super()._look_at(noun, row, number)

    def _reading(self) -> str:
        if self.feed.paused:
            return "paused"
        return "live" if self.watched.frames else "nothing yet"

    def show_status(self) -> None:
        super().show_status()
        status = self.watched
        kept = self.feed.capture.frames_before or 0
        lost = "dropped: unknown"
        if status.dropped is not None:
            lost = f"{count(status.dropped)} dropped" if status.dropped else "none dropped"
        parts = [f"{Path(self.capture_name).name}: {count(status.frames)} frames, {lost}"]
        parts.append(f"kept: RPCs from {count(self.feed.oldest)}, packets from frame {count(kept + 1)}")
        if status.trouble:
            parts.append(status.trouble)
        self.listed.border_title = " · ".join(parts)
