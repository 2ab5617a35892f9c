"""Saved tables in place of a capture: commands print what they print of the capture, held against ``tests/golden``.

The tables get the name of the sample, so that even the names in the outputs are those of the golden files.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from playbook.samples import SAMPLES as FOLDER
from rdmascope.captures.tables.saved_tables import listed
from rdmascope.cli.main import main

from .test_outputs import SAMPLES, golden, kept, made, runs

ANSWERED = ("report", "questions", "rpcs", "credits", "files", "audit", "transport")
OF_PACKETS = {
    "info": "what files say of themselves",
    "packets": "packets",
    "show": "packets",
    "export": "packets",
    "sessions": "what calls say of clients and sessions",
}
"""What is read from the capture that the tables were made of, and said so."""
OF_EACH_KIND = [f"{name}.pcap.zst" for name in ("bidir-rxe", "krb5-rxe", "loss-rxe", "siw-nfs-all", "v2-settles")]
"""Both directions, what is encrypted, what is lost, iWARP, version 2."""
IN_PART = ("diagnose",)
"""Looks at the bytes of calls for some of it, and says what it did not look at."""


def save(sample: str, target: Path) -> None:
    done = CliRunner().invoke(main, ["sql", str(FOLDER / sample), "--save", str(target)], prog_name="rdmascope")
    assert (done.exit_code, done.output) == (0, ""), done.output


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes the folder with a database, or a folder of Parquet files, that is called as the sample; each once."""

    @cache
    def made(sample: str, kind: str = ".duckdb") -> Path:
        folder = tmp_path_factory.mktemp("saved")
        save(sample, folder / f"made{kind}")
        return (folder / f"made{kind}").rename(folder / sample).parent

    return made


def narrow_and_json(text: str) -> list[str]:
    """Of a golden file: how wide a page is has nothing to do with where its numbers are from."""
    runs = re.split(r"^(?=\$ rdmascope )", text, flags=re.MULTILINE)
    return [one for one in runs if "--json" in one.partition("\n")[0] or one.partition("\n")[0].endswith("# 80")]


def test_every_command_is_answered_or_refused_for_a_reason() -> None:
    assert {*ANSWERED, *OF_PACKETS, *IN_PART} == runs(SAMPLES[0]).keys()


@pytest.mark.parametrize("name", ANSWERED)
@pytest.mark.parametrize("sample", OF_EACH_KIND)
def test_tables_answer_as_the_capture_does(
    sample: str, name: str, saved: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved(sample))
    asked = [run for run in runs(sample)[name] if "--json" in run.arguments or run.width == 80]
    before, of_it = kept(sample, name)
    assert narrow_and_json(golden(asked, before, whole=0)) == narrow_and_json(of_it) != []


@pytest.mark.parametrize("name", OF_PACKETS)
def test_what_takes_packets_reads_them_from_the_capture(name: str, saved: Callable[..., Path], tmp_path: Path) -> None:
    sample = "loss-siw.pcap.zst"
    what = OF_PACKETS[name]
    options = {"show": ["--rpc", "1"], "export": ["-o", str(tmp_path / "out.pcapng")]}.get(name, [])
    runner = CliRunner()
    fresh = runner.invoke(main, [name, str(FOLDER / sample), *options], prog_name="rdmascope")
    assert (fresh.exit_code, fresh.stderr) == (0, "") != (0, fresh.stdout)
    for tables in (saved(sample) / sample, saved(sample, "") / sample):
        done = runner.invoke(main, [name, str(tables), *options], prog_name="rdmascope")
        assert (done.exit_code, done.stdout) == (0, fresh.stdout)
        assert done.stderr == f"rdmascope: {tables}: the tables do not hold {what}; read from {FOLDER / sample}\n"


def test_of_many_captures_the_first_is_named() -> None:
    assert listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a and b and c"
    assert listed([f"{number}" for number in range(1002)]) == "0 and 1,001 more"


def test_packets_of_other_rpcs_are_not_taken_for_those_of_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The capture is gone, or is another by now, or has other RPCs: by a filter, or by what was taken for RPCs."""
    sample = "loss-siw.pcap.zst"
    monkeypatch.chdir(tmp_path)
    capture = Path("a.pcap.zst")
    shutil.copy(FOLDER / sample, capture)
    runner = CliRunner()
    for tables, options in (
        ("all", []),
        ("some", ["--slower-than", "1us"]),
        ("ports", ["--port", "4000", "--as", "rpcrdma"]),
    ):
        assert runner.invoke(main, ["sql", str(capture), "--save", tables, *options]).exit_code == 0

    def refused(tables: str) -> str:
        done = runner.invoke(main, ["show", tables, "--rpc", "1"], prog_name="rdmascope")
        (line,) = done.output.splitlines()
        assert done.exit_code == 2
        return line.removeprefix(f"rdmascope: {tables}: holds tables, in which packets are not")

    assert refused("some") == ", and was saved with a filter: give both filters to a.pcap.zst"
    assert refused("ports") == ", and was saved with --port 4000 --as rpcrdma: give that to a.pcap.zst"
    capture.write_bytes(b"")
    assert refused("all") == "; they were in a.pcap.zst, which has changed since"
    capture.unlink()
    assert refused("all") == "; they are in a.pcap.zst, which is not there"


@pytest.mark.parametrize("name", ANSWERED)
def test_so_does_a_folder_of_parquet(name: str, saved: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    sample = "loss-siw.pcap.zst"
    monkeypatch.chdir(saved(sample, ""))
    before, of_it = kept(sample, name)
    assert made(sample, name, before) == of_it


@pytest.mark.parametrize(
    "words",
    ["report --json", "rpcs", "rpcs --json --errors", "transport --json", "credits --json", "files --json", "audit"],
)
def test_so_do_tables_of_several_files(words: str, several: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    name, *options = words.split()
    runner = CliRunner()
    kept = runner.invoke(main, [name, str(several), *options], prog_name="rdmascope")
    if name == "audit":  # It takes each file for a capture of its own.
        assert (kept.exit_code, "frame 4536 (nconnect-rxe.pcap.zst:63), RPC 90" in kept.output) == (1, True)
        return
    fresh = runner.invoke(main, [name, *SEVERAL, *options], prog_name="rdmascope")
    assert kept.output.replace(str(several), f"{SEVERAL[0]} and 1 more") == fresh.output != ""


SEVERAL = ["loss-rxe.pcap.zst", "nconnect-rxe.pcap.zst"]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("several") / "both.duckdb"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(FOLDER)
        done = CliRunner().invoke(main, ["sql", *SEVERAL, "--save", str(path)], prog_name="rdmascope")
    assert done.exit_code == 0, done.output
    return path


@pytest.mark.parametrize("name", ["report", "rpcs", "transport --credits", "files", "audit", "transport"])
def test_filters_choose_the_same_rpcs_of_tables(
    name: str, saved: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = "loss-rxe.pcap.zst"

    def chosen(folder: Path) -> str:
        monkeypatch.chdir(folder)
        words = [*name.split(), sample, "--slower-than", "10ms", "--json"]
        return CliRunner().invoke(main, words, prog_name="rdmascope").stdout

    found = chosen(saved(sample))
    assert found and found == chosen(FOLDER)
