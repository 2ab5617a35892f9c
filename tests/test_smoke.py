"""Every command once, and every extra: short enough to be run with the oldest and the newest of all dependencies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[1] / "captures" / "samples"
CAPTURE = "loss-siw.pcap.zst"
COMMANDS = [
    "--man",
    f"info {CAPTURE}",
    f"report {CAPTURE}",
    f"diagnose {CAPTURE}",
    f"rpcs {CAPTURE} --where latency_ns>1e6",
    f"show {CAPTURE} --rpc 3",
    f"show {CAPTURE} --frame 100",
    f"packets {CAPTURE}",
    f"transport {CAPTURE}",
    f"files {CAPTURE}",
    f"audit {CAPTURE}",
    f"transport --credits {CAPTURE}",
    f"sessions {CAPTURE}",
    f"compare {CAPTURE} {CAPTURE}",
    f"report {CAPTURE} --jobs 2 --by procedure",
    "synth v2-settles -o {folder}/new.pcapng",
    f"export {CAPTURE} -o {{folder}}/tables.arrow",
    f"export {CAPTURE} -o {{folder}}/tcp.pcapng",
    f"report {CAPTURE} -o {{folder}}/page.html",
    f"batch {CAPTURE} --out {{folder}}/set",
]


def run(*arguments: str) -> str:
    program = [sys.executable, "-m", "rdmascope", *arguments]
    done = subprocess.run(program, capture_output=True, text=True, cwd=SAMPLES, stdin=subprocess.DEVNULL)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command(words: str, tmp_path: Path) -> None:
    assert run(*words.format(folder=tmp_path).split()) or list(tmp_path.iterdir())


def test_sql_and_json_agree() -> None:
    calls = json.loads(run("sql", CAPTURE, "SELECT count(*) AS calls FROM rpcs", "--json"))["calls"]
    assert calls == len(run("rpcs", CAPTURE, "--json").splitlines()) > 10


def test_the_panes_can_be_made() -> None:
    from rdmascope.cli.browse.app import BrowseApp

    assert BrowseApp.BINDINGS


def test_the_prompt_can_be_left() -> None:
    from prompt_toolkit.application import create_app_session
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    from rdmascope.cli.sql_prompt import ask

    asked: list[str] = []
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("SELECT 1;\r\x04")
        ask(asked.append, str)
    assert asked == ["SELECT 1;"]
