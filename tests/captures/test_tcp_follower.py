"""RPCs that are written as they end are the TCP connections that an export writes at the end."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from playbook import Capture, Wire, nfs3
from playbook.capture import frame_batches
from playbook.commands import EVERYTHING, LOSS, run
from playbook.rpcrdma import call, reply
from rdmascope.captures.live import CaptureSettings
from rdmascope.captures.live.session import Ending
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import Condition
from rdmascope.captures.wireshark import tcp_feed, tcp_feed as tcp_follower
from rdmascope.captures.wireshark.tcp_feed import CLOSED, feed, replay
from rdmascope.captures.write.export import export_tcp
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma.analyzer import Options

from .live.test_session import Replay
from .write.test_export import Packet, frames, parse, records, stream

SETTINGS = CaptureSettings((20049,))


def talks(packets: list[Packet]) -> dict[tuple[tuple[str, int], tuple[str, int]], list[bytes]]:
    """Messages of each direction of each connection, whole ones."""
    ways = {(one.source, one.destination) for one in packets}
    return {
        way: records(stream([one for one in packets if (one.source, one.destination) == way], way[0])) for way in ways
    }


def parsed(data: bytes) -> list[Packet]:
    return [parse(*frame) for frame in frames(data)]


def test_a_replay_has_the_messages_of_an_export(tmp_path: Path) -> None:
    file = io.BytesIO()
    replay([EVERYTHING], Options(), file)
    run("export", EVERYTHING, "-o", str(tmp_path / "whole.pcapng"))
    follow, whole = parsed(file.getvalue()), parsed((tmp_path / "whole.pcapng").read_bytes())
    assert {way: sorted(found) for way, found in talks(follow).items()} == {
        way: sorted(found) for way, found in talks(whole).items()
    }
    assert len(follow) == len(whole)
    assert sorted(one.flags & 3 for one in follow) == sorted(one.flags & 3 for one in whole)


def test_missing_bytes_are_truncated_packets(tmp_path: Path) -> None:
    file = io.BytesIO()
    replay([LOSS], Options(), file)
    run("export", LOSS, "-o", str(tmp_path / "whole.pcapng"))
    whole = parsed((tmp_path / "whole.pcapng").read_bytes())
    wanted = sorted((one.payload, one.missing) for one in whole)
    assert sorted((one.payload, one.missing) for one in parsed(file.getvalue())) == wanted


def batches() -> list[FrameBatch]:
    """Four whole RPCs, and a call without a reply."""
    made = Wire()
    talk = made.connect()
    for _ in range(4):
        reply(call(talk, nfs3.null()), nfs3.null_reply())
    call(talk, nfs3.null())
    return frame_batches(Capture(made).frames, (3, 9))


@pytest.mark.parametrize(("where", "messages"), [("", 9), ("number IN (1, 4)", 4), ("reply_frame IS NULL", 1)])
def test_what_is_live_comes_through_the_pipe(where: str, messages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_feed, "open_live", lambda name, settings: Replay(batches()))
    reader, writer = os.pipe()
    ending = Ending()
    condition = Condition([where]) if where else None
    monkeypatch.setattr(Replay, "read", when_read(lambda batch: ending.because("quit") if batch is None else None))
    with os.fdopen(writer, "wb") as file:
        session = feed("lo", SETTINGS, Options(), file, condition, ending)
    with os.fdopen(reader, "rb") as pipe:
        packets = parsed(pipe.read())
    assert session.rpcs == 5
    assert sum(len(found) for found in talks(packets).values()) == messages
    if condition is not None:
        condition.close()


def when_read(act: Callable[[FrameBatch | None], object]) -> Callable[[Replay], FrameBatch | None]:
    """Replay's own, after which something is done."""
    read = Replay.read

    def reading(self: Replay) -> FrameBatch | None:
        batch = read(self)
        act(batch)
        return batch

    return reading


def test_it_ends_when_the_reader_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_feed, "open_live", lambda name, settings: Replay([]))
    reader, writer = os.pipe()
    pipe = os.fdopen(reader, "rb")
    monkeypatch.setattr(Replay, "read", when_read(lambda batch: pipe.close()))
    ending = Ending()
    with os.fdopen(writer, "wb") as file:
        session = feed("lo", SETTINGS, Options(), file, None, ending)
    assert (ending.why, session.damage) == (CLOSED, None)


def test_of_many_connections_the_one_that_was_silent_longest_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_follower, "MAX_CONNECTIONS", 1)
    file = io.BytesIO()
    replay([EVERYTHING], Options(), file)
    packets = parsed(file.getvalue())
    assert sum(bool(one.flags & 1) for one in packets) == sum(one.flags & 2 == 2 for one in packets) > 2
    whole = io.BytesIO()
    monkeypatch.undo()
    replay([EVERYTHING], Options(), whole)
    assert sorted(one.payload for one in packets if one.payload) == sorted(
        one.payload for one in parsed(whole.getvalue()) if one.payload
    )


def test_evicted_connections_are_exported_too(tmp_path: Path) -> None:
    few = Options(max_connections=2, ended=0)
    session = Session(EVERYTHING, few)
    exported = export_tcp(session, tmp_path / "few.pcapng")
    assert len(session.analyzer.connections) < 4
    run("export", EVERYTHING, "-o", str(tmp_path / "whole.pcapng"))
    found, whole = (parsed((tmp_path / f"{name}.pcapng").read_bytes()) for name in ("few", "whole"))
    assert exported.packets == len(found) == len(whole)
    assert sorted(one.payload for one in found) == sorted(one.payload for one in whole)
