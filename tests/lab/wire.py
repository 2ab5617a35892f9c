"""The wire between the guests where it takes its time: forwards their datagrams, each after a delay."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

LARGEST = 1 << 17
"""Bytes; no frame of the guests has as many."""
LOOK = 0.5
"""Seconds between two looks at whether it is over."""


class OneWay:
    """What arrives at the socket ``inlet`` is sent to the socket ``outlet`` so many seconds later, in order."""

    def __init__(self, inlet: Path, outlet: Path, delay: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(inlet))
        self._socket.settimeout(LOOK)
        self._outlet = str(outlet)
        self._delay = delay
        self._over = False
        self._waiting: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
        self._threads = [Thread(target=one, daemon=True) for one in (self._receive, self._send)]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over = True
        self._waiting.put((0.0, b""))
        for thread in self._threads:
            thread.join()
        self._socket.close()

    def _receive(self) -> None:
        while not self._over:
            try:
                frame = self._socket.recv(LARGEST)
            except TimeoutError:
                continue
            self._waiting.put((time.monotonic() + self._delay, frame))

    def _send(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outlet:
            while not self._over:
                due, frame = self._waiting.get()
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    outlet.sendto(frame, self._outlet)
                except OSError:
                    continue  # The guest is not there yet, or not any more.


@contextmanager
def delayed(folder: Path, delay: float) -> Iterator[None]:
    """A wire in ``folder``: the client sends to ``to-server`` and listens on ``client``, the server the other way."""
    ways = (
        OneWay(folder / "to-server", folder / "server", delay),
        OneWay(folder / "to-client", folder / "client", delay),
    )
    try:
        yield
    finally:
        for way in ways:
            way.close()
