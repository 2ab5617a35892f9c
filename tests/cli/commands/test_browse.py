"""``rdmascope browse`` on a terminal: what it refuses, and what it leaves behind."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from playbook.commands import EVERYTHING, PROGRAM, run

PATIENCE = 60


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        environment = {**os.environ, "TMPDIR": str(folder), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [*PROGRAM, "browse", EVERYTHING, *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment,
            start_new_session=True, preexec_fn=_controlling,
        )  # fmt: skip
        os.close(slave)
        self.text = ""

    def until(self, wanted: str) -> None:
        """Read until it has shown this."""
        end = time.monotonic() + PATIENCE
        while wanted not in self.text:
            assert time.monotonic() < end, self.text[-2000:]
            if select.select([self.master], [], [], 1)[0]:
                try:
                    self.text += os.read(self.master, 65536).decode(errors="replace")
                except OSError:  # The last of its side was closed.
                    break
        assert wanted in self.text, self.text[-2000:]

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ended(self) -> int:
        """Its status."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < end
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    time.sleep(0.05)
        return self.process.returncode


def _controlling() -> None:
    """The terminal is the session's own: who hangs up is said so."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def children(pid: int) -> Iterator[int]:
    return map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


LEFT = "\x1b[?1049l"
"""The terminal has its own screen again."""


@pytest.mark.parametrize("keys", ["q", "\x03", "fq\x03\x03", "?\x03\x03"])
def test_quitting_puts_the_terminal_back(tmp_path: Path, keys: str) -> None:
    terminal = Terminal(tmp_path)
    terminal.until("FSINFO")
    for key in keys:
        terminal.press(key)
        time.sleep(0.3)  # One at a time, as fingers do.
    assert terminal.ended() == 0
    assert LEFT in terminal.text and "Traceback" not in terminal.text
    assert not [*tmp_path.iterdir()]


def test_a_signal_ends_it_and_puts_the_terminal_back(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.until("FSINFO")
    workers = [*children(terminal.process.pid)]
    assert len(workers) == 3
    terminal.process.terminate()
    assert terminal.ended() == 128 + signal.SIGTERM
    assert LEFT in terminal.text and not [*tmp_path.iterdir()]
    assert not any(Path(f"/proc/{one}").exists() for one in workers)


def test_a_terminal_that_goes_away_leaves_nothing(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.until("FSINFO")
    workers = [*children(terminal.process.pid)]
    os.close(terminal.master)
    assert terminal.process.wait(PATIENCE) == 128 + signal.SIGHUP
    assert not [*tmp_path.iterdir()]
    assert not any(Path(f"/proc/{one}").exists() for one in workers)


def test_a_filter_to_begin_with(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "--where", "procedure = 'READLINK'")
    terminal.until("/sym")
    terminal.press("q")
    assert terminal.ended() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((EVERYTHING,), "browse needs a terminal"),
        (("-",), "standard input is the keyboard"),
    ],
)
def test_what_it_needs(arguments: tuple[str, ...], words: str) -> None:
    ended = run("browse", *arguments)
    assert ended.exit_code == 2 and words in ended.stderr and len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("where", ["nothing = 1", "("])
def test_a_filter_that_is_none(tmp_path: Path, where: str) -> None:
    terminal = Terminal(tmp_path, "--where", where)
    assert terminal.ended() == 2 and "--where" in terminal.text and LEFT not in terminal.text
    assert not [*tmp_path.iterdir()]
