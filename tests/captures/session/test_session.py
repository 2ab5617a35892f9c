"""A pass over a capture leaves the process as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from playbook import Capture, Wire, call, nfs3, reply, write_pcap
from rdmascope.captures import CaptureError
from rdmascope.captures.session.session import Session
from rdmascope.dissect.rpcrdma.analyzer import Analyzer


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    wire = Wire()
    conn = wire.connect()
    for _ in range(20):
        reply(call(conn, nfs3.null()), nfs3.null_reply())
    path = tmp_path / "nulls.pcap"
    write_pcap(Capture(wire).frames, path)
    return path


@pytest.fixture(params=[True, False], ids=["collecting", "not collecting"])
def collecting(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether garbage is collected when the pass begins."""
    was = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if was else gc.disable)()


def test_garbage_is_collected_as_before_while_and_after_reading(capture: Path, collecting: bool) -> None:
    count = 0
    for _ in Session(capture).rpcs():
        count += 1
        assert gc.isenabled() is collecting
    assert count == 20
    assert gc.isenabled() is collecting


def test_garbage_is_collected_as_before_when_reading_is_given_up(capture: Path, collecting: bool) -> None:
    rpcs = Session(capture).rpcs()
    next(rpcs)
    assert gc.isenabled() is collecting
    del rpcs
    assert gc.isenabled() is collecting


def test_garbage_is_collected_as_before_when_reading_fails(
    capture: Path, collecting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").write_text("no capture")
    with pytest.raises(CaptureError):
        list(Session(tmp_path / "notes.txt").rpcs())
    assert gc.isenabled() is collecting

    def fail(*_: object) -> None:
        assert not gc.isenabled()
        raise ValueError("a fault of ours")

    monkeypatch.setattr(Analyzer, "feed_table", fail)
    with pytest.raises(ValueError, match="a fault of ours"):
        list(Session(capture).rpcs())
    assert gc.isenabled() is collecting
