"""What the process behind the panes of a live capture does: capture, keep, and fill tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from queue import Queue
from threading import Thread
from typing import NamedTuple

from rdmascope.captures.live import CaptureSettings, Keep, Keeper, Live, open_live
from rdmascope.captures.live.session import LiveSession
from rdmascope.captures.tables.browsed_tables import live_columns
from rdmascope.dissect.audit.finding import Finding
from rdmascope.dissect.records.rpc_columns import RpcBatches
from rdmascope.dissect.records.table import TableBuilder
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from .filling import ADDED, REPLACING, BrowsedCapture, TablePart

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
    while (one := waiting.get()) is not None:
        if isinstance(one, BaseException):
            raise one
        yield one


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
            on_rpcs=self._add_rpcs,
            on_finding=self._add_finding,
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

    def _add_rpcs(self, table: RpcTable) -> None:
        self._builders["rpcs"].add(self._batches.batch(table))

    def _add_finding(self, finding: Finding) -> None:
        self._builders["findings"].add(finding)

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
