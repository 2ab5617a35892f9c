"""The command probe, over an in-memory network."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from playbook.fabric import MemoryVerbs
from playbook.hosts import hosts
from rdmascope.captures.live import Device
from rdmascope.captures.peer import rpc
from rdmascope.captures.peer.endpoint import EndpointSettings
from rdmascope.captures.peer.faults import FAULTS
from rdmascope.captures.peer.probe import record as recording
from rdmascope.captures.peer.probe.serve import ECHO, Server
from rdmascope.captures.peer.verbs import interface as host_devices
from rdmascope.captures.peer.verbs.interface import ConnectionLost, PeerAddress, VerbsError
from rdmascope.cli.commands import probe
from rdmascope.cli.main import main
from rdmascope.dissect.layers.oncrpc_codes import PROG_UNAVAIL


def run(*arguments: str, columns: int = 120) -> Result:
    return CliRunner(env={"COLUMNS": str(columns), "RDMASCOPE_TRACEBACK": "1"}).invoke(main, ["probe", *arguments])


def served(monkeypatch: pytest.MonkeyPatch, settings: EndpointSettings | None = None, fault: str = "") -> Server:
    client, server = hosts(settings, FAULTS[fault] if fault else None)
    monkeypatch.setattr(host_devices, "require", lambda: None)
    monkeypatch.setattr(probe, "_devices", lambda: client)
    return server


def records(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


class TestPing:
    def test_a_page(self, monkeypatch: pytest.MonkeyPatch) -> None:
        served(monkeypatch)
        result = run("192.0.2.1", "-c", "2")
        assert result.exit_code == 0, result.output
        for text in (
            "192.0.2.1:20049 by memory",
            "sends 4.00 KiB, receives 4.00 KiB, allows remote invalidation",
            "4.00 KiB to the server, 4.00 KiB back",
            "32 requested, 32 granted",
            "2 calls, 2 replies; min",
            "supported, with transport characteristics",
            "versions 3, 4 of 3 to 4",
        ):
            assert text in result.stdout

    @pytest.mark.parametrize("columns", [40, 80, 160])
    def test_no_line_is_wider_than_the_terminal(self, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
        served(monkeypatch)
        for arguments in (("-c", "1", "--echo", "70000"), ("--suite", "conformance", "--faults")):
            result = run("192.0.2.1", *arguments, columns=columns)
            assert max(map(len, result.stdout.splitlines())) <= columns

    def test_records(self, monkeypatch: pytest.MonkeyPatch) -> None:
        served(monkeypatch, EndpointSettings(version=1))
        lines = records(run("192.0.2.1", "-c", "3", "-i", "100ms", "--json", "--program", str(ECHO)))
        assert [line["type"] for line in lines] == [
            "probe",
            *["probe_round"] * 3,
            "probe_version",
            *["probe_program"] * 2,
            "probe_summary",
        ]
        assert lines[0]["announced"] == {"send_size": 4096, "receive_size": 4096, "remote_invalidation": False}
        assert (lines[4]["settled"], lines[4]["supported"]) == (1, [1, 1])
        assert lines[-1]["min_ns"] <= lines[-1]["median_ns"] <= lines[-1]["p99_ns"] <= lines[-1]["max_ns"]

    @pytest.mark.parametrize("version", ["1", "2"])
    def test_bulk_data(self, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
        served(monkeypatch)
        result = run("192.0.2.1", "-c", "1", "--echo", "100001", "--highest", version, "--json")
        (echoed,) = (line for line in records(result) if line["type"] == "probe_echo")
        assert (echoed["size"], echoed["problem"]) == (100001, None)

    def test_a_server_that_refuses_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        server = served(monkeypatch)
        server.program = lambda message: (bytes(4),)
        result = run("192.0.2.1", "-c", "1")
        assert (result.exit_code, "the first call" in result.stdout) == (1, True)

    def test_a_server_without_nfs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        server = served(monkeypatch)
        server.program = lambda message: (rpc.reply_head(int.from_bytes(message[:4], "big"), PROG_UNAVAIL),)
        result = run("192.0.2.1", "-c", "1")
        assert (result.exit_code, "PROG_UNAVAIL" in result.stdout, "NFS (100003)  not there" in result.stdout) == (
            0,
            True,
            True,
        )

    def test_no_server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        served(monkeypatch)
        result = run("192.0.2.9", "--timeout", "1s")
        assert result.exit_code == 2
        assert result.stderr == "rdmascope: 192.0.2.9:20049: no answer in time while connecting\n"


class TestSuite:
    def test_a_table_and_a_file(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        served(monkeypatch)
        result = run("192.0.2.1", "--suite", "conformance", "--file", "/pattern", "--junit", str(tmp_path / "j.xml"))
        assert (result.exit_code, "warning" in result.stderr) == (0, False), result.output
        assert "20 checks: 20 pass" in result.stdout
        suite = ElementTree.parse(tmp_path / "j.xml").getroot()[0]
        assert (suite.get("tests"), suite.get("failures"), len(suite)) == ("20", "0", 20)

    def test_faults_come_with_a_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        served(monkeypatch)
        result = run("192.0.2.1", "--suite", "conformance", "--file", "/pattern", "--faults", "--json")
        assert (result.exit_code, "may disturb it" in result.stderr) == (0, True)
        lines = records(result)
        assert lines[-1]["verdicts"]["pass"] == lines[-1]["checks"] == len(lines) - 1
        assert all(line["rule"] and line["section"] and line["sends"] for line in lines[:-1])

    def test_a_violation(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        served(monkeypatch, fault="grant-nothing")
        result = run("192.0.2.1", "--suite", "conformance", "--check", "credit-grant", "--junit", str(tmp_path / "j"))
        assert result.exit_code == 1
        assert "violation  credit-grant  MUST V1-CREDIT-ZERO" in result.stdout
        assert "a grant of zero" in (tmp_path / "j").read_text()

    def test_another_rule_than_the_one_that_is_checked(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The check is for the threshold; what is broken is named, on the screen as in the files."""
        served(monkeypatch, fault="other-xid-inline")
        junit = tmp_path / "junit.xml"
        asked = ("192.0.2.1", "--suite", "conformance", "--check", "inline-threshold", "--junit", str(junit))
        assert "violation  inline-threshold  MUST V1-XID-MATCH" in run(*asked).stdout
        assert records(run(*asked, "--json"))[0]["broken_rule"] == "V1-XID-MATCH"
        (case,) = ElementTree.parse(junit).getroot()[0]
        assert case.get("classname") == "V1-XID-MATCH"
        assert "V1-XID-MATCH: " in (case[0].text or "") and "PD-INLINE" not in (case[0].text or "")

    def test_no_fault_without_leave(self, monkeypatch: pytest.MonkeyPatch) -> None:
        served(monkeypatch)
        alone = run("192.0.2.1", "--suite", "conformance", "--check", "done")
        assert (alone.exit_code, "--faults allows it" in alone.stderr) == (2, True)
        assert run("192.0.2.1", "--suite", "conformance", "--check", "done", "--faults").exit_code == 0

    def test_a_check_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        served(monkeypatch)
        result = run("192.0.2.1", "--suite", "conformance", "--check", "nonesuch")
        assert (result.exit_code, "no check 'nonesuch'" in result.stderr) == (2, True)


