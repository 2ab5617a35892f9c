"""Another host's tcpdump over ssh; here a stand-in on PATH that says the same things.  And several captures at once."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from playbook.commands import BOTH_WAYS, LOSS, PROGRAM, objects, unpacked

DEADLINE = 120
WORKS = """#!/bin/sh
echo "$@" >>{folder}/arguments
echo "tcpdump: listening on eth0, link-type EN10MB (Ethernet), snapshot length 262144 bytes" >&2
cat {folder}/wire.pcap
echo "7 packets captured" >&2
"""
REFUSES = """#!/bin/sh
echo "ssh: connect to host nowhere port 22: No route to host" >&2
exit 255
"""
BREAKS = """#!/bin/sh
head -c 20000 {folder}/wire.pcap
echo "client_loop: send disconnect: Broken pipe" >&2
exit 255
"""


def run(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "wire.pcap").write_bytes(unpacked(BOTH_WAYS))
    program = folder / "ssh"
    program.write_text(text.format(folder=folder))
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        [*PROGRAM, "live", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


def xids(sample: str) -> list[int]:
    return sorted(one["xid"] for one in objects("rpcs", sample))


@pytest.mark.parametrize("arguments", [("--remote", "user@box", "eth0"), ("user@box:eth0",)])
def test_what_passes_another_host(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(tmp_path, WORKS, *arguments, "--json", "--snaplen", "400")
    assert (done.returncode, done.stderr) == (0, "")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(one["xid"] for one in records if one["type"] == "rpc") == xids(BOTH_WAYS)
    assert (records[-1]["device"], records[-1]["ended_by"]) == ("user@box:eth0", "end")
    asked = (tmp_path / "arguments").read_text()
    assert (
        "BatchMode=yes" in asked and " user@box sh -c " in asked and "tcpdump -i eth0 -U -B 65536 -s 400 -w - " in asked
    )
    assert records[-1]["kernel_dropped"] is None  # Nobody said.


def test_a_host_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, REFUSES, "nowhere:eth0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "rdmascope: nowhere: ssh: connect to host nowhere port 22: No route to host\n"


def test_a_connection_that_breaks_keeps_what_came(tmp_path: Path) -> None:
    done = run(tmp_path, BREAKS, "box:eth0", "--json")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert sum(json.loads(line)["type"] == "rpc" for line in done.stdout.splitlines()) > 5


def test_no_ssh_and_no_host(tmp_path: Path) -> None:
    done = run(tmp_path, WORKS, "--", "-oProxyCommand=touch:eth0")
    assert (done.returncode, done.stdout) == (2, "") and "is no host" in done.stderr


def test_two_capture_points_are_never_one(tmp_path: Path) -> None:
    """The same traffic at two hosts: every RPC at each, with its latency there, and no packet is retransmitted."""
    done = run(tmp_path, WORKS, "client:eth0", "server:eth0", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    theirs = {one["xid"]: one["latency_ns"] for one in objects("rpcs", BOTH_WAYS)}
    for point in ("client:eth0", "server:eth0"):
        mine = {one["xid"]: one["latency_ns"] for one in records if one["type"] == "rpc" and one["file"] == point}
        assert mine == theirs
    assert not any(one["retransmitted_packets"] for one in records if one["type"] == "rpc")
    assert [one["device"] for one in records if one["type"] == "live"] == ["client:eth0", "server:eth0"]


def test_a_pipe_beside_a_host(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", 'cat > "$0"', str(pipe)], stdin=subprocess.PIPE)
    assert writer.stdin is not None
    text = unpacked(LOSS)

    def write() -> None:
        assert writer.stdin is not None
        writer.stdin.write(text)
        writer.stdin.close()

    threading.Thread(target=write).start()
    done = run(tmp_path, WORKS, str(pipe), "box:eth0", "--json")
    assert (done.returncode, done.stderr) == (0, "") and writer.wait(DEADLINE) == 0
    records = [json.loads(line) for line in done.stdout.splitlines()]
    rpcs = [(one["file"], one["xid"]) for one in records if one["type"] == "rpc"]
    assert sorted(xid for point, xid in rpcs if point == str(pipe)) == xids(LOSS)
    assert sorted(xid for point, xid in rpcs if point == "box:eth0") == xids(BOTH_WAYS)


def test_the_packets_of_each_capture_point_are_kept_in_a_file(tmp_path: Path) -> None:
    done = run(tmp_path, WORKS, "a:eth0", "b:eth0", "--write", str(tmp_path / "x.pcapng"))
    assert (done.returncode, done.stderr) == (0, "")
    theirs = [one["xid"] for one in objects("rpcs", BOTH_WAYS)]
    for name in ("x-a-eth0.pcapng", "x-b-eth0.pcapng"):
        assert [one["xid"] for one in objects("rpcs", str(tmp_path / name))] == theirs


def test_two_capture_points_never_share_a_file(tmp_path: Path) -> None:
    done = run(tmp_path, WORKS, "a:eth0", "a::eth0", "--write", str(tmp_path / "x.pcapng"))
    assert done.returncode == 2 and "would be written to one file" in done.stderr


HERE = """#!/bin/sh
for last; do :; done
exec sh -c "$last"
"""
"""An ssh whose other host is this one."""
TCPDUMP = """#!/bin/sh
for one; do echo "[$one]" >>{folder}/arguments; done
echo $$ >{folder}/pid
say() {{
    echo "7 packets captured" >&2; echo "1295 packets received by filter" >&2; echo "1000 packets dropped by kernel" >&2
}}
trap 'say' USR1
trap 'say; echo ended >{folder}/ended; exit 0' TERM
echo "tcpdump: listening on eth0, link-type EN10MB (Ethernet), snapshot length 262144 bytes" >&2
cat {folder}/wire.pcap
while :; do sleep 0.02; done
"""


def with_tcpdump(folder: Path) -> None:
    program = folder / "tcpdump"
    program.write_text(TCPDUMP.format(folder=folder))
    program.chmod(0o755)


@pytest.mark.parametrize("end", [("--count", "20"), ("--duration", "2s"), ("--count", "20", "--write", "kept.pcapng")])
def test_what_the_other_kernel_dropped_is_said_and_its_tcpdump_ends(tmp_path: Path, end: tuple[str, ...]) -> None:
    with_tcpdump(tmp_path)
    end = tuple(one.replace("kept", str(tmp_path / "kept")) for one in end)
    done = run(tmp_path, HERE, "box:eth0", "--buffer", "8MiB", *end)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1,000 of 1,295 frames dropped by the kernel" in " ".join(done.stdout.split())
    assert "the capture lost 1,000 frames" in " ".join(" ".join(done.stdout.splitlines()[:5]).split())
    assert (tmp_path / "ended").exists()
    asked = (tmp_path / "arguments").read_text()
    assert "[-B]\n[8192]" in asked and "[udp dst port 4791 or ether proto 0x8915 or tcp port 20049]" in asked
    assert "--immediate-mode" not in asked


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_tcpdump_stays_there(tmp_path: Path, number: signal.Signals) -> None:
    with_tcpdump(tmp_path)
    (tmp_path / "wire.pcap").write_bytes(unpacked(BOTH_WAYS))
    (tmp_path / "ssh").write_text(HERE)
    (tmp_path / "ssh").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    words = [*PROGRAM, "live", "box:eth0", "--json"]
    with subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        process.stdout.read()
    pid = int((tmp_path / "pid").read_text())
    for _ in range(200):
        if not Path(f"/proc/{pid}").exists():
            break
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_what_the_other_kernel_dropped_weakens_the_diagnosis(tmp_path: Path) -> None:
    with_tcpdump(tmp_path)
    done = run(tmp_path, HERE, "box:eth0", "--count", "20", "--json")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    (whole,) = [one for one in records if one["type"] == "capture"]
    assert whole["dropped_frames"] == records[-1]["kernel_dropped"] == 1000
    assert "capture-dropped" in [one["kind"] for one in whole["diagnosis"]]


def test_what_a_stream_cannot_know_is_unknown(tmp_path: Path) -> None:
    text = unpacked(BOTH_WAYS)
    page, lines = (
        subprocess.run([*PROGRAM, "live", "-", *more], input=text, capture_output=True, timeout=DEADLINE).stdout
        for more in ((), ("--json",))
    )
    assert b"unknown how many were dropped" in b" ".join(page.split())
    assert json.loads(lines.splitlines()[-1])["kernel_dropped"] is None


@pytest.mark.parametrize(
    "mode", [(), ("--json",), ("--until-slower-than", "1us", "--every", "--before", "30s"), ("--ring-size", "1MB")]
)
def test_a_full_disk_ends_the_keeping_not_the_capture(tmp_path: Path, mode: tuple[str, ...]) -> None:
    with_tcpdump(tmp_path)
    kept = tmp_path / "kept.pcapng"

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    (tmp_path / "wire.pcap").write_bytes(unpacked(BOTH_WAYS))
    (tmp_path / "ssh").write_text(HERE)
    (tmp_path / "ssh").chmod(0o755)
    # Python 3.11 would write half the bytecode of a module, which then no program can load.
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    words = [*PROGRAM, "live", "box:eth0", "--duration", "3s", "--write", str(kept), *mode]
    done = subprocess.run(
        words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=full
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "File too large" in done.stderr and "no more packets are kept" in done.stderr
    if "--json" in mode:
        records = [json.loads(line) for line in done.stdout.splitlines()]
        assert sorted(one["xid"] for one in records if one["type"] == "rpc") == xids(BOTH_WAYS)
        assert "File too large" in records[-1]["not_kept"] and records[-1]["ended_by"] == "duration"
    else:
        assert "Findings" in done.stdout and "kept.pcapng" in done.stdout
    assert run_info(kept) == 0  # What is there is whole.


def run_info(path: Path) -> int:
    return subprocess.run([*PROGRAM, "info", str(path)], capture_output=True).returncode
