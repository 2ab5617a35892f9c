"""The panes of ``rdmascope live --browse``, whose lists grow and can be held still, and the processes behind them."""

from __future__ import annotations

import math
import pickle
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, ClassVar

from textual.binding import BindingType

from rdmascope.captures import CaptureError
from rdmascope.captures.live import CaptureSettings, Keep, Keeper, Live, open_live
from rdmascope.captures.live.session import LiveSession
from rdmascope.captures.parallel.processes import Reply
from rdmascope.captures.tables.browsed_tables import LATER, BrowsedTables, live_columns
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.records.rpc_columns import RpcBatches, TableBuilder
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.units import count

from .app import BrowseApp, Came
from .filling import ADDED, PREPARED, REPLACING, BrowsedCapture, BrowseFeed, ReadToEnd, TablePart, take_part
from .lines_pane import KEYS, KeyBinding, TreePane, bindings

TURN = 0.3
"""Seconds for which rows are gathered before they are handed over."""
WAITING = 64
"""Parts that may wait to be sent."""


class WatchStatus(NamedTuple):
    """How a live capture goes."""

    device: str
    kept: BrowsedCapture
    """What can still be looked at."""
    frames: int
    dropped: int | None
    """By the kernel; None: not known."""
    first_time: int
    """Nanoseconds; of the first frame."""
    trouble: str
    """Why nothing can come now; '' where something can."""
    ended: bool = False


class WatchedDevice(NamedTuple):
    """What is captured, and how long."""

    device: str
    settings: CaptureSettings
    options: Options
    """Bounded."""
    keep: Keep
    """Its path is in the folder of the feed."""
    duration: int | None = None
    """Nanoseconds."""


Sent = TablePart | WatchStatus


