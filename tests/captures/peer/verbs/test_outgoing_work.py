"""Work requests wait for room, in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rdmascope.captures.peer.verbs.interface import LinkLost, OutgoingWork, VerbsError

KIB = 1024


class Started:
    """Notes what was started; memory is refused beyond ``locked`` requests."""

    def __init__(self, locked: int = 100) -> None:
        self.names: list[str] = []
        self.free = locked

    def start(self, name: str) -> Callable[[], None]:
        def run() -> None:
            if not self.free:
                raise VerbsError("no memory")
            self.free -= 1
            self.names.append(name)

        return run


def test_no_more_requests_than_the_send_queue_has_room_for() -> None:
    queue, started = OutgoingWork(max_sends=2), Started()
    for name in "abcd":
        queue.submit(0, started.start(name))
    assert started.names == ["a", "b"]
    queue.finished(0)
    assert started.names == ["a", "b", "c"]
    queue.finished(0)
    queue.finished(0)
    assert started.names == ["a", "b", "c", "d"]


def test_no_more_bytes_than_may_be_locked_and_nothing_overtakes() -> None:
    queue, started = OutgoingWork(max_moving=4 * KIB), Started()
    for name, size in (("large", 9 * KIB), ("read", 3 * KIB), ("write", 2 * KIB), ("send", 0)):
        queue.submit(size, started.start(name))
    assert started.names == ["large"]  # alone it may be larger
    queue.finished(9 * KIB)
    assert started.names == ["large", "read"]
    queue.finished(3 * KIB)
    assert started.names == ["large", "read", "write", "send"]


def test_memory_that_others_use_is_waited_for() -> None:
    queue, started = OutgoingWork(), Started(locked=1)
    queue.submit(KIB, started.start("a"))
    queue.submit(KIB, started.start("b"))
    assert started.names == ["a"]
    started.free = 1
    queue.finished(KIB)
    assert started.names == ["a", "b"]


def test_memory_that_nothing_will_give_back_is_an_error() -> None:
    with pytest.raises(VerbsError, match="no memory"):
        OutgoingWork().submit(KIB, Started(locked=0).start("a"))


def test_a_connection_that_is_gone_is_an_error_at_any_time() -> None:
    def gone() -> None:
        raise LinkLost("gone")

    queue = OutgoingWork(max_sends=1)
    queue.submit(0, Started().start("a"))
    queue.submit(0, gone)
    with pytest.raises(LinkLost):
        queue.finished(0)
