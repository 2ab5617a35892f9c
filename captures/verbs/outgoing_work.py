"""Work requests of a queue pair, in order: no more at once than its send queue and locked memory have room for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .interface import LinkLost, VerbsError

MAX_SENDS = 192
"""Work requests in flight."""
SEND_SIZE = 8192
"""Bytes of a send buffer; a longer message has its memory registered for itself."""
SEND_BUFFERS = 16
"""That a connection keeps; Sends beyond them have their memory registered for themselves, until they are done."""
MAX_MOVING = 4 << 20
"""Bytes in flight, as far as memory is registered for them: 'ulimit -l' is often 8 MiB for a whole process."""


class OutgoingWork:
    """``submit`` starts a request, or keeps it until those before it have made room."""

    def __init__(self, max_sends: int = MAX_SENDS, max_moving: int = MAX_MOVING) -> None:
        self._max_sends = max_sends
        self._max_moving = max_moving
        self._sends = 0
        self._moving = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def submit(self, size: int, start: Callable[[], None]) -> None:
        """``start`` registers ``size`` bytes and posts; raises what it raises, unless that is memory for which it can
        wait."""
        self._waiting.append((size, start))
        self._go_on()

    def finished(self, size: int) -> None:
        """A request completed."""
        self._sends -= 1
        self._moving -= size
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            size, start = self._waiting[0]
            if self._sends and (self._sends >= self._max_sends or self._moving + size > self._max_moving):
                return
            try:
                start()
            except LinkLost:
                raise
            except VerbsError:  # no memory to register, which those in flight will give back
                if not self._sends:
                    raise
                return
            self._waiting.popleft()
            self._sends += 1
            self._moving += size
