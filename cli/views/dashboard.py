"""The picture of a live capture on the terminal, and the keys that change it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self, TypeVar

from rich.console import RenderableType
from rich.control import Control
from rich.live import Live as Screen

from rdmascope.captures.live.session import LiveSession
from rdmascope.dissect.audit.result import who

from ..keys import keyboard, pressed
from ..terminal import console
from .live import CONNECTION_ORDERS, OPERATION_ORDERS, Breach, Look, Row, Snapshot, page
from .report import agreed

Value = TypeVar("Value")

REFRESH = 0.5
"""Seconds between two pictures."""


class Dashboard:
    """A context manager that has the terminal to itself."""

    def __init__(self, session: LiveSession, look: Look, connection: int | None) -> None:
        self.session = session
        self.look_at = look
        self.keyboard: int | None = None
        session.recent.picked = connection
        self._drawn = 0.0
        self._size = 0, 0
        self._snapshot: Snapshot | None = None
        self._console = console()
        self._screen = Screen(console=self._console, screen=True, auto_refresh=False)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.keyboard = self._stack.enter_context(keyboard())
        self.look_at.keys = self.keyboard is not None
        self._stack.enter_context(self._screen)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def look(self, key_pressed: bool) -> None:
        """Draw what is new, if it is time."""
        changed = False
        if key_pressed and self.keyboard is not None:
            for key in pressed(self.keyboard):
                changed |= self._press(key)
        size = self._console.size
        now = time.monotonic()
        due = now - self._drawn >= REFRESH
        if due:
            self.session.live.count()
            self.session.recent.advance(self.session.now, self.session.analyzer.connections)
        if not (due or changed or size != self._size):
            return
        if due:
            self._drawn = now
        if self._snapshot is None or not self.look_at.paused:
            self._snapshot = take_snapshot(self.session)
        if self._size not in ((0, 0), size):  # What the terminal made of the old picture would stay around the new one.
            self._console.control(Control.clear(), Control.home())
        self._size = size
        self._screen.update(self._page(), refresh=True)

    def _page(self) -> RenderableType:
        assert self._snapshot is not None
        return page(self._snapshot, self.look_at, *self._size)

    def _press(self, key: str) -> bool:
        """Do what a key says; whether the picture changes."""
        look, session = self.look_at, self.session
        if key in "p ":
            look.paused = not look.paused
        elif key == "s":
            look.operations = _next([*OPERATION_ORDERS], look.operations)
        elif key == "S":
            look.connections = _next([*CONNECTION_ORDERS], look.connections)
        elif key in "cC":
            carriers = [one.connection.number for one in session.analyzer.conversations if one.protocol == "rpcrdma"]
            numbers: list[int | None] = [None, *carriers]
            session.recent.picked = _next(numbers if key == "c" else numbers[::-1], session.recent.picked)
            self._snapshot = None
        elif key == "q":
            session.ending.because("quit")
        else:
            return False
        return True


def _next(values: Sequence[Value], now: Value) -> Value:
    """The one behind, after the last the first."""
    at = values.index(now) if now in values else -1
    return values[(at + 1) % len(values)]


def take_snapshot(session: LiveSession) -> Snapshot:
    """The picture of now."""
    analyzer, recent, live = session.analyzer, session.recent, session.live
    rows: list[Row] = []
    for conversation in analyzer.conversations:
        one = conversation.connection
        history = session.credits.get(one.number)
        forward = history.directions[0] if history is not None else None
        rows.append(
            Row(
                one.number,
                str(one.endpoints[0]) if one.endpoints[0].port is not None else one.endpoints[0].address,
                who(one, 1).removeprefix("server "),
                conversation.protocol == "rpcrdma",
                bool(one.ended_by),
                recent.rate_of(one.number),
                forward.outstanding if forward is not None else 0,
                forward.latest_granted if forward is not None else None,
                sum(one.retransmitted_packets),
                sum(one.missing_packets),
                analyzer.rnr_naks(one.number),
            )
        )
    breaches = [
        Breach(
            finding.rule.id,
            finding.rule.level.value,
            times,
            finding.time,
            f"{who(finding.connection, finding.endpoint).split()[0]}, connection {finding.connection.number}",
            finding.observed,
        )
        for finding, times in session.breaches()
    ]
    picked = next((one for one in analyzer.conversations if one.connection.number == recent.picked), None)
    return Snapshot(
        session.path,
        session.now,
        session.seconds,
        analyzer.frames,
        session.rpcs,
        session.failed,
        live.dropped,
        live.received,
        recent.rate,
        tuple(recent.history),
        tuple(rows),
        analyzer.evicted.connections,
        tuple(recent.busy(recent.picked)),
        tuple(recent.newest(recent.picked)),
        tuple(recent.slowest(recent.picked)),
        tuple(breaches),
        recent.picked,
        tuple(agreed(picked, analyzer.conversations)) if picked is not None else (),
        session.keeper.path if session.keeper is not None else "",
        session.trouble,
        session.oldest_call(),
        session.bound.given_up if session.bound is not None else 0,
    )
