"""Rules of the project as a whole."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {"dissect": set(), "captures": {"dissect"}, "cli": {"captures", "dissect"}}
GENERATED = {"__pycache__", "build", "dist", "bench/work", "tests/lab/work"}


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Full names of what a module imports, wherever in it."""
    package = ("rdmascope", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            yield from (f"{base}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_arrows_go_one_way(folder: str) -> None:
    for path in modules(folder):
        used = {name.split(".")[1] for name in imported(path) if name.startswith("rdmascope.")}
        assert used - {folder} <= MAY_IMPORT[folder], path


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_relative_imports_inside_a_folder_and_only_there(folder: str) -> None:
    for path in modules(folder):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith(f"rdmascope.{folder}"), path
                assert node.level <= len(path.relative_to(ROOT).parent.parts), path


OUTSIDE = {"io", "os", "pathlib", "socket", "subprocess", "sys", "tempfile", "time", "datetime", "logging", "mmap"}


@pytest.mark.parametrize("path", modules("dissect"), ids=lambda path: str(path.relative_to(ROOT)))
def test_dissect_is_pure(path: Path) -> None:
    """It opens nothing, prints nothing, reads no clock."""
    assert not OUTSIDE & {name.split(".")[0] for name in imported(path)}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input"}, f"line {node.lineno}"


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_nobody_imports_all_of_scapy(folder: str) -> None:
    for path in modules(folder):
        assert not any(name.startswith("scapy.all") for name in imported(path)), path


def test_the_packages_are_the_folders() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT) for folder in MAY_IMPORT for path in modules(folder)}
    assert sorted(listed) == sorted(".".join(("rdmascope", *folder.parts)) for folder in folders)
    for folder in folders:
        assert (ROOT / folder / "__init__.py").exists(), folder


def texts(folder: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Every file that somebody wrote."""
    for path in sorted(folder.iterdir()):
        name = path.relative_to(ROOT).as_posix()
        hidden = path.name.startswith(".") and path.name not in {".ci", ".github", ".gitignore"}
        if hidden or path.is_symlink() or name in GENERATED or path.name in GENERATED or path.suffix == ".egg-info":
            continue
        if path.is_dir():
            yield from texts(path)
        elif path.suffix != ".zst":
            yield path.relative_to(ROOT), path.read_text()


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    place = re.compile(r"(?<![\w.$-])/(work|opt|root)/|/tmp/(cap|lab|work)|\.\./shared")
    found = [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if place.search(line) and path.name != Path(__file__).name
    ]
    assert found == []
