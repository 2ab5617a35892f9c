"""A capture that is still being written into a pipe is watched like a device."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from playbook import Capture, Wire, nfs3
from playbook.capture import frame_batch
from playbook.commands import BOTH_WAYS, LOSS, PROGRAM, objects, rest_of, run, unpacked
from playbook.rpcrdma import call, reply
from rdmascope.captures import CaptureError
from rdmascope.captures.live.device import STREAM, StreamEnded, StreamSource, is_stream
from rdmascope.captures.live.session import LiveSession, bounded
from rdmascope.captures.write.pcapng_writer import PcapngWriter
from rdmascope.dissect.link.numbers import ETHERNET
from rdmascope.dissect.rpcrdma.analyzer import Options

DEADLINE = 60
"""Seconds after which something is broken; nothing waits for them to pass."""


def rpcs_of(text: str) -> list[Any]:
    records = [json.loads(line) for line in text.splitlines()]
    return sorted(one["xid"] for one in records if one["type"] == "rpc")


@pytest.mark.parametrize("sample", [BOTH_WAYS, LOSS])
def test_standard_input_is_watched_to_its_end(sample: str) -> None:
    done = subprocess.run(
        [*PROGRAM, "live", "-", "--json"], input=unpacked(sample), capture_output=True, timeout=DEADLINE
    )
    assert (done.returncode, done.stderr) == (0, b"")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert rpcs_of(done.stdout.decode()) == sorted(one["xid"] for one in objects("rpcs", sample))
    ending = records[-1]
    assert (ending["type"], ending["ended_by"], ending["kind"]) == ("live", "end", STREAM)
    assert ending["frames"] == ending["kernel_received"]


def test_rpcs_come_while_the_pipe_is_written(tmp_path: Path) -> None:
    wire = Wire()
    talk = wire.connect()
    for _ in range(3):
        reply(call(talk, nfs3.null()), nfs3.null_reply())
    file = io.BytesIO()
    PcapngWriter(file, ETHERNET).write_batch(frame_batch(Capture(wire).frames))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    watcher = subprocess.Popen(
        [*PROGRAM, "live", str(pipe), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert watcher.stdout is not None
    with pipe.open("wb") as writer:
        writer.write(file.getvalue())
        writer.flush()
        found = [json.loads(watcher.stdout.readline()) for _ in range(3)]
        assert [one["type"] for one in found] == ["rpc"] * 3
        watcher.send_signal(signal.SIGINT)
        rest, said = rest_of(watcher)
    assert (watcher.returncode, said) == (0, "")
    assert json.loads(rest.splitlines()[-1])["ended_by"] == "SIGINT"


def test_a_pause_in_an_old_stream_ends_no_call(tmp_path: Path) -> None:
    """Its time is that of its frames, and goes on while nothing comes: an hour did not pass, nor did years."""
    wire = Wire()
    talk = wire.connect()
    one = call(talk, nfs3.null())
    middle = len(Capture(wire).frames)
    reply(one, nfs3.null_reply())
    frames = Capture(wire).frames
    read, write = os.pipe()
    ended: list[str] = []
    with os.fdopen(write, "wb") as writer:
        packets = PcapngWriter(writer, ETHERNET)
        packets.write_batch(frame_batch(frames[:middle]))
        writer.flush()
        source = StreamSource(f"/dev/fd/{read}")
        session = LiveSession(source, bounded(Options()), on_rpcs=lambda rpcs: ended.extend(rpc.state for rpc in rpcs))

        def go_on() -> None:
            time.sleep(0.3)
            packets.write_batch(frame_batch(frames[middle:], middle + 1))
            writer.close()

        threading.Thread(target=go_on).start()
        session.run(None)
    assert ended == ["complete"] and session.ending.why == "end" and session.damage is None
    assert session.now < time.time_ns() or frames[0].time > time.time_ns()
    os.close(read)


def test_what_a_stream_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert is_stream("-") and is_stream(str(pipe))
    assert not is_stream("eth0") and not is_stream(str(tmp_path)) and not is_stream("a\0b")


def test_a_stream_that_is_no_capture_or_damaged_is_one_line() -> None:
    done = subprocess.run([*PROGRAM, "live", "-", "--json"], input=b"hello, world\n" * 9, capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"rdmascope: standard input: not a capture but a text file\n"
    done = subprocess.run([*PROGRAM, "live", "-", "--json"], input=unpacked(BOTH_WAYS)[:-40], capture_output=True)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"truncated in frame" in done.stderr
    assert len(rpcs_of(done.stdout.decode())) > 50


def test_the_end_stays_the_end() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb") as writer:
        PcapngWriter(writer, ETHERNET)
    source = StreamSource(f"/dev/fd/{read}")
    until = time.monotonic() + DEADLINE
    for _ in range(2):
        with pytest.raises(StreamEnded):
            while time.monotonic() < until:
                assert source.read() is None
                time.sleep(0.01)
    assert issubclass(StreamEnded, CaptureError)
    source.close()
    os.close(read)


def test_write_is_refused() -> None:
    result = run("live", "-", "--write", "x.pcapng")
    assert (result.exit_code, result.stdout) == (2, "") and "tee" in result.stderr
