"""A program on a terminal of its own."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

PATIENCE = 120
"""Seconds after which something will never be."""
LEFT = "\x1b[?1049l"
"""The terminal has its own screen again."""


class Terminal:
    """``text`` has all that was written."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        """``folder``: for its temporary files."""
        self.master, slave = pty.openpty()
        environment = {**os.environ, "TMPDIR": str(folder), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        environment["PYTHONFAULTHANDLER"] = "1"
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
            preexec_fn=_controlling,
        )  # fmt: skip
        os.close(slave)
        self.text = ""

    def _read(self, seconds: float) -> bool:
        """What it writes within a time; False where its side is closed."""
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.text += os.read(self.master, 65536).decode(errors="replace")
            except OSError:
                return False
        return True

    def until(self, wanted: str) -> None:
        """Read until it has shown this."""
        end = time.monotonic() + PATIENCE
        while wanted not in self.text and self._read(1):
            assert time.monotonic() < end, self.text[-2000:]
        assert wanted in self.text, self.text[-2000:]

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ended(self) -> int:
        """Its status, after all that it wrote was read."""
        end = time.monotonic() + PATIENCE
        while self._read(0.1):
            if time.monotonic() >= end:
                self.process.send_signal(signal.SIGABRT)  # Where it runs, it says what each of its threads does.
                status = self.process.wait(PATIENCE)
                self._read(1)
                raise AssertionError(f"{status}, but its terminal was not closed: {self.text[-6000:]}")
        return self.process.wait(PATIENCE)


def _controlling() -> None:
    """The terminal is the session's own: who hangs up is said so."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
