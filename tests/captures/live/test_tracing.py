"""The tracepoints of a host, as folders of its tracefs tell them."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import zstandard

from playbook.commands import run
from rdmascope.captures import live
from rdmascope.captures.errors import CaptureError
from rdmascope.captures.live.device import SYSTEMS, TraceInstance, TraceSource, run_recording, tracepoints
from rdmascope.captures.live.keep import Keep, TraceKeeper

HERE = Path(__file__).parents[1]


def tracefs(place: Path, *events: str) -> Path:
    for event in events:
        (place / "events" / event).mkdir(parents=True)
    (place / "events" / "rpcrdma").mkdir(parents=True, exist_ok=True)
    (place / "events" / "rpcrdma" / "enable").write_text("0")
    return place


def test_only_what_is_read_is_recorded(tmp_path: Path) -> None:
    place = tracefs(tmp_path, "rpcrdma/xprtrdma_reply", "rpcrdma/xprtrdma_dma_maperr", "sunrpc/rpc_request", "sched/x")
    found = tracepoints(place)
    assert (found.names, found.problem) == (("rpcrdma:xprtrdma_reply", "sunrpc:rpc_request"), "")
    assert found.command("a b.dat", 2.5) == (
        "trace-cmd record -o 'a b.dat' -C mono -b 20000 -e rpcrdma:xprtrdma_reply -e sunrpc:rpc_request sleep 2.5"
    )


def test_an_old_kernel_s_name_of_an_event_is_recorded(tmp_path: Path) -> None:
    assert tracepoints(tracefs(tmp_path, "rpcrdma/svcrdma_wc_receive")).names == ("rpcrdma:svcrdma_wc_receive",)


@pytest.mark.parametrize("there", [False, True])
def test_where_it_cannot_be_looked_the_parts_of_the_kernel_are_named(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "events" / "sunrpc").mkdir(parents=True)
    found = tracepoints(tmp_path)
    assert found.names == SYSTEMS
    assert found.problem == f"{tmp_path}: no events of rpcrdma; as root: modprobe -a rpcrdma nfs nfsd"
    with pytest.raises(CaptureError, match=r"tracepoints cannot be read: .*no events of rpcrdma"):
        TraceInstance(tmp_path)


def test_an_instance_has_its_own_buffer_clock_and_events(tmp_path: Path) -> None:
    place = tracefs(tmp_path, "rpcrdma/xprtrdma_reply")
    folder = next(iter([place / "instances"]))
    folder.mkdir()
    with pytest.raises(CaptureError, match="events/rpcrdma/xprtrdma_reply/enable: No such file"):
        TraceInstance(place)  # A folder that is no tracefs makes no files in it.
    (made,) = folder.iterdir()
    assert (made / "trace_clock").read_text() == "mono"
    assert (made / "buffer_size_kb").read_text() == "20000"
    assert (made / "tracing_on").read_text() == "0"


def test_a_host_without_trace_cmd() -> None:
    with pytest.raises(CaptureError, match="no-such-program: No such file or directory; apt install trace-cmd"):
        run_recording(["no-such-program"])
    assert run_recording(["sh", "-c", "exit 3"]) == 3


def test_ctrl_c_lets_trace_cmd_write_its_file(tmp_path: Path) -> None:
    recorder, target = tmp_path / "trace-cmd", tmp_path / "t.dat"
    recorder.write_text(
        "#!/bin/sh\ntrap 'echo whole > \"$1\"; exit 0' INT\necho records\nwhile :; do sleep 0.05; done\n"
    )
    recorder.chmod(0o755)
    script = (
        "import signal, sys; from rdmascope.captures.live.device import run_recording;"
        "signal.signal(signal.SIGINT, signal.default_int_handler); sys.exit(run_recording(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", script, str(recorder), str(target)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "records\n"
        time.sleep(0.1)  # Until the program waits for it.
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    assert target.read_text() == "whole\n"


class Printed:
    """A pipe into which a kernel would print."""

    events = ("rpcrdma:xprtrdma_reply",)
    cost = 500
    stopped = closed = False

    def __init__(self, pipe: Path) -> None:
        os.mkfifo(pipe)
        self.pipe = pipe

    def lost(self) -> int:
        return 7

    def stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        self.closed = True


def test_events_are_read_as_they_are_printed(tmp_path: Path) -> None:
    kernel = Printed(tmp_path / "trace_pipe")
    source = TraceSource(kernel)  # type: ignore[arg-type]
    with open(kernel.pipe, "wb", buffering=0) as pipe:
        assert source.read() is None
        line = b"  kworker/0:1H-38  [000] d..1.    64.670818: xprtrdma_reply: task:00000005@00000002 xid=0x7bd6051a cr"
        pipe.write(b"CPU:0 [LOST 3 EVENTS]\n" + line)
        assert source.read() is None
        pipe.write(b"edits=64\n  x-1 [000] d..1. 64.7: sched_switch: x\n")
        found = source.read()
        assert found is not None
        assert [event.values for event in found] == [(5, 2, 0x7BD6051A, 64)]
    assert (source.received, source.dropped) == (5, 3)
    source.count()
    assert (source.received, source.dropped) == (9, 7)
    assert source.event_cost_ns == 500
    source.refuse()
    source.close()
    assert kernel.stopped
    assert kernel.closed


def printing(pipe: Path) -> threading.Thread:
    """A server's kernel, that prints what it printed once."""
    text = zstandard.ZstdDecompressor().decompressobj().decompress((HERE / "read" / "server-6.1.txt.zst").read_bytes())

    def play() -> None:
        with open(pipe, "wb", buffering=0) as file:
            for at in range(0, len(text), 50_000):
                file.write(text[at : at + 50_000])

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    return thread


