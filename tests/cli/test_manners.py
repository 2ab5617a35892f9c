"""Every command on what is no traffic, its help, and what it does not import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from playbook.commands import EVERYTHING, LONG_CALLS, PROGRAM, run, unpacked
from rdmascope.cli.main import COMMANDS, HIDDEN

ONE_FILE = ["report", "rpcs", "packets"]


class TestBadInput:
    @pytest.mark.parametrize("command", ONE_FILE)
    @pytest.mark.parametrize(
        ("content", "complaint"),
        [
            (b"", "is empty"),
            (b"a text file, if a short one\n", "a text file"),
            (b"\xd4\xc3\xb2\xa1\2\0\4\0\0\0", "truncated"),
            (b"\xd4\xc3\xb2\xa1\2\0\4\0" + bytes(8) + b"\xff\xff\0\0\1\0\0\0", "no frames"),
        ],
    )
    def test_one_line_and_a_status(self, command: str, content: bytes, complaint: str, tmp_path: Path) -> None:
        path = tmp_path / "input"
        path.write_bytes(content)
        result = run(command, str(path))
        assert result.exit_code == 2
        assert result.stderr.startswith(f"rdmascope: {path}: ")
        assert complaint in result.stderr
        assert len(result.stderr.splitlines()) == 1

    def test_a_capture_of_something_else(self, tmp_path: Path) -> None:
        whole = unpacked(EVERYTHING)
        path = tmp_path / "other.pcap"
        path.write_bytes(whole[: 24 + 16 + int.from_bytes(whole[32:36], "little")])
        result = run("report", str(path))
        assert result.exit_code == 2
        assert "1 frame, 0 of them RDMA" in result.stdout
        assert result.stderr == f"rdmascope: {path}: no RDMA packet among 1 frame (ICMPv6)\n"

    @pytest.mark.parametrize("command", ONE_FILE)
    def test_what_came_before_the_damage_is_shown(self, command: str, tmp_path: Path) -> None:
        path = tmp_path / "cut.pcap"
        path.write_bytes(unpacked(EVERYTHING)[:2_000_000])
        result = run(command, str(path))
        assert result.exit_code == 2
        assert len(result.stdout.splitlines()) > 30
        assert len(result.stderr.splitlines()) == 1
        assert "truncated in frame" in result.stderr

    def test_all_frames_that_were_asked_for_are_shown_before_the_damage_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "cut.pcap"
        path.write_bytes(unpacked(EVERYTHING)[:2_000_000])
        result = run("show", str(path), "--frame", "1-2")
        assert result.exit_code == 2 and len(result.stderr.splitlines()) == 1
        assert "Frame 1: " in result.stdout and "Frame 2: " in result.stdout

    def test_the_report_says_where_it_ends(self, tmp_path: Path) -> None:
        path = tmp_path / "cut.pcap"
        path.write_bytes(unpacked(EVERYTHING)[:2_000_000])
        result = run("report", "--json", str(path))
        capture = json.loads(result.stdout.splitlines()[0])
        assert capture["error"] == result.stderr.removeprefix("rdmascope: ").strip()
        assert capture["rpcs"] > 20

    @pytest.mark.parametrize(
        "arguments",
        [("nonsense",), ("report",), ("rpcs", LONG_CALLS, "--sort", "colour"), ("--bogus",)]
        + [("export", LONG_CALLS), ("packets", LONG_CALLS, "-c", "0")],
    )
    def test_bad_options(self, arguments: tuple[str, ...]) -> None:
        result = run(*arguments)
        assert result.exit_code == 2
        assert not result.stdout
        assert result.stderr.startswith("rdmascope: ")
        assert len(result.stderr.splitlines()) == 1


class TestManners:
    @pytest.mark.parametrize("command", COMMANDS)
    def test_help_has_an_example(self, command: str) -> None:
        result = run(command, "--help")
        assert result.exit_code == 0
        assert f"$ rdmascope {command}" in result.stdout

    def test_help_lists_the_commands(self) -> None:
        page = run().stdout
        assert run("--help").stdout == page
        assert {command for command in COMMANDS if f"  {command} " not in page} == {*HIDDEN}

    def test_help_does_not_wait_for_what_it_does_not_need(self) -> None:
        loaded = modules("--help")
        assert "click" in loaded
        assert not {"numpy", "rich", "scapy"} & loaded

    def test_the_report_does_without_scapy_layers(self) -> None:
        assert not {name for name in modules("report", LONG_CALLS) if name.startswith("scapy.layers")}

    def test_the_report_for_scripts_loads_nothing_that_only_others_need(self) -> None:
        loaded = modules("report", "--json", LONG_CALLS)
        assert "rdmascope.dissect.records.report" in loaded
        assert not loaded & {"rich", "duckdb", "rdmascope.captures.session.grouping", "rdmascope.dissect.audit.auditor"}

    def test_a_closed_pipe_is_no_reason_to_complain(self) -> None:
        with subprocess.Popen(
            [*PROGRAM, "packets", EVERYTHING], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""


def modules(*arguments: str) -> set[str]:
    """What a run of the command imports."""
    program = (
        "import sys\nfrom rdmascope.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *arguments]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stderr.split())
