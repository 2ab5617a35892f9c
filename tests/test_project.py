"""Rules of the project as a whole.

What does not follow them yet is listed in ``tests/exceptions.toml``, which can only shrink: an entry that is no longer
needed fails its test, too.  ``python tests/test_project.py`` takes such entries out of the list; it never adds any.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXCEPTIONS = ROOT / "tests" / "exceptions.toml"
TOPS = ("rdmascope", "cli", "captures", "dissect")
GENERATED = {"__pycache__", "build", "dist", "bench/work", "tests/fuzz/work", "tests/lab/work"}
MAX_LINES = 1000

BELOW = {
    "rdmascope": ["cli.page"],
    "cli.commands": ["cli.page", "cli.browse"],
    "cli.page": ["cli.views"],
    "cli.browse": ["cli.views"],
    "cli.views": ["cli"],
    "cli": ["captures"],
    "captures": ["dissect.records", "dissect.trace"],
    "dissect.records": ["dissect.diagnosis", "dissect.verify"],
    "dissect.diagnosis": ["dissect.audit", "dissect.measure"],
    "dissect.audit": ["dissect.rpcrdma"],
    "dissect.trace": ["dissect.rpcrdma"],
    "dissect.measure": ["dissect.rpcrdma"],
    "dissect.verify": ["dissect.rpcrdma"],
    "dissect.rpcrdma": ["dissect.transport", "dissect.onc"],
    "dissect.transport": ["dissect.link"],
    "dissect.link": ["dissect.layers"],
    "dissect.onc": ["dissect.layers"],
    "dissect.layers": ["dissect"],
    "dissect": [],  # the ground: frames, arrays, intervals, percentiles
}
"""The rooms, each with those right below it.  A module may import from its own room and from every room below."""


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def package(folder: Path) -> tuple[str, ...]:
    """A folder's full name: only the door is installed under its own name."""
    return folder.parts if folder.parts[0] == "rdmascope" else ("rdmascope", *folder.parts)


def full_name(path: Path) -> str:
    inside = path.relative_to(ROOT)
    return ".".join((*package(inside.parent), *([] if inside.stem == "__init__" else [inside.stem])))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> Iterator[str]:
    """Full names of what a module imports, wherever in it."""
    here = package(path.relative_to(ROOT).parent)
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + 1] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            yield from (f"{base}.{alias.name}" for alias in node.names)


@cache
def graph() -> dict[str, set[str]]:
    """Every module with the modules that it imports, by their names without "rdmascope."."""
    names = {full_name(path): path for top in TOPS for path in modules(top)}
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        used = set()
        for wanted in imported(path):
            owner = wanted if wanted in names else wanted.rpartition(".")[0]
            if owner in names and owner != name:
                used.add(owner.removeprefix("rdmascope."))
        found[name.removeprefix("rdmascope.")] = used
    return found


def room(module: str) -> str:
    parts = module.split(".")
    return next(
        name
        for length in range(len(parts), -1, -1)
        if (name := ".".join(parts[:length]) or "rdmascope") in BELOW
    )  # fmt: skip


def below(name: str) -> set[str]:
    return {name}.union(*(below(lower) for lower in BELOW[name]))


def upward() -> list[str]:
    """Imports that do not go down."""
    return sorted(
        f"{module} -> {used}"
        for module, uses in graph().items()
        for used in uses
        if room(used) not in below(room(module))
    )


