"""Another host's tcpdump over ssh; here a stand-in on PATH that says the same things.  And several captures at once."""

from __future__ import annotations

import json
import os
import subprocess
import threading
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
    assert "BatchMode=yes" in asked and " user@box tcpdump -i eth0 -U " in asked and " -s 400 -w - " in asked
    assert "'udp dst port 4791 or ether proto 0x8915 or tcp port 20049'" in asked  # One word for the shell there.


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
    theirs = {one["xid"]: one["latency"] for one in objects("rpcs", BOTH_WAYS)}
    for point in ("client:eth0", "server:eth0"):
        mine = {one["xid"]: one["latency"] for one in records if one["type"] == "rpc" and one["file"] == point}
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
