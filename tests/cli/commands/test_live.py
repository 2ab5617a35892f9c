"""``rdmascope live`` on a wire of its own: what it prints is what ``rdmascope rpcs`` prints of the same frames."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

from playbook.commands import rest_of
from playbook.terminal import Terminal
from rdmascope.captures import open_capture
from rdmascope.captures.wireshark.second_opinion import find_tshark
from rdmascope.cli.main import main

SAMPLES = Path(__file__).parents[3] / "captures" / "samples"
PROGRAM = "from rdmascope.cli.main import main; main()"
REPLAY = """
import socket, sys
from rdmascope.captures import open_capture
from rdmascope.captures.wireshark.second_opinion import find_tshark
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
out.bind((sys.argv[1], 0))
tag = bytes.fromhex(sys.argv[3])
with open_capture(sys.argv[2]) as capture:
    for batch in capture.batches():
        for start, size in zip(batch.rows["offset"].tolist(), batch.rows["captured"].tolist()):
            frame = batch.data[start : start + size].tobytes()
            out.send(frame[:12] + tag + frame[12:])
"""
DEADLINE = 120
"""Seconds after which something is broken; nothing waits for them to pass."""

JSON = dict[str, Any]


class Namespace:
    """A network with two interfaces, each the other's far end."""

    near, far = "lva", "lvb"

    def __init__(self) -> None:
        self.name = f"rdmascope-{uuid4().hex[:8]}"
        self.ip("netns", "add", self.name)
        self.ip("-n", self.name, "link", "add", self.near, "type", "veth", "peer", "name", self.far)
        for one in (self.near, self.far):
            self.ip("-n", self.name, "link", "set", one, "mtu", "9500", "up")

    def ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def run(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", self.name, sys.executable, *words]
        return subprocess.Popen(command, text=True, stdin=subprocess.DEVNULL, **options)

    def live(self, device: str, *options: str, program: str = PROGRAM, sockets: int = 1) -> subprocess.Popen[str]:
        """``rdmascope live``, as soon as its packet sockets run."""
        pipe = subprocess.PIPE
        watcher = self.run("-c", program, "live", device, *options, stdout=pipe, stderr=pipe)
        end = time.monotonic() + DEADLINE
        while self.listening(watcher.pid) < sockets:
            assert watcher.poll() is None and time.monotonic() < end, watcher.communicate()
            time.sleep(0.02)
        return watcher

    def listening(self, pid: int) -> int:
        """How many packet sockets of a process run: others of its network do not count."""
        lines = Path(f"/proc/{pid}/net/packet").read_text().splitlines()[1:]
        running = {f"socket:[{line.split()[8]}]" for line in lines if line.split()[5] == "1"}
        return len(running & {*map(_target, Path(f"/proc/{pid}/fd").iterdir())})

    def replay(self, path: Path, device: str | None = None, tag: str = "") -> None:
        sender = self.run("-c", REPLAY, device or self.far, str(path), tag)
        assert sender.wait(DEADLINE) == 0


def _target(descriptor: Path) -> str:
    """What a descriptor stands for; '' where it was closed meanwhile."""
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:
        return ""


def can() -> str:
    """Why no wire can be made here; '' where one can."""
    if os.geteuid():
        return "not root"
    try:
        name = f"rdmascope-{uuid4().hex[:8]}"
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
        subprocess.run(["ip", "netns", "del", name], check=True, capture_output=True)
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except (OSError, subprocess.CalledProcessError, AttributeError) as error:
        return f"no network namespaces or packet sockets: {error}"
    return ""


@pytest.fixture(scope="module")
def wire() -> Iterator[Namespace]:
    if why := can():
        pytest.skip(why)
    namespace = Namespace()
    yield namespace
    namespace.ip("netns", "del", namespace.name)


def plain(value: Any) -> Any:
    """Without times and frame numbers, which are of another capture, and without paths, which live does not learn."""
    if isinstance(value, dict):
        return {
            name: plain(one)
            for name, one in value.items()
            if not name.endswith(("_ns", "_frame", "_place")) and name not in ("latency", "path")
        }
    return [plain(one) for one in value] if isinstance(value, list) else value


def of(path: Path) -> list[JSON]:
    result = CliRunner().invoke(main, ["rpcs", str(path), "--json"])
    assert result.exit_code == 0, result.stderr
    return over_rdma([plain(json.loads(line)) for line in result.stdout.splitlines()])


def lines(text: str) -> list[JSON]:
    return [json.loads(line) for line in text.splitlines()]


def over_rdma(found: list[JSON]) -> list[JSON]:
    """Live sees no MOUNT and portmap, which have numbers in a capture."""
    return [{**one, "number": 0, "connection": 0} for one in found if one["rdma_version"] is not None]


def watched(wire: Namespace, path: Path, *options: str, tag: str = "", device: str | None = None) -> list[JSON]:
    """What ``live --json`` prints of a capture's frames, when as many RPCs have come as are in it."""
    count = len(of(path))
    watcher = wire.live(device or wire.near, "--json", "--count", str(count), *options)
    wire.replay(path, tag=tag)
    out, err = watcher.communicate(timeout=DEADLINE)
    assert (watcher.returncode, err) == (0, "")
    return lines(out)


@pytest.mark.parametrize(
    "name", ["rxe-nfs-all", "siw-nfs-all", "bidir-rxe", "longcall-rxe", "ipv6-rxe", "nconnect-rxe", "longcall-siw"]
)
def test_live_is_what_rpcs_says(wire: Namespace, name: str) -> None:
    path = SAMPLES / f"{name}.pcap.zst"
    if not path.exists():
        pytest.skip("no such sample")
    found = watched(wire, path)
    ended = [plain(one) for one in found if one["type"] == "rpc"]  # in the order in which they ended
    assert over_rdma(sorted(ended, key=itemgetter("number"))) == of(path)
    ending = found[-1]
    assert (ending["type"], ending["ended_by"], ending["kernel_dropped"]) == ("live", "count", 0)
    assert ending["frames"] == ending["kernel_received"]
    assert ending["filter"] == "udp dst port 4791 or ether proto 0x8915 or tcp port 20049"


def test_findings_are_those_of_the_audit(wire: Namespace) -> None:
    path = SAMPLES / "bidir-rxe.pcap.zst"
    found = watched(wire, path)
    result = CliRunner().invoke(main, ["audit", str(path), "--json"])
    theirs = [one for one in lines(result.stdout) if one["type"] == "finding"]
    of_audit = sorted((one["rule"], one["connection"], one["rpc"], one["observed"]) for one in theirs)
    mine = [one for one in found if one["type"] == "finding"]
    assert sorted((one["rule"], one["connection"], one["rpc"], one["observed"]) for one in mine) == of_audit
    assert all({*one, "file", "violated"} == set(theirs[0]) for one in mine)


def test_counters_of_the_host_beside_what_two_devices_saw(wire: Namespace, tmp_path: Path) -> None:
    """Both see the same traffic, which counts once; the server's counters, which do not move, are a copy."""
    path = SAMPLES / "ipv6-rxe.pcap.zst"
    counters = tmp_path / "nfsd"
    counters.write_bytes((Path(__file__).parents[2] / "captures" / "session" / "counters" / "nfsd.0").read_bytes())
    program = (
        f"from rdmascope.captures.session import kernel_counters; kernel_counters.NFSD = {str(counters)!r}; {PROGRAM}"
    )
    watcher = wire.live(wire.near, wire.far, "--nfsd-counters", "--json", program=program, sockets=2)
    wire.replay(path)
    assert watcher.stdout is not None
    seen = 0
    while seen < 2 * len(of(path)):  # Both have seen all.
        seen += json.loads(watcher.stdout.readline())["type"] == "rpc"
    watcher.send_signal(signal.SIGINT)
    out, err = rest_of(watcher)
    assert (watcher.returncode, err) == (0, "")
    *_, server = lines(out)
    assert (server["type"], server["file"]) == ("nfsd_counters", f"{wire.near}, {wire.far}")
    by_procedure = Counter(f"NFSv{one['version']} {one['procedure']}" for one in of(path))
    assert {one["name"]: one["seen_calls"] for one in server["procedures"]} == by_procedure


def test_a_vlan_tag_that_the_kernel_takes_out_is_put_back(wire: Namespace, tmp_path: Path) -> None:
    path = SAMPLES / "longcall-rxe.pcap.zst"
    kept = tmp_path / "tagged.pcapng"
    found = watched(wire, path, "--write", str(kept), tag="81000007")
    ended = [plain(one) for one in found if one["type"] == "rpc"]  # in the order in which they ended
    assert over_rdma(sorted(ended, key=itemgetter("number"))) == of(path)
    with open_capture(kept) as capture:
        batch = next(iter(capture.batches()))
        start = int(batch.rows["offset"][0])
        assert batch.data[start + 12 : start + 16].tobytes() == bytes.fromhex("81000007")
    assert of(kept) == of(path)


def test_all_interfaces_show_each_packet_once(wire: Namespace) -> None:
    path = SAMPLES / "longcall-rxe.pcap.zst"
    found = watched(wire, path, device="any")
    ended = [plain(one) for one in found if one["type"] == "rpc"]  # in the order in which they ended
    assert over_rdma(sorted(ended, key=itemgetter("number"))) == of(path)


def test_the_loopback_shows_each_packet_once(wire: Namespace) -> None:
    wire.ip("-n", wire.name, "link", "set", "lo", "up")
    path = SAMPLES / "longcall-rxe.pcap.zst"
    watcher = wire.live("lo", "--json", "--count", str(len(of(path))))
    wire.replay(path, "lo")
    out, _ = watcher.communicate(timeout=DEADLINE)
    found = lines(out)
    ended = [plain(one) for one in found if one["type"] == "rpc"]  # in the order in which they ended
    assert over_rdma(sorted(ended, key=itemgetter("number"))) == of(path)
    assert not any(one.get("retransmissions") for one in found if one["type"] == "rpc")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_the_report(wire: Namespace, number: signal.Signals) -> None:
    path = SAMPLES / "longcall-rxe.pcap.zst"
    count = len(of(path))
    watcher = wire.live(wire.near, "--json")
    wire.replay(path)
    assert watcher.stdout is not None
    first = [watcher.stdout.readline() for _ in range(count)]
    watcher.send_signal(number)
    rest, err = rest_of(watcher)
    found = lines("".join(first) + rest)
    assert (watcher.returncode, err) == (0, "")
    assert sum(one["type"] == "rpc" for one in found) == count
    assert {"capture", "connection", "procedure", "transfer", "histogram"} <= {one["type"] for one in found}
    assert found[-1]["ended_by"] == number.name


def test_the_report_for_people(wire: Namespace) -> None:
    path = SAMPLES / "longcall-rxe.pcap.zst"
    watcher = wire.live(wire.near, "--count", str(len(of(path))))
    wire.replay(path)
    out, _ = watcher.communicate(timeout=DEADLINE)
    assert f"{len(of(path))} RPCs on 2 RPC-over-RDMA connections" in out
    assert "none dropped by the kernel" in out
    assert f"{wire.near} for " in out


def test_a_finding_ends_it(wire: Namespace) -> None:
    watcher = wire.live(wire.near, "--until-rule", "PD-INVALIDATE*", "--json")
    wire.replay(SAMPLES / "bidir-rxe.pcap.zst")
    out, _ = watcher.communicate(timeout=DEADLINE)
    found = lines(out)
    assert watcher.returncode == 1
    assert found[-1]["ended_by"] == "finding"
    assert "PD-INVALIDATE-AGREED" in {one["rule"] for one in found if one["type"] == "finding"}


def test_what_is_kept_is_what_came(wire: Namespace, tmp_path: Path) -> None:
    path = SAMPLES / "rxe-nfs-all.pcap.zst"
    kept = tmp_path / "kept.pcapng"
    watched(wire, path, "--write", str(kept), "--ring-size", "1MB", "--ring-files", "100")
    files = sorted(tmp_path.glob("kept*.pcapng"))
    assert len(files) > 1
    result = CliRunner().invoke(main, ["rpcs", *map(str, files), "--json"])
    assert over_rdma([plain(json.loads(line)) for line in result.stdout.splitlines()]) == of(path)


def test_what_the_kernel_drops_is_reported(wire: Namespace) -> None:
    """A watcher that is stopped reads nothing: its ring fills, and the kernel counts."""
    path = SAMPLES / "rxe-nfs-all.pcap.zst"
    watcher = wire.live(wire.near, "--json", "--buffer", "2MB", "--duration", "30s")
    watcher.send_signal(signal.SIGSTOP)
    wire.replay(path)
    watcher.send_signal(signal.SIGCONT)
    watcher.send_signal(signal.SIGINT)
    out, _ = watcher.communicate(timeout=DEADLINE)
    ending = lines(out)[-1]
    assert ending["kernel_dropped"] > 1000
    assert ending["kernel_received"] == ending["kernel_dropped"] + ending["frames"]


def test_an_interface_that_goes_down_is_reported_at_once(wire: Namespace) -> None:
    wire.ip("-n", wire.name, "link", "add", "down0", "type", "veth", "peer", "name", "down1")
    wire.ip("-n", wire.name, "link", "set", "down0", "up")
    watcher = wire.live("down0", "--json")
    assert watcher.stderr is not None
    wire.ip("-n", wire.name, "link", "set", "down0", "down")
    assert watcher.stderr.readline() == (
        "rdmascope: down0: the interface is down; nothing comes before it is up again\n"
    )
    wire.ip("-n", wire.name, "link", "set", "down0", "up")
    assert watcher.stderr.readline() == "rdmascope: down0: it is up again\n"
    watcher.send_signal(signal.SIGINT)
    out, err = rest_of(watcher)
    assert (watcher.returncode, err) == (0, "")
    assert (lines(out)[-1]["went_down"], lines(out)[-1]["trouble"]) == (1, None)
    page = wire.live("down0", "--duration", "2s")
    assert page.stderr is not None
    wire.ip("-n", wire.name, "link", "set", "down0", "down")
    out, _ = page.communicate(timeout=DEADLINE)
    assert "down0 went down 1 time: what passed meanwhile is missing above" in out
    wire.ip("-n", wire.name, "link", "del", "down0")


def test_wireshark_is_fed_what_passes(wire: Namespace, tmp_path: Path) -> None:
    path = SAMPLES / "bidir-rxe.pcap.zst"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    options = ("extcap", "--capture", "--extcap-interface", "nfs-rdma-interface", "--device", wire.near)
    feeder = wire.run("-c", PROGRAM, *options, "--fifo", str(pipe), stderr=subprocess.PIPE)
    reader = subprocess.Popen(
        [find_tshark().path, "-l", "-r", str(pipe), "-Y", "rpc.msgtyp == 0", "-T", "fields", "-e", "rpc.xid"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert reader.stdout is not None
    end = time.monotonic() + DEADLINE
    while not wire.listening(feeder.pid):
        assert feeder.poll() is None and time.monotonic() < end, feeder.communicate()
        time.sleep(0.02)
    wire.replay(path)
    wanted = sorted(f"{one['xid']:#010x}" for one in of(path))
    found = sorted(reader.stdout.readline().strip() for _ in wanted)  # While it still captures.
    assert found == wanted
    feeder.send_signal(signal.SIGTERM)
    assert feeder.wait(DEADLINE) == 0 and reader.stdout.read() == ""
    reader.wait(DEADLINE)


def test_an_interface_that_goes_away(wire: Namespace) -> None:
    wire.ip("-n", wire.name, "link", "add", "gone0", "type", "veth", "peer", "name", "gone1")
    wire.ip("-n", wire.name, "link", "set", "gone0", "up")
    watcher = wire.live("gone0", "--json")
    wire.ip("-n", wire.name, "link", "del", "gone0")
    out, err = watcher.communicate(timeout=DEADLINE)
    assert (watcher.returncode, err) == (2, "rdmascope: gone0: the interface is gone\n")
    assert lines(out)[-1]["ended_by"] == "error"


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["nosuch0"], "nosuch0: no such device; there are "),
        (["rxe7"], "rxe7: no such device; "),
        (["lo", "--until-rule", "V9-NONE"], "no rule 'V9-NONE'"),
        (["lo", "--duration", "soon"], "'soon' is no duration"),
    ],
)
def test_what_cannot_be_is_one_line(arguments: list[str], complaint: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, "live", *arguments, "--json"], capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert complaint in result.stderr


def test_panes_on_running_traffic(wire: Namespace, tmp_path: Path) -> None:
    command = ["ip", "netns", "exec", wire.name, sys.executable, "-c", PROGRAM, "live", wire.near, "--browse"]
    terminal = Terminal(command, tmp_path)
    terminal.until("nothing yet")
    wire.replay(SAMPLES / "longcall-rxe.pcap.zst")
    count = len(of(SAMPLES / "longcall-rxe.pcap.zst"))
    terminal.until(f"{count} of {count}")
    terminal.press("q")
    assert terminal.ended() == 0
    assert "none dropped" in terminal.text and "Traceback" not in terminal.text
    assert not [*tmp_path.iterdir()]


def test_panes_need_what_can_be_captured(wire: Namespace, tmp_path: Path) -> None:
    terminal = Terminal([sys.executable, "-c", PROGRAM, "live", "nosuch0", "--browse"], tmp_path)
    assert terminal.ended() == 2
    assert "nosuch0: no such device" in terminal.text and "\x1b[?1049h" not in terminal.text
    assert not [*tmp_path.iterdir()]
