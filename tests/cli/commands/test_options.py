"""Small promises of several commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from click.testing import CliRunner

from playbook.samples import SAMPLES
from rdmascope.cli.main import main


def test_each_reads_every_file_of_a_folder(tmp_path: Path) -> None:
    for name in "ab":
        shutil.copy(SAMPLES / "bidir-rxe.pcap.zst", tmp_path / f"{name}.pcap.zst")
    result = CliRunner().invoke(main, ["report", "--each", str(tmp_path), "--json"])
    captures = [json.loads(line) for line in result.stdout.splitlines() if '"type":"capture"' in line]
    assert [Path(one["file"]).name for one in captures] == ["a.pcap.zst", "b.pcap.zst"]


def test_a_rule_is_explained_for_scripts() -> None:
    record = json.loads(CliRunner().invoke(main, ["rules", "V1-CREDIT-EXCEEDED", "--json"]).stdout)
    assert (record["type"], record["id"]) == ("rule", "V1-CREDIT-EXCEEDED")


def test_a_short_text_is_no_truncated_capture(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    assert "a text file" in CliRunner().invoke(main, ["report", str(tmp_path / "x")]).stderr