def test_a_server_s_kernel_as_it_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Printed(tmp_path / "trace_pipe")
    monkeypatch.setattr(live, "TraceInstance", lambda **_: kernel)
    player = printing(kernel.pipe)
    done = run("live", "--trace", "--json", "--count", "592")
    player.join(30)
    assert (done.exit_code, kernel.stopped or kernel.closed) == (0, True)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    rpcs = [record for record in records if record["type"] == "rpc"]
    assert len({rpc["xid"] for rpc in rpcs}) == 592
    said = records[-1]
    assert (said["type"], said["device"], said["kind"], said["ended_by"]) == ("live", "kernel trace", "trace", "count")
    assert (said["event_cost_ns"], said["kernel_dropped"]) == (500, 7)
    assert said["frames"] <= 15510


def test_its_report_says_what_tracing_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Printed(tmp_path / "trace_pipe")
    monkeypatch.setattr(live, "TraceInstance", lambda **_: kernel)
    player = printing(kernel.pipe)
    done = run("live", "--trace", "--count", "592")
    player.join(30)
    assert re.search(r"tracing: [\d,]+ events/s of at most 500 ns each, \S+ % of one processor", done.stdout)
    assert "592 RPCs" in done.stdout


def test_what_a_trace_cannot_be_asked(tmp_path: Path) -> None:
    assert "name a DEVICE, or --trace" in run("live").stderr
    refused = run("live", "--trace", "--write", str(tmp_path / "x.txt"), "--before", "3s")
    assert "--before and --after are for packets" in " ".join(refused.stderr.split())


def test_all_that_the_kernel_prints_is_kept(tmp_path: Path) -> None:
    """Lines too that are no event of ours, and those behind the last."""
    kernel = Printed(tmp_path / "trace_pipe")
    source = TraceSource(kernel)  # type: ignore[arg-type]
    keeper = TraceKeeper(Keep(str(tmp_path / "nfs.txt")))
    source.keep = keeper.write
    with open(kernel.pipe, "wb", buffering=0) as pipe:
        for piece in (b"  x-1 [000] d..1. 64.7: sched_switch: x\n  x-1 [000]", b" d..1. 64.8: sched_switch: y\nhal"):
            pipe.write(piece)
            assert source.read() is None
    keeper.close()
    source.close()
    assert (tmp_path / "nfs.txt").read_text().splitlines() == [
        "  x-1 [000] d..1. 64.7: sched_switch: x",
        "  x-1 [000] d..1. 64.8: sched_switch: y",
    ]


@pytest.mark.parametrize("files", [2, 10])
def test_a_ring_of_files_keeps_what_the_kernel_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    kept = tmp_path / "nfs.txt"
    kept.write_text("of an earlier run\n")
    kernel = Printed(tmp_path / "trace_pipe")
    monkeypatch.setattr(live, "TraceInstance", lambda **_: kernel)
    player = printing(kernel.pipe)
    arguments = ("--write", str(kept), "--ring-size", "1MB", "--ring-files", str(files))
    done = run("live", "--trace", "--json", "--count", "592", *arguments)
    player.join(30)
    assert done.exit_code == 0, done.stderr
    ring = [*sorted(tmp_path.glob("nfs_*.txt")), kept]
    removed = json.loads(done.stdout.splitlines()[-1])["files_removed"]
    assert (len(ring), removed) == ((2, 1) if files == 2 else (3, 0))
    ring = ring[removed == 0 :]  # The first is of the earlier run.
    for one in ring:  # They begin and end between two lines.
        assert re.match(rb"cpus=1\n| *\S+-\d+ +\[\d+\]", one.read_bytes()) and one.read_bytes().endswith(b"\n")
    whole = tmp_path / "whole.txt"
    whole.write_bytes(b"".join(one.read_bytes() for one in ring))
    rpcs = [json.loads(line) for line in run("rpcs", "--json", str(whole)).stdout.splitlines()]
    xids = {json.loads(line)["xid"] for line in done.stdout.splitlines() if '"type":"rpc"' in line}
    assert files == 2 or {rpc["xid"] for rpc in rpcs} == xids
    assert 0 < len(rpcs) <= 592