def watch(watched: WatchedDevice, application: str) -> Iterator[Sent]:
    """Capture until it is over; gives the rows of rpcs, connections and findings.

    Raises CaptureError at first where it cannot be begun.
    """
    waiting: Queue[Sent | BaseException | None] = Queue(WAITING)

    def run() -> None:
        try:
            with closing(open_live(watched.device, watched.settings)) as live:
                _WatchedTables(watched, live, application, waiting).run()
        except BaseException as error:  # It is raised again below, where it is sent.
            waiting.put(error)
        waiting.put(None)

    Thread(target=run, daemon=True).start()
    while (item := waiting.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item


class _WatchedTables:
    """A live session whose nouns become rows."""

    def __init__(
        self,
        watched: WatchedDevice,
        live: Live,
        application: str,
        waiting: Queue[Sent | BaseException | None],
    ) -> None:
        self._watched, self._live = watched, live
        self._waiting = waiting
        self._trouble = live.device.note
        self.session = LiveSession(
            live,
            watched.options,
            on_rpcs=lambda table: self._builders["rpcs"].add(self._batches.batch(table)),
            on_finding=lambda finding: self._builders["findings"].add(finding),
            on_turn=self._turn,
            on_trouble=self._note_trouble,
        )
        self.session.keeper = self._keeper = Keeper(watched.keep, live, application)
        self._builders = {name: TableBuilder(TABLES[name], live_columns(name)) for name in ("rpcs", "findings")}
        self._batches = RpcBatches(False, True, self.session)
        self._frames = 0
        self._turned = 0.0

    def run(self) -> None:
        self._hand_over()
        self.session.run(self._watched.duration)
        self._hand_over(ended=True)
        if self.session.damage is not None:
            raise self.session.damage

    def _note_trouble(self, words: str) -> None:
        self._trouble = self.session.trouble and words

    def _turn(self) -> None:
        if time.monotonic() - self._turned >= TURN:
            self._hand_over()

    def _hand_over(self, ended: bool = False) -> None:
        self._turned = time.monotonic()
        session, live = self.session, self._live
        live.count()
        for builder in self._builders.values():
            self._send(builder)
        if session.analyzer.frames != self._frames or ended:
            self._frames = session.analyzer.frames
            connections = TableBuilder(TABLES["connections"])
            for conversation in session.analyzer.conversations:
                connections.add(conversation)
            self._send(connections, REPLACING)
        kept = BrowsedCapture(self._keeper.kept, self._watched.options, self._keeper.frames_before)
        self._waiting.put(
            WatchStatus(str(live.device), kept, self._frames, live.dropped, session.first_time, self._trouble, ended)
        )

    def _send(self, builder: TableBuilder, purpose: str = ADDED) -> None:
        if rows := len(builder):
            self._waiting.put(TablePart(builder.table.name, builder.take(), rows, purpose))


OF_DEVICE = ("rpcs", "connections", "findings")
"""Tables that are filled as traffic passes."""
MAX_ROWS = {"rpcs": 1 << 20, "findings": 1 << 16}
"""Rows that are kept of what is added to without end."""


class HeldPart(NamedTuple):
    """Rows that are held back, in a file."""

    table: str
    rows: int
    replacing: bool
    path: Path


class LiveFeed(BrowseFeed):
    """Packets, files and the diagnosis are asked for, and made of the packets that are kept."""

    keyed = True

    def __init__(self, watched: WatchedDevice) -> None:
        self._watched = watched
        self.paused = False
        """What comes is held back."""
        self._held: deque[HeldPart] = deque()
        self._parts = 0
        """Parts that were held back."""
        self.oldest = 1
        """Number of the first RPC that is there."""
        self.taken = 0
        """Parts whose rows are there."""
        self.first: WatchStatus
        super().__init__(BrowsedCapture((), watched.options, 0))

    def _begin(self) -> None:
        """Waits until the capture has begun; raises CaptureError where it cannot."""
        keep = replace(self._watched.keep, path=str(Path(self.folder, self._watched.keep.path)))
        watched = self._watched._replace(keep=keep)
        application = f"rdmascope {version('rdmascope')}"
        self._start("watching", lambda: {"watch": lambda: watch(watched, application)})
        self._request("watching", "fill rpcs connections findings", "watch")
        first = next(self._workers["watching"].replies())
        if not isinstance(first.value, WatchStatus):
            self.close()
            raise CaptureError(first.problem)
        self.first, self.capture = first.value, first.value.kept

    def judge(self) -> None:
        """Diagnose what is kept."""
        self._request("asked", "diagnosis", "diagnosis", self.capture)

    def look(self, job: str, *arguments: Any, latest: bool = True) -> None:
        """What is written is named by its frames, where a pass gives RPCs other numbers."""
        if job in ("write", "export") and not self.capture.numbered:
            output, *meant = arguments
            rpcs, where = meant if job == "write" else (frozenset(), *meant)
            if rpcs:
                where = f"number IN ({', '.join(map(str, sorted(rpcs)))})"
            frames = self.tables.asked().call_frames(where) if where else ()
            where = f"coalesce(call_frame, reply_frame) IN ({', '.join(map(str, frames))})" if where else ""
            arguments = (output, frozenset(), where) if job == "write" else (output, where)
        super().look(job, *arguments, latest=latest)

    def _take(self, reply: Reply, tables: BrowsedTables) -> None:
        value = reply.value
        if isinstance(value, WatchStatus):
            self.capture = value.kept
        elif not isinstance(value, TablePart) or value.table not in OF_DEVICE or value.purpose == PREPARED:
            super()._take(reply, tables)
        elif self.paused:
            self._hold(value)
        else:
            self._take_held(tables)
            self._take_part(value, tables)
        if not self.paused:
            self._take_held(tables)

    def _take_held(self, tables: BrowsedTables) -> None:
        while self._held:
            held = self._held.popleft()
            with held.path.open("rb") as file:
                self._take_part(pickle.load(file), tables)
            held.path.unlink()

    def _take_part(self, part: TablePart, tables: BrowsedTables) -> None:
        self.taken += 1
        take_part(part, tables)
        if part.table in MAX_ROWS:
            tables.keep_last(part.table, MAX_ROWS[part.table])
        if part.table == "rpcs":
            self.oldest = tables.oldest("rpcs") or 1

    def _hold(self, part: TablePart) -> None:
        """What would be removed as soon as it is taken in need not be held."""
        self._parts += 1
        path = Path(self.folder, f"held-{self._parts}")
        with path.open("wb") as file:
            pickle.dump(part, file)
        self._held.append(HeldPart(part.table, part.rows, part.purpose == REPLACING, path))
        rows = dict.fromkeys(MAX_ROWS, 0)
        kept: deque[HeldPart] = deque()
        replaced = False
        for held in reversed(self._held):
            if (held.replacing and replaced) or (not held.replacing and rows[held.table] > MAX_ROWS[held.table]):
                held.path.unlink()
                continue
            replaced |= held.replacing
            if not held.replacing:
                rows[held.table] += held.rows
            kept.appendleft(held)
        self._held = kept


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
        for noun in [self.listed.noun, *(["diagnosis"] if self.diagnosis.has_focus else [])]:
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
