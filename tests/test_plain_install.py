"""What a plain installation does without the extras, and what it says where it cannot."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from playbook.commands import SAMPLES
from rdmascope.captures.errors import EXTRAS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CAPTURE = str(SAMPLES / "loss-siw.pcap.zst")
HIDDEN = (*EXTRAS, "pandas", "polars", "lxml", "prometheus_client", "fsspec", "s3fs")
PROGRAM = (
    "import sys; sys.modules.update(dict.fromkeys(sys.argv.pop(1).split()));from rdmascope.cli.main import main; main()"
)


def plain(*arguments: str, hidden: tuple[str, ...] = HIDDEN) -> tuple[int, str, str]:
    """Status, output and errors where no extra is installed, or not what is ``hidden``."""
    command = [sys.executable, "-c", PROGRAM, " ".join(hidden), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        *(f"{name} {CAPTURE}" for name in ("info", "rpcs", "packets", "transport", "files", "sessions")),
        f"diagnose {CAPTURE}",
        f"audit {CAPTURE}",
        f"show {CAPTURE} --rpc 3",
        f"compare {CAPTURE} {CAPTURE}",
        f"report {CAPTURE} --by procedure",
        "--man",
        "rules",
        "synth --list",
    ],
)  # fmt: skip
def test_a_plain_installation_reads_reports_diagnoses_audits_shows(words: str) -> None:
    status, printed, errors = plain(*words.split())
    assert status in (0, 1) and printed and "Traceback" not in errors and "not installed" not in errors, errors


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("sql", ["rpcs", CAPTURE, "--where", "latency_ns > 1e6"]),
        ("sql", ["sql", CAPTURE, "SELECT 1"]),
        ("sql", ["batch", CAPTURE, "--out", "{folder}/set"]),
        ("sql", ["packets", CAPTURE, "-Y", "nfs"]),
        ("layers", ["show", CAPTURE, "--frame", "5"]),
        ("layers", ["synth", "v2-settles", "-o", "{folder}/x.pcapng"]),
        ("verify", ["verify", CAPTURE]),
        ("html", ["report", CAPTURE, "-o", "{folder}/page.html"]),
    ],
)
def test_what_an_extra_brings_is_asked_for_in_one_line(extra: str, words: list[str], tmp_path: Path) -> None:
    status, _, errors = plain(*(word.format(folder=tmp_path) for word in words))
    assert status == 2 and errors.count("\n") == 1, errors
    assert errors.endswith(f"which is not installed: pip install 'rdmascope[{extra}]'\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", ["batch {} --out set", "export {} --to parquet -o set", "export {} --to arrow -o set", "sql {} --save set"]
)
def test_with_sql_alone_parquet_and_arrow_are_asked_for(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, errors = plain(*words.format(CAPTURE).split(), hidden=("pyarrow",))
    assert (status, errors.count("\n")) == (2, 1) and errors.endswith("pip install 'rdmascope[arrow]'\n"), errors
    assert list(tmp_path.iterdir()) == []


def test_the_extras_are_those_of_the_project() -> None:
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    for name, extra in ((name, extra) for name, (_, extra) in EXTRAS.items() if extra):
        assert any(wanted.partition(">=")[0].replace("-", "_") == name for wanted in extras[extra]), name
    users = set(extras) - {"all", "docs", "fuzz", "test"}
    assert extras["all"] == [f"rdmascope[{','.join(sorted(users))}]"]


def test_the_library_says_so_too() -> None:
    program = (
        "import sys; sys.modules['duckdb'] = None\n"
        f"import rdmascope; capture = rdmascope.read({CAPTURE!r}); assert len(list(capture)) > 5\n"
        "try: capture.sql('SELECT 1')\n"
        "except rdmascope.CaptureError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("pip install 'rdmascope[sql]'\n")


def test_every_lowest_version_is_named() -> None:
    for wanted in PROJECT["dependencies"]:
        assert ">=" in wanted, wanted
