"""The kernel's ring, on the loopback interface of this machine."""

from __future__ import annotations

import fcntl
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rdmascope.captures import CaptureError
from rdmascope.captures.live import CaptureSettings, Live, open_live

PORT = 4791
PAUSE = 10
"""Seconds."""
RATE = 10_000
"""Frames a second."""


@pytest.fixture
def loopback() -> Iterator[Live]:
    with Path(__file__).open() as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)  # Another worker's test would send to the same port.
        try:
            live = open_live("lo", CaptureSettings((20049,)))
        except CaptureError as error:
            pytest.skip(str(error))
        with closing(live):
            yield live


def send(count: int, rate: int) -> None:
    """Datagrams to RoCEv2's port, evenly spread."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        began = time.monotonic()
        for number in range(count):
            sender.sendto(number.to_bytes(4, "big") * 60, ("127.0.0.1", PORT))
            if number % 20 == 0:
                time.sleep(max(0.0, began + number / rate - time.monotonic()))


def received(live: Live, count: int) -> list[int]:
    """The numbers of the datagrams, as long as some come."""
    found: list[int] = []
    until = time.monotonic() + 1
    while len(found) < count and time.monotonic() < until:
        batch = live.read()
        if batch is None:
            time.sleep(0.02)
            continue
        for row in batch.rows:
            end = int(row["offset"]) + int(row["captured"])
            found.append(int.from_bytes(batch.data[end - 4 : end].tobytes(), "big"))
        until = time.monotonic() + 1
    live.count()
    return found


def test_a_reader_that_pauses_loses_nothing_while_the_ring_has_room(loopback: Live) -> None:
    send(PAUSE * RATE, RATE)
    assert received(loopback, PAUSE * RATE) == list(range(PAUSE * RATE))
    assert loopback.dropped == 0


def test_a_trickle_does_not_fill_the_ring(loopback: Live) -> None:
    send(240, 60)
    assert received(loopback, 240) == list(range(240))
    assert loopback.dropped == 0


def test_what_does_not_fit_is_counted(loopback: Live) -> None:
    with closing(open_live("lo", CaptureSettings((20049,), buffer=2 << 20))) as small:
        send(30_000, 1_000_000)
        found = received(small, 30_000)
        assert 0 < len(found) < 30_000
        assert found == list(range(len(found)))
        assert small.dropped == 30_000 - len(found)


def test_what_comes_after_the_end_is_neither_read_nor_counted(loopback: Live) -> None:
    send(100, 100_000)
    loopback.refuse()
    send(50, 100_000)
    assert received(loopback, 150) == list(range(100))
    assert loopback.received == 100
