"""A capture that is replayed, or a device that is watched, as ONC RPC over TCP for a reader that waits for packets."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import BinaryIO

from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.rpcrdma.analyzer import Options
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from .condition import Condition
from .live import CaptureSettings, open_live
from .live.session import Ending, LiveSession, bounded
from .packet_comments import FindingNotes
from .session import Session
from .tcp_follower import TcpFollower

CLOSED = "closed"
"""Why a capture ended whose reader went away."""


def replay(
    paths: Sequence[str],
    options: Options,
    file: BinaryIO,
    condition: Condition | None = None,
    stopped: Callable[[], object] = bool,
) -> None:
    """Write the RPCs of captures, batch by batch, until ``stopped``.

    Raises CaptureError; a reader that goes away just ends it.
    """
    notes = FindingNotes()
    auditor = Auditor(examples=0, on_finding=lambda finding, _: notes.add(finding))
    session = Session(paths, options)
    session.analyzer.listener = auditor.listener
    with suppress(BrokenPipeError):
        follower = TcpFollower(file, notes, session.path)
        for table in session.tables(auditor.evict):
            follower.add(table if condition is None else condition.selected(table, session))
            follower.write()
            del table
            if stopped():
                return
            auditor.forget(session.analyzer.last_time or 0)
        follower.close()
    session.check()


def feed(
    device: str,
    settings: CaptureSettings,
    options: Options,
    file: BinaryIO,
    condition: Condition | None = None,
    ending: Ending | None = None,
    say: Callable[[str], None] | None = None,
) -> LiveSession:
    """Write RPCs of a device as they end, until ``ending`` or the reader ends it.

    ``say`` is given what a user may not expect.  Raises CaptureError where the device cannot be captured on; what ends
    the capture later is ``damage`` of the session.
    """
    ending = ending or Ending()
    notes = FindingNotes()
    with closing(open_live(device, settings)) as live:
        if live.device.note and say is not None:
            say(live.device.note)
        gone = select.poll()
        gone.register(file.fileno(), 0)  # The reader of a pipe: its end is an error.
        context = Session(device)  # What a condition asks of a session.

        def add(table: RpcTable) -> None:
            follower.add(table if condition is None else condition.selected(table, context))

        def write() -> None:
            with suppress(BrokenPipeError):
                follower.write()
                if not gone.poll(0):
                    return
            ending.because(CLOSED)

        session = LiveSession(live, bounded(options), ending=ending, on_rpcs=add, on_finding=notes.add, on_turn=write)
        context.analyzer = session.analyzer
        follower = TcpFollower(file, notes, str(live.device))
        session.run(None)
        with suppress(BrokenPipeError):
            follower.close()
    return session
