"""Where output goes: the console, the progress bar and JSON Lines, all of it harmless; and single key presses."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from .sanitize import harmless, harmless_line, is_unicode, json_escaped, take_any_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


EXIT_FOUND = 1
EXIT_BAD_INPUT = 2
EXIT_NOTHING_JUDGED = 3
EXIT_INTERNAL = 70
EXIT_SIGNAL = 128
"""To which the number of the signal is added."""
EXIT_INTERRUPTED = 130
EXIT_CLOSED = 141

EXIT_STATUS = {
    0: "All is well.",
    EXIT_FOUND: "The answer is no: the audit found violations at or above --fail-on, diagnose something wrong, report a"
    " service level of --slo that was not kept, verify a difference that it cannot explain, live the finding it waited"
    " for, probe a failed check or no answer, synth calls that were not answered.",
    EXIT_BAD_INPUT: "Wrong options, a file that cannot be read or written or is damaged, or a filter that can match"
    " nothing. What could be decoded was printed.",
    EXIT_NOTHING_JUDGED: "The audit had nothing to judge, or report cannot tell whether a service level of --slo was"
    " kept: there were no such calls, or too few whose latency is known.",
    EXIT_INTERNAL: "An error of this program, which its message asks to report.",
    EXIT_INTERRUPTED: "Ctrl-C. While a file is being read, the first Ctrl-C stops reading and the status is 2.",
    EXIT_CLOSED: "The reader of the output closed it.",
    143: "SIGTERM; 129 is SIGHUP.  live and probe end as they do by Ctrl-C.",
}
"""Status and meaning: the source of the manual page and of ``docs/stable.md``."""


@contextmanager
def keyboard() -> Iterator[int | None]:
    """The descriptor to read keys from, each as it is pressed; None where there is no keyboard."""
    if not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def pressed(descriptor: int) -> str:
    """The keys that wait to be read."""
    return os.read(descriptor, 64).decode(errors="replace")


NO_TERMINAL = 80
"""Columns where there is no terminal at all."""
TERMINAL = "/dev/tty"
"""The controlling terminal of the process, whatever its streams are."""
NARROWEST = 40
"""Columns that views can do with."""


def settle_streams() -> None:
    """Let output that is not UTF-8 be drawn with what it has, and what was closed go nowhere, not into a file."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    take_any_text(sys.stdout)
    take_any_text(sys.stderr)


def console(file: TextIO | None = None) -> Console:
    """Standard output.  Where it is no terminal: plain text, as wide as COLUMNS says or the terminal is."""
    from .harmless_console import HarmlessConsole

    if file is not None:
        return HarmlessConsole(file=file, highlight=False, markup=False, emoji=False)
    width = None
    if not sys.stdout.isatty():
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdigit() and int(columns) >= NARROWEST else _terminal_width()
    return HarmlessConsole(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)


def _terminal_width() -> int:
    """Columns of the terminal that the output is read on in the end: behind a pager, say."""
    for descriptor in (2, 0):
        with suppress(OSError):
            return max(os.get_terminal_size(descriptor).columns, NARROWEST)
    with suppress(OSError), open(TERMINAL) as terminal:
        return max(os.get_terminal_size(terminal.fileno()).columns, NARROWEST)
    return NO_TERMINAL


def terminal() -> Console | None:
    """Standard output where it is a terminal, or is to be taken for one; None spares loading rich."""
    if not sys.stdout.isatty() and not {"FORCE_COLOR", "TTY_COMPATIBLE"} & os.environ.keys():
        return None
    out = console()
    return out if out.is_terminal else None


def show(out: Console, *renderables: RenderableType) -> None:
    """Print; without the blanks at line ends that tables have, where the output is no terminal."""
    if out.is_terminal:
        out.print(*renderables, sep="\n")
        return
    with out.capture() as captured:
        out.print(*renderables, sep="\n")
    sys.stdout.write("".join(line.rstrip() + "\n" for line in captured.get().splitlines()))


@contextmanager
def paged(out: Console, wanted: bool) -> Iterator[None]:
    """What is printed meanwhile goes through a pager, where the output is a terminal: PAGER, or less.

    Less ends by itself where all fits on the screen.
    """
    if not wanted or not out.is_terminal or out.is_dumb_terminal:
        yield
        return
    os.environ.setdefault("LESS", "FRX")
    problem: Exception | None = None
    with out.pager(styles=True):
        try:
            yield
        except Exception as error:  # What was printed before it is shown.
            problem = error
    if problem is not None:
        raise problem


