"""What the README and the papers in ``docs/`` show is what the commands print.

``python tests/test_readme.py`` writes the present output into them, and draws the README's picture again.
"""

from __future__ import annotations

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import chdir
from pathlib import Path

import pytest
from click.testing import Result

from playbook.commands import needs_shell, run

ROOT = Path(__file__).parents[1]
PAPERS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SESSION = re.compile(r"```console\n(.*?)```\n", re.DOTALL)
PICTURE = ROOT / "docs" / "report.svg"
PICTURED, PICTURE_LINES = ["report", "loss-rxe.pcap.zst"], 47
PICTURE_WIDTH = 104


def sessions() -> list[tuple[str, list[tuple[str, str]]]]:
    """Per block, the paper, the commands and what they print."""
    return [
        (paper.name, re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE))
        for paper in PAPERS
        for block in SESSION.findall(paper.read_text())
    ]


def link_samples(folder: Path) -> None:
    for sample in (ROOT / "captures" / "samples").iterdir():
        (folder / sample.name).symlink_to(sample)


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "COLUMNS": "80", "LC_ALL": "C.UTF-8", **more}


def shown(commands: list[str], folder: Path, samples: bool = True) -> list[str]:
    """What the commands of one block print at 80 columns; ``samples``: beside the samples, else in an empty folder."""
    if samples:
        link_samples(folder)
    printed = []
    for command in commands:
        done: Result | subprocess.CompletedProcess[str]
        if needs_shell(command):
            done = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=environment(), stdin=subprocess.DEVNULL,
                capture_output=True, text=True,
            )  # fmt: skip
        else:
            with chdir(folder):
                done = run(*shlex.split(command)[1:], columns=80)
        text = done.stdout + "".join(line for line in done.stderr.splitlines(True) if line.startswith("rdmascope:"))
        printed.append("".join(f"{line.rstrip()}\n" for line in text.splitlines()))
    return printed


@pytest.mark.parametrize(("paper", "session"), sessions(), ids=lambda value: value if isinstance(value, str) else "")
def test_papers_show_what_is_printed(paper: str, session: list[tuple[str, str]], tmp_path: Path) -> None:
    if any("tshark" in command for command, _ in session) and shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    commands = [command for command, _ in session]
    assert shown(commands, tmp_path, paper != PAPERS[0].name) == [printed for _, printed in session]


def pictured(folder: Path, **more: str) -> str:
    """The output that the picture shows."""
    link_samples(folder)
    done = subprocess.run(
        ["rdmascope", *PICTURED], cwd=folder, env=environment(COLUMNS=str(PICTURE_WIDTH), **more),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return "".join(done.stdout.splitlines(keepends=True)[:PICTURE_LINES])


def draw(folder: Path) -> str:
    """The picture: the command's coloured output, drawn by rich."""
    from rich.console import Console
    from rich.text import Text

    colours = pictured(folder, FORCE_COLOR="1", TERM="xterm-256color")
    with open(os.devnull, "w") as nowhere:
        console = Console(file=nowhere, record=True, width=PICTURE_WIDTH, color_system="truecolor", force_terminal=True)
        console.print(Text.from_ansi(colours), soft_wrap=True)
        return console.export_svg(title=" ".join(["rdmascope", *PICTURED]), unique_id="report")


def words_of(svg: str) -> str:
    """The text of a picture, without its colours, places and blanks."""
    drawn = "".join(re.findall(r"<text[^>]*clip-path[^>]*>(.*?)</text>", svg))
    return "".join(html.unescape(drawn).split())


def test_the_picture_shows_what_is_printed(tmp_path: Path) -> None:
    assert words_of(PICTURE.read_text()) == "".join(pictured(tmp_path).split())


def test_the_readme_is_a_page() -> None:
    assert len(PAPERS[0].read_text().splitlines()) <= 90


def anchors(page: Path) -> set[str]:
    """Of its headings, as they are made by GitHub and by the site."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere() -> None:
    lost = []
    for paper in PAPERS:
        for target in re.findall(r"\]\(([^):]+)\)", paper.read_text()):
            name, _, anchor = target.partition("#")
            page = paper.parent / name if name else paper
            if not page.exists() or (anchor and anchor not in anchors(page)):
                lost.append(f"{paper.name}: {target}")
            if paper.parent == ROOT / "docs" and page.parent != paper.parent:
                lost.append(f"{paper.name}: {target} is not on the site")
    assert lost == []


def test_the_site_has_the_pages_in_the_order_of_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    order = ["index.md", *re.findall(r"\]\(([\w-]+\.md)\)", index)]
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    pages = [page for one in nav for page in ([one] if isinstance(one, str) else next(iter(one.values())))]
    assert sorted(pages) == sorted(paper.name for paper in PAPERS[1:])
    listed = list(dict.fromkeys(order))
    assert sorted(pages, key=listed.index) == pages


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str, tmp_path: Path) -> None:
    def run(instruction: str, **more: str) -> str:
        given = environment(_RDMASCOPE_COMPLETE=f"{shell}_{instruction}", **more)
        return subprocess.run(["rdmascope"], env=given, cwd=tmp_path, capture_output=True, text=True).stdout

    assert "_RDMASCOPE_COMPLETE" in run("source")
    words, at = "rdmascope transport --ic", "2"
    assert "--icrc" in run("complete", COMP_WORDS=words, COMP_CWORD="--ic" if shell == "fish" else at)


def test_the_manual_page_has_every_command(tmp_path: Path) -> None:
    page = subprocess.run(["rdmascope", "--man"], env=environment(), capture_output=True, text=True, check=True).stdout
    for command in ("report", "transport", "live"):
        assert f".SH RDMASCOPE {command.upper()}" in page
    assert ".SH NAME\nrdmascope \\- See the RPCs inside RDMA" in page
    assert "\\fB\\-\\-icrc\\fR" in page
    if shutil.which("groff"):
        drawn = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, cwd=tmp_path
        )
        assert drawn.returncode == 0 and drawn.stderr == ""


def rewrite() -> None:
    import tempfile

    def block(match: re.Match[str]) -> str:
        commands = re.findall(r"^\$ (.*)$", match[1], re.MULTILINE)
        with tempfile.TemporaryDirectory() as folder:
            printed = shown(commands, Path(folder), paper != PAPERS[0])
        inside = "".join(f"$ {command}\n{text}" for command, text in zip(commands, printed, strict=True))
        return f"```console\n{inside}```\n"

    for paper in PAPERS:
        paper.write_text(SESSION.sub(block, paper.read_text()))
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_text(draw(Path(folder)))


if __name__ == "__main__":
    rewrite()