class RecordedDevice:
    """A device that can be captured on, and on which nothing passes."""

    device, link_type, snaplen, words, received, dropped = Device("rxe0", "rxe", "eth0"), 1, 262144, "", 0, 0
    closed = 0

    def read(self) -> None:
        assert not self.closed

    def count(self) -> None:
        assert not self.closed

    def close(self) -> None:
        self.closed += 1


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


class TestServe:
    def test_until_interrupted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        served(monkeypatch)
        calls = iter(range(3))

        def poll(self: MemoryVerbs, deadline: int) -> ConnectionLost | None:
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return None

        monkeypatch.setattr(MemoryVerbs, "poll", poll)
        result = run("--serve", "--port", "20050", "--fault", "grant-nothing", "--mount-port", "0")
        assert result.exit_code == 0
        assert "mount -t nfs -o vers=4.1,rdma,port=20050 192.0.2.2:/ /mnt" in result.stdout
        assert "vers=3" not in result.stdout
        assert "versions 1 and 2" in result.stdout
        assert "grants no credit (V1-CREDIT-ZERO)" in result.stdout
        assert "0 connections, 0 calls; grant-nothing committed 0 times" in result.stdout

    def test_mounts_by_version_3(self, monkeypatch: pytest.MonkeyPatch) -> None:
        served(monkeypatch)
        monkeypatch.setattr(MemoryVerbs, "poll", lambda self, deadline: interrupt())
        with socket.create_server(("127.0.0.1", 0)) as used:
            port = str(used.getsockname()[1])
            arguments = "--serve", "--source", "127.0.0.1", "--mount-port", port
            busy = run(*arguments, "--capacity", "8MiB")
        assert (busy.exit_code, busy.stderr.count("\n")) == (0, 1)
        assert f"cannot answer MOUNT at TCP port {port}" in busy.stderr
        assert "an NFS export in memory, of 8.00 MiB" in busy.stdout
        found = run(*arguments, columns=160)
        assert f"mount -t nfs -o vers=3,rdma,port=20049,mountport={port},mountproto=tcp,nolock" in found.stdout
        (server, _) = records(run(*arguments, "--json"))
        assert (server["mount_port"], server["capacity"]) == (int(port), 64 << 20)

    def test_what_is_recorded_is_closed_once(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        served(monkeypatch)
        device = RecordedDevice()
        monkeypatch.setattr(recording, "all_devices", lambda: {"rxe0": ["eth0"]})
        monkeypatch.setattr(recording, "open_live", lambda name, settings: device)
        monkeypatch.setattr(MemoryVerbs, "poll", lambda self, deadline: pytest.fail() if device.closed else interrupt())
        result = run("--serve", "--mount-port", "0", "--write", str(tmp_path / "served.pcapng"))
        assert (result.exit_code, device.closed) == (0, 1), result.output
        assert "0 connections, 0 calls" in result.stdout
        assert "served.pcapng: 0 frames, recorded on rxe0 (eth0)" in result.stderr

    def test_faults_that_there_are(self) -> None:
        listed = run("--fault", "list").stdout
        assert "grant-nothing" in listed
        assert "V1-PROC-MSGP" not in listed  # a client's

    def test_a_fault_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        served(monkeypatch)
        result = run("--serve", "--fault", "nonesuch")
        assert (result.exit_code, "no fault 'nonesuch'" in result.stderr) == (2, True)


class TestWithoutDevices:
    def test_no_pyverbs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(host_devices, "find_spec", lambda name: None)
        result = run("192.0.2.1")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.count("\n") == 1
        assert "apt install python3-pyverbs" in result.stderr

    def test_no_device(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(host_devices, "find_spec", lambda name: name)
        monkeypatch.setattr(host_devices, "_CLASS", tmp_path / "nothing")
        result = run("192.0.2.1")
        assert result.exit_code == 2
        assert "rdma link add rxe0 type rxe netdev" in result.stderr

    def test_no_connection_manager(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(host_devices, "find_spec", lambda name: name)
        (tmp_path / "class/rxe0/ports/1/gid_attrs/ndevs").mkdir(parents=True)
        (tmp_path / "class/rxe0/ports/1/gid_attrs/ndevs/0").write_text("eth0\n")
        monkeypatch.setattr(host_devices, "_CLASS", tmp_path / "class")
        monkeypatch.setattr(host_devices, "_RDMA_CM", tmp_path / "rdma_cm")
        result = run("192.0.2.1")
        assert (result.exit_code, "modprobe rdma_ucm" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("192.0.2.1", "--serve"),
        ("192.0.2.1", "--fault", "grant-nothing"),
        ("192.0.2.1", "--faults"),
        ("192.0.2.1", "-4", "-6"),
        ("--serve", "--fault-times", "1"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_an_exchange_that_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    served(monkeypatch)
    file = tmp_path / "probe.pcapng"
    result = run("192.0.2.1", "-c", "1", "--echo", "9000", "--write", str(file))
    assert "built and not recorded" in result.stderr
    report = CliRunner().invoke(main, ["report", str(file)])
    assert report.exit_code == 0
    assert "NFSv3" in report.stdout


class TestDevices:
    def test_an_rxe_device_names_its_interface(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "rxe0/ports/1/gid_attrs/ndevs").mkdir(parents=True)
        for number, name in enumerate(["eth0", "eth0", ""]):
            (tmp_path / f"rxe0/ports/1/gid_attrs/ndevs/{number}").write_text(name)
        monkeypatch.setattr(host_devices, "_CLASS", tmp_path)
        assert host_devices.devices() == {"rxe0": ["eth0"]}

    def test_an_iwarp_device_is_found_by_its_hardware_address(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "class/siw0/ports/1/gids").mkdir(parents=True)
        (tmp_path / "class/siw0/ports/1/gids/0").write_text("5254:0000:0002:0000:0000:0000:0000:0000\n")
        (tmp_path / "class/siw0/node_type").write_text("4: RNIC\n")
        for name, address in (("eth0", "52:54:00:00:00:01"), ("eth1", "52:54:00:00:00:02")):
            (tmp_path / "net" / name).mkdir(parents=True)
            (tmp_path / "net" / name / "address").write_text(address)
        monkeypatch.setattr(host_devices, "_CLASS", tmp_path / "class")
        monkeypatch.setattr(host_devices, "_NET", tmp_path / "net")
        assert host_devices.devices() == {"siw0": ["eth1"]}
        assert host_devices.is_iwarp("siw0")

    def test_addresses_of_the_loopback(self) -> None:
        assert host_devices.addresses("lo")[0] == "127.0.0.1"
        assert host_devices.addresses("nonesuch") == []
        assert host_devices.local_address("127.0.0.1") == "127.0.0.1"

    def test_a_name_that_does_not_resolve(self) -> None:
        with pytest.raises(VerbsError, match=r"nonesuch\.invalid"):
            host_devices.resolve("nonesuch.invalid", 1)
        assert host_devices.resolve("::1", 1, 6) == "::1"

    def test_a_device_that_is_not_there(self) -> None:
        with pytest.raises(VerbsError, match="no RDMA device 'mlx9'"):
            host_devices.source_of("mlx9", "192.0.2.1")

    def test_a_target_in_words(self) -> None:
        assert (str(PeerAddress("a", 1)), str(PeerAddress("fe80::1", 2))) == ("a:1", "[fe80::1]:2")
