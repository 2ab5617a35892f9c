"""The tests of what changed, as many as 15 seconds have room for: ``make quick``.

What changed since the branch left main, committed or not.  Of a file of the product these are the tests in the folder
that mirrors its own: first those named after it, then those that import it; where there is neither, all of that folder.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECONDS = 15
"""After which no test is begun."""
GRACE = 3
"""Seconds more for the last one, which is then broken off."""


def git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")[:-1]


def changed(base: str) -> list[Path]:
    """Python files that are not as on ``base``, and are still there."""
    since = git("merge-base", base, "HEAD") or ["HEAD"]
    names = {*git("diff", "--name-only", since[0]), *git("ls-files", "--others", "--exclude-standard")}
    return [Path(name) for name in sorted(names) if name.endswith(".py") and (ROOT / name).is_file()]


def mirrored(file: Path) -> tuple[list[Path], list[Path]]:
    """Those that are named after it or, where none is, all of its folder; and those that import it."""
    if file.parts[0] == "tests":
        return [file] if file.name.startswith("test_") else [], []
    there = [path.relative_to(ROOT) for path in sorted((ROOT / "tests" / file.parent).glob("test_*.py"))]
    named = [path for path in there if path.stem == f"test_{file.stem}"]
    module = ".".join(["rdmascope", *file.with_suffix("").parts])
    users = [path for path in there if f"from {module} import" in (ROOT / path).read_text()]
    return named or ([] if users else there), users


def chosen(files: Iterable[Path]) -> list[str]:
    """The most telling first: the rules of the project, which need seconds, come last."""
    found = [mirrored(file) for file in files]
    named, users = [path for one, _ in found for path in one], [path for _, two in found for path in two]
    return [str(path) for path in dict.fromkeys([*named, *users, Path("tests/test_project.py")])]


class Budget:
    """Ends the run when its time is up."""

    def __init__(self) -> None:
        self.end = time.monotonic() + SECONDS
        self.left = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.left = len(session.items)
        signal.signal(signal.SIGALRM, lambda *_: self.stop(session))
        signal.setitimer(signal.ITIMER_REAL, max(self.end + GRACE - time.monotonic(), 0.1))

    def pytest_runtest_logfinish(self) -> None:
        self.left -= 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.monotonic() > self.end:
            self.stop(item.session)

    def stop(self, session: pytest.Session) -> None:
        session.shouldstop = f"{SECONDS} s are over; {self.left} tests were not run, make test runs all"
        pytest.skip("no time")


if __name__ == "__main__":
    budget = Budget()
    sys.exit(pytest.main(["-q", "-x", *chosen(changed((sys.argv[1:] or ["main"])[0]))], [budget]))