def circles() -> list[str]:
    """Modules that import themselves by way of others."""

    def reached(module: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(graph()[module])
        while waiting:
            if (name := waiting.pop()) not in seen:
                seen.add(name)
                waiting.extend(graph()[name])
        return seen

    return sorted(module for module in graph() if module in reached(module))


def repeated_classes() -> list[str]:
    """Names of classes that exist more than once."""
    names = [
        node.name
        for top in TOPS
        for path in modules(top)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    ]
    return sorted({name for name in names if names.count(name) > 1})


NAMES = "most told tells heard believe believes believed greet greeted greeting spoken somebody nobody anybody whoever"
"""Words that no identifier has: a maximum is ``max``, and data neither talk nor listen."""
PHRASES = r"vantage|(?:un)?retire(?:s|d|ment)?|(?:un)?stitch(?:es|ed)?|episodes?|somebody|nobody|anybody|whoever"
SAYINGS = r"sent again|looks on at|neither here nor there"


def words(identifier: str) -> list[str]:
    """``MOST_ones`` and ``MostOnes`` are most and ones."""
    return re.findall(r"[A-Z]?[a-z]+|[A-Z]+", identifier.replace("_", " "))


def banned_words() -> list[str]:
    found = set()
    for top in TOPS:
        for path in modules(top):
            text, name = path.read_text().replace("retire_blk_tov", ""), path.relative_to(ROOT).as_posix()
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.NAME and token.string != "most_common":
                    found |= {
                        f"{name}: {word.lower()}" for word in words(token.string) if word.lower() in NAMES.split()
                    }
            for phrase in re.findall(rf"\b(?:{PHRASES})\b|{SAYINGS}", text.replace("_", " "), re.IGNORECASE):
                found.add(f"{name}: {phrase.lower()}")
    return sorted(found)


def long_files() -> list[str]:
    folders = (*TOPS, "tests", "bench")
    return [
        path.relative_to(ROOT).as_posix()
        for folder in folders
        for path in modules(folder)
        if "work" not in path.relative_to(ROOT).parts and path.read_text().count("\n") > MAX_LINES
    ]


def untested_packages() -> list[str]:
    """Packages with code of their own, and no test in the folder of tests that mirrors them."""
    # The door's are in test_door.py: beside playbook, a folder of that name would hide the package.
    tops = [top for top in TOPS if top != "rdmascope"]
    packages = {path.parent.relative_to(ROOT) for top in tops for path in modules(top) if path.stem != "__init__"}
    return sorted(folder.as_posix() for folder in packages if not list((ROOT / "tests" / folder).glob("test_*.py")))


def homeless_tests() -> list[str]:
    """Tests in a folder that mirrors no package."""
    return [
        path.relative_to(ROOT).as_posix()
        for top in TOPS
        for path in modules(f"tests/{top}")
        if not (ROOT / path.parent.relative_to(ROOT / "tests") / "__init__.py").exists()
    ]


KEPT = {
    "upward": upward,
    "circles": circles,
    "repeated_classes": repeated_classes,
    "banned_words": banned_words,
    "long_files": long_files,
    "untested_packages": untested_packages,
    "homeless_tests": homeless_tests,
}
"""What is not allowed, but for what the list of exceptions names."""


def excepted() -> dict[str, list[str]]:
    return tomllib.loads(EXCEPTIONS.read_text())


@pytest.mark.parametrize("rule", KEPT)
def test_nothing_new_breaks_the_rules(rule: str) -> None:
    assert sorted(set(KEPT[rule]()) - set(excepted().get(rule, []))) == []


@pytest.mark.parametrize("rule", KEPT)
def test_exceptions_that_are_no_longer_needed_are_gone(rule: str) -> None:
    done = set(excepted().get(rule, [])) - set(KEPT[rule]())
    assert not done, f"well done; run: .venv/bin/python tests/test_project.py ({sorted(done)})"


@pytest.mark.parametrize("folder", TOPS)
def test_relative_imports_inside_a_folder_and_only_there(folder: str) -> None:
    for path in modules(folder):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith(f"rdmascope.{folder}"), path
                assert node.level <= len(path.relative_to(ROOT).parent.parts), path


OUTSIDE = {"io", "os", "pathlib", "socket", "subprocess", "sys", "tempfile", "time", "datetime", "logging", "mmap"}


@pytest.mark.parametrize("path", modules("dissect"), ids=lambda path: str(path.relative_to(ROOT)))
def test_dissect_is_pure(path: Path) -> None:
    """It opens nothing, prints nothing, reads no clock."""
    assert not OUTSIDE & {name.split(".")[0] for name in imported(path)}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input"}, f"line {node.lineno}"


@pytest.mark.parametrize("folder", TOPS)
def test_no_module_imports_all_of_scapy(folder: str) -> None:
    for path in modules(folder):
        assert not any(name.startswith("scapy.all") for name in imported(path)), path


@pytest.mark.skipif(not (ROOT / "rdmascope").exists(), reason="the door is not built yet")
def test_the_library_needs_neither_click_nor_rich() -> None:
    tried = "import rdmascope, sys; sys.exit(bool({'click', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", tried], cwd=ROOT / "tests").returncode == 0


def test_the_packages_are_the_folders() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT) for top in TOPS for path in modules(top)}
    assert sorted(listed) == sorted([".".join(package(folder)) for folder in folders] + ["rdmascope.docs"])
    for folder in folders:
        assert (ROOT / folder / "__init__.py").exists(), folder


def texts(folder: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Every file that was written by hand."""
    for path in sorted(folder.iterdir()):
        name = path.relative_to(ROOT).as_posix()
        hidden = path.name.startswith(".") and path.name not in {".ci", ".github", ".gitattributes", ".gitignore"}
        if hidden or path.is_symlink() or name in GENERATED or path.name in GENERATED or path.suffix == ".egg-info":
            continue
        if path.is_dir():
            yield from texts(path)
        elif path.suffix not in (".zst", ".dat"):
            yield path.relative_to(ROOT), path.read_text()


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    place = re.compile(r"(?<![\w.$-])/(work|opt|root|wt)/|/tmp/(cap|lab|work|tools|base|brief)|\.\./shared")
    found = [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if place.search(line) and path.name != Path(__file__).name
    ]
    assert found == []


def test_files_that_are_named_are_there() -> None:
    """In docstrings and comments of the program, and in the papers but for the examples of plugins."""
    there = {path.name for path, _ in texts()}
    missing = [
        f"{path}: {name}"
        for path, text in texts()
        if path.parts[0] in (*TOPS, "docs", ".github") and path.name != "plugins.md"
        for name in re.findall(r"\b[a-z]\w*\.py\b", text)
        if name not in there
    ]
    assert missing == []


def write(exceptions: dict[str, list[str]]) -> None:
    lines = ["# What does not follow the rules of tests/test_project.py yet.  Only shrinks."]
    for rule, entries in exceptions.items():
        lines += [f"{rule} = [", *(f'    "{entry}",' for entry in entries), "]"]
    EXCEPTIONS.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    write({rule: sorted(set(excepted().get(rule, [])) & set(found())) for rule, found in KEPT.items()})
