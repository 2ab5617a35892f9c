"""What the README shows is what the commands print.

``python tests/test_readme.py`` writes the present output into the README.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SESSION = re.compile(r"```console\n(.*?)```\n", re.DOTALL)


def sessions() -> list[list[tuple[str, str]]]:
    """Per block, the commands and what they print."""
    return [
        [(command, printed) for command, printed in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)]
        for block in SESSION.findall(README.read_text())
    ]


def shown(commands: list[str], folder: Path) -> list[str]:
    """What the commands of one block print at 80 columns, beside the samples."""
    for sample in (ROOT / "captures" / "samples").iterdir():
        (folder / sample.name).symlink_to(sample)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80", "LC_ALL": "C.UTF-8"}
    printed = []
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
        )  # fmt: skip
        text = done.stdout + "".join(line for line in done.stderr.splitlines(True) if line.startswith("rdmascope:"))
        printed.append("".join(f"{line.rstrip()}\n" for line in text.splitlines()))
    return printed


@pytest.mark.parametrize("session", sessions(), ids=lambda session: session[0][0])
def test_the_readme_shows_what_is_printed(session: list[tuple[str, str]], tmp_path: Path) -> None:
    if any("tshark" in command for command, _ in session) and shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    commands = [command for command, _ in session]
    assert shown(commands, tmp_path) == [printed for _, printed in session]


def rewrite() -> None:
    import tempfile

    def block(match: re.Match[str]) -> str:
        commands = re.findall(r"^\$ (.*)$", match[1], re.MULTILINE)
        with tempfile.TemporaryDirectory() as folder:
            printed = shown(commands, Path(folder))
        inside = "".join(f"$ {command}\n{text}" for command, text in zip(commands, printed, strict=True))
        return f"```console\n{inside}```\n"

    README.write_text(SESSION.sub(block, README.read_text()))


if __name__ == "__main__":
    rewrite()
