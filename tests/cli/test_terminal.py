"""Paging: on a terminal, and only there."""

from __future__ import annotations

import io

import pytest

from rdmascope.cli.harmless_console import HarmlessConsole
from rdmascope.cli.terminal import paged


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
