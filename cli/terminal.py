"""Where output goes: the console, the progress bar, and JSON Lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

EXIT_FAULT = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

PIPE_WIDTH = 120
"""Columns of output that no terminal limits."""


def console() -> Console:
    """Standard output.  Where it is no terminal: plain text, as wide as COLUMNS says or ``PIPE_WIDTH``."""
    from rich.console import Console

    width = None
    if not sys.stdout.isatty():
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdigit() and int(columns) >= 40 else PIPE_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def show(out: Console, *renderables: RenderableType) -> None:
    """Print; without the blanks at line ends that tables have, where the output is no terminal."""
    if out.is_terminal:
        out.print(*renderables, sep="\n")
        return
    with out.capture() as captured:
        out.print(*renderables, sep="\n")
    sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


def complain(message: str) -> None:
    """One line on standard error."""
    sys.stdout.flush()
    click.echo(f"rdmascope: {' '.join(message.split())}", err=True)


def print_json(record: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n")


class Meter:
    """How far the work is: a progress bar on standard error, from the first progress on."""

    def __init__(self, label: str = "", shown: bool = False) -> None:
        self._label = label
        self._shown = shown
        self._stack = ExitStack()
        self._advance: Any = None

    def at(self, done: int, total: int | None, text: str) -> None:
        if not self._shown:
            return
        if self._advance is None:
            self._advance = self._stack.enter_context(_bar(self._label))
        self._advance(done, total, text)

    def close(self) -> None:
        """The bar disappears."""
        self._stack.close()


@contextmanager
def meter(label: str, streaming: bool = False) -> Iterator[Meter]:
    """A progress bar on standard error that disappears when the work is done.

    With ``streaming`` there is none where the output goes to the terminal, too: it is progress enough.
    """
    progress = Meter(label, shown=sys.stderr.isatty() and not (streaming and sys.stdout.isatty()))
    try:
        yield progress
    finally:
        progress.close()


@contextmanager
def _bar(label: str) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[text]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None, text="")
        yield lambda done, total, text: progress.update(task, completed=done, total=total, text=text)
