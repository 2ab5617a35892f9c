"""Paging: on a terminal, and only there."""

from __future__ import annotations

import io
import os
import sys

import pytest

from rdmascope.cli import terminal
from rdmascope.cli.harmless_console import HarmlessConsole
from rdmascope.cli.terminal import console, paged


@pytest.mark.parametrize(("terminal", "wanted", "pages"), [(True, True, 1), (True, False, 0), (False, True, 0)])
def test_a_page_on_a_terminal(terminal: bool, wanted: bool, pages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("pydoc.pager", shown.append)
    monkeypatch.setenv("TERM", "xterm")
    written = io.StringIO()
    out = HarmlessConsole(file=written, force_terminal=terminal, width=60)
    with paged(out, wanted):
        out.print("first")
        out.print("second")
    assert len(shown) == pages and "second" in (shown[0] if pages else written.getvalue())


def test_a_dumb_terminal_has_no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pydoc.pager", lambda text: pytest.fail("paged"))
    monkeypatch.setenv("TERM", "dumb")
    written = io.StringIO()
    out = HarmlessConsole(file=written, force_terminal=True, width=60)
    with paged(out, True):
        out.print("first")
    assert "first" in written.getvalue()


@pytest.mark.parametrize("which", [2, 0, "/dev/tty", None])
def test_into_a_pipe_it_is_as_wide_as_the_terminal(which: int | str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one of the other streams, or the process, has one; else 80."""
    opened: list[int] = []

    def size(descriptor: int) -> os.terminal_size:
        if descriptor == which or (which == "/dev/tty" and descriptor not in (0, 1, 2)):
            opened.append(descriptor)
            return os.terminal_size((133, 40))
        raise OSError

    monkeypatch.setattr(os, "get_terminal_size", size)
    monkeypatch.setattr(terminal, "TERMINAL", os.devnull)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width == (80 if which is None else 133)
    monkeypatch.setenv("COLUMNS", "90")
    assert console().width == 90
