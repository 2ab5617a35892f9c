"""Wireshark is given a capture of the RPCs, which is gone afterwards."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from playbook.commands import BOTH_WAYS, run


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wireshark on the PATH that notes its arguments, and copies what it is to read."""
    path = tmp_path / "bin" / "wireshark"
    path.parent.mkdir()
    path.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\nfor last; do :; done\ncp "$last" {tmp_path}/read.pcapng\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return path


def test_wireshark_reads_what_export_writes(program: Path, tmp_path: Path) -> None:
    result = run("export", "--to", "wireshark", BOTH_WAYS, "-Y", "nfs", "--slower-than", "1ms")
    assert (result.exit_code, result.output) == (0, "")
    run("export", BOTH_WAYS, "-o", str(tmp_path / "exported.pcapng"), "--slower-than", "1ms")
    assert (tmp_path / "read.pcapng").read_bytes() == (tmp_path / "exported.pcapng").read_bytes()
    *options, path = (tmp_path / "arguments").read_text().split()
    assert options == ["-Y", "nfs", "-r"] and Path(path).name == "bidir-rxe.pcapng"
    assert not os.listdir(tmp_path / "temporary")


def test_its_failure_is_ours(program: Path, tmp_path: Path) -> None:
    program.write_text("#!/bin/sh\nexit 3\n")
    result = run("export", "--to", "wireshark", BOTH_WAYS)
    assert (result.exit_code, result.stderr) == (2, "rdmascope: Wireshark ended with status 3\n")
    assert not os.listdir(tmp_path / "temporary")


def test_without_wireshark_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("export", "--to", "wireshark", BOTH_WAYS)
    assert result.exit_code == 2
    assert result.stderr.startswith("rdmascope: Wireshark is not installed") and "rdmascope export" in result.stderr


def test_nothing_is_opened_where_nothing_passes(program: Path, tmp_path: Path) -> None:
    result = run("export", "--to", "wireshark", BOTH_WAYS, "--where", "number > 1000000")
    assert (result.exit_code, "passes the filter" in result.stderr) == (2, True)
    assert not (tmp_path / "arguments").exists()