def complain(message: str) -> None:
    """One line on standard error."""
    sys.stdout.flush()
    click.echo(f"rdmascope: {harmless(' '.join(message.split()))}", err=True)


def say(text: str, error: bool = False) -> None:
    """One line, as it is."""
    click.echo(harmless_line(text), err=error)


def binary_output() -> BinaryIO:
    """Standard output for bytes.  Raises click.ClickException where it is a terminal."""
    if sys.stdout.isatty():
        raise click.ClickException("a capture is not written to a terminal; redirect it, or name a file")
    return sys.stdout.buffer


class _Quoted(dict[str, str]):
    """Texts as JSON strings: the names of fields come again in each object, and to make them anew takes a third of the
    time that the object takes."""

    def __missing__(self, text: str) -> str:
        quoted = encode_basestring(text)
        if len(text) < LONG and len(self) < MANY:
            self[text] = quoted
        return quoted


LONG, MANY = 64, 4096
"""Characters of a text, and texts, from which on none is kept."""
_pieces = vars(json.encoder)["c_make_encoder"](
    None, json.JSONEncoder().default, _Quoted().__getitem__, None, ":", ",", False, False, True
)
"""What ``JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False)`` makes for each object."""


def json_value(record: Any) -> str:
    """One JSON value, as standard output can take it."""
    return json_escaped("".join(_pieces(record, 0)), ascii_only=not is_unicode(sys.stdout))


def print_json(record: Mapping[str, Any]) -> None:
    sys.stdout.write(json_value(record) + "\n")


def encoded_line(text: str) -> bytes:
    """What must stay on one line, for ``print_lines``."""
    return harmless_line(text).encode()


def encoded_json(text: str) -> bytes:
    """A part of a JSON object, for ``print_lines``."""
    return json_escaped(text, ascii_only=not is_unicode(sys.stdout)).encode()


def print_lines(lines: Sequence[bytes]) -> None:
    """Lines in UTF-8, on standard output."""
    if lines:
        print_page(b"\n".join(lines) + b"\n")


def print_page(page: bytes | bytearray) -> None:
    """Print lines in UTF-8 that end in their line feeds."""
    if (sys.stdout.encoding or "").lower() in ("utf-8", "utf8") and hasattr(sys.stdout, "buffer"):
        sys.stdout.flush()
        sys.stdout.buffer.write(page)
    else:
        sys.stdout.write(page.decode())


class LineStyles:
    """Lines as a terminal shows them: cropped to its width, each in one style.

    What rich does to a line takes longer than all that was done to make it; so it is asked once for each style.
    """

    def __init__(self, out: Console) -> None:
        self._out = out
        self._around: dict[str, tuple[str, str]] = {}

    def styled(self, line: bytes, style: str) -> bytes:
        """The line, encoded as ``print_lines`` takes it."""
        text = line.decode()
        if not text.replace("→", ">").replace("…", "~").isascii():  # It may be wider than it is long.
            return self._rendered(text, style).encode()
        if style not in self._around:
            before, _, behind = self._rendered("x", style).partition("x")
            self._around[style] = before, behind
        width = self._out.width
        before, behind = self._around[style]
        return (before + (text if len(text) <= width else text[: width - 1] + "…") + behind).encode()

    def _rendered(self, text: str, style: str) -> str:
        from rich.text import Text

        with self._out.capture() as captured:
            self._out.print(Text(text, style), no_wrap=True, overflow="ellipsis")
        return captured.get().removesuffix("\n")


class Meter:
    """How far the work is: a progress bar on standard error, from the first progress on, which ``close`` takes away.

    With ``streaming`` there is none where the output goes to the terminal, too: it is progress enough.
    """

    def __init__(self, label: str, streaming: bool = False) -> None:
        self._label = label
        self._shown = sys.stderr.isatty() and not (streaming and sys.stdout.isatty())
        self._bar: Any = None

    def at(self, done: int, total: int | None, text: str) -> None:
        if not self._shown:
            return
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[text]}", markup=False),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=console(sys.stderr), transient=True)
            self._bar.start()
            self._bar.add_task(self._label, total=None, text="")
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, text=text)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
