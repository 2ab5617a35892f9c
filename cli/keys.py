"""Single key presses, where standard input is a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


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
