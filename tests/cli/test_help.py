"""The example sessions in the help texts show what is printed.

A line of dots stands for any lines, dots in a line for any text, and the columns of a table may stand closer.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from inspect import cleandoc
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from playbook.commands import needs_shell, run
from rdmascope.cli.main import COMMANDS, main

SAMPLES = Path(__file__).parents[2] / "captures" / "samples"
GAP = "..."
NEEDS = {
    "live": "a device",
    "probe": "a server",
    "browse": "a terminal",
    "extcap": "a user's settings",
}
WIDTH = 76
"""Columns of the screen that a help text leaves to an example."""


class Session(NamedTuple):
    command: str
    printed: list[str]
    """Lines, with ``GAP`` where some were left out."""


def sessions(text: str) -> list[Session]:
    found: list[Session] = []
    for paragraph in re.split(r"\n{2,}", text):
        lines = paragraph.splitlines()
        if not lines or lines[0].strip() != "\b":
            continue
        if found and not found[-1].printed:
            found[-1] = Session("", found[-1].printed)  # it shows nothing, so what comes next is not its output
        if found:
            found[-1].printed.append(GAP)
        for line in lines[1:]:
            if line.strip() == "\b":  # inside a paragraph it is an empty line
                line = GAP
            if line.strip().startswith("$ "):
                found.append(Session(line.strip().removeprefix("$ "), []))
            elif found and (found[-1].command.endswith("|") or found[-1].command.count('"') % 2):
                found[-1] = Session(f"{found[-1].command} {line.strip()}", [])
            elif found:
                found[-1].printed.append(" ".join(line.split()))
    return found


def help_of(name: str) -> str:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return cleandoc(command.help or "")


def mismatch(wanted: list[str], printed: list[str]) -> str:
    """The first line that is not printed where it should be; '' where all are."""
    at, anywhere = 0, True
    for line in wanted:
        if line == GAP:
            anywhere = True
            continue
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in re.split(r"\.\.\.|…", line)))
        places = range(at, len(printed)) if anywhere else range(at, min(at + 1, len(printed)))
        place = next((one for one in places if pattern.fullmatch(printed[one])), None)
        if place is None:
            return f"{line!r} after line {at}: {printed[at - 1 : at + 2] if at else printed[:2]}"
        at, anywhere = place + 1, False
    return ""


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in NEEDS])
def test_examples_are_what_is_printed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [one for one in sessions(help_of(name)) if one.command and any(line != GAP for line in one.printed)]
    assert shown, "no example"
    for sample in SAMPLES.iterdir():
        (tmp_path / sample.name).symlink_to(sample)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": str(WIDTH), "LC_ALL": "C.UTF-8"}
    monkeypatch.chdir(tmp_path)
    for session in shown:
        if not needs_shell(session.command):
            result = run(*shlex.split(session.command)[1:], columns=WIDTH)
            printed = [" ".join(line.split()) for line in result.stdout.splitlines()]
            assert mismatch(session.printed, printed) == "", f"$ {session.command}\n{result.output[:4000]}"
            continue
        tools = re.findall(r"(?:^|\| )(\w+)", session.command)
        if lacking := [tool for tool in tools if shutil.which(tool, path=path) is None]:
            pytest.skip(f"{lacking[0]} is not installed")
        done = subprocess.run(
            ["bash", "-c", session.command], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert "Traceback" not in done.stderr
        printed = [" ".join(line.split()) for line in done.stdout.splitlines()]
        assert mismatch(session.printed, printed) == "", f"$ {session.command}\n{done.stdout[:4000]}{done.stderr}"


@pytest.mark.parametrize("name", [*COMMANDS])
def test_examples_fit_eighty_columns(name: str) -> None:
    context = click.Context(main, info_name="rdmascope", help_option_names=["-h", "--help"])
    command = main.get_command(context, name)
    assert command is not None
    with click.Context(command, info_name=name, parent=context, terminal_width=80) as below:
        assert [line for line in command.get_help(below).splitlines() if len(line) > 80] == []
