"""Verbs without devices behave as devices do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from playbook.fabric import Fabric, MemoryLink, MemoryVerbs
from rdmascope.captures.peer.verbs.interface import (
    ConnectionLost,
    ConnectionParameters,
    ConnectRequested,
    Event,
    LinkLost,
    MessageReceived,
    PeerAddress,
    RdmaFinished,
    VerbsError,
)

SECOND = 1_000_000_000
THERE = PeerAddress("192.0.2.1", 20049)


class Pair:
    """Two connected hosts."""

    def __init__(self, *, iwarp: bool = False, terms: ConnectionParameters | None = None) -> None:
        self.fabric = Fabric(iwarp)
        self.here, self.there = self.fabric.host("192.0.2.2"), self.fabric.host("192.0.2.1")
        self.heard: list[Event] = []
        self.accepted: list[MemoryLink] = []
        self.there.idle = self.step
        self.there.listen(THERE)
        self.terms = terms or ConnectionParameters(b"there")
        self.link = self.here.connect(THERE, ConnectionParameters(b"here"), self.here.now() + SECOND)

    @property
    def other(self) -> MemoryLink:
        return self.accepted[0]

    def step(self) -> bool:
        event = self.there.poll(self.there.now())
        if isinstance(event, ConnectRequested):
            link = event.request.accept(self.terms)
            assert isinstance(link, MemoryLink)
            self.accepted.append(link)
        elif event is not None:
            self.heard.append(event)
        return event is not None

    def next(self) -> Event | None:
        return self.here.poll(self.here.now() + SECOND)


BOTH = pytest.mark.parametrize("iwarp", [False, True], ids=["RoCEv2", "iWARP"])


def test_private_data_goes_both_ways() -> None:
    pair = Pair()
    assert (pair.link.private_data, pair.other.private_data) == (b"there", b"here")


@BOTH
def test_a_message_arrives(iwarp: bool) -> None:
    pair = Pair(iwarp=iwarp)
    pair.link.send(b"ping")
    assert pair.next() is None
    (received,) = pair.heard
    assert isinstance(received, MessageReceived) and received.data == b"ping" and received.link is pair.other


def test_nothing_waits_beyond_its_deadline() -> None:
    pair = Pair()
    began = pair.here.now()
    assert pair.next() is None
    assert pair.here.now() == began + SECOND


def test_a_message_longer_than_the_receive_ends_the_connection() -> None:
    pair = Pair(terms=ConnectionParameters(receive_size=100))
    pair.link.send(bytes(101))
    lost = pair.next()
    assert isinstance(lost, ConnectionLost)
    with pytest.raises(LinkLost):
        pair.link.send(b"more")


@BOTH
def test_memory_is_read_and_written(iwarp: bool) -> None:
    pair = Pair(iwarp=iwarp)
    memory = pair.link.register(10_000)
    memory.store(0, b"a" * 10_000)
    number = pair.other.read(memory.handle, memory.address + 5000, 5000)
    pair.other.write(memory.handle, memory.address, b"bb")
    assert pair.next() is None
    first, second = pair.heard
    assert first == RdmaFinished(pair.other, number, b"a" * 5000)
    assert isinstance(second, RdmaFinished)
    assert memory.fetch(0, 4) == b"bbaa"


@BOTH
@pytest.mark.parametrize(
    "reach",
    [
        lambda pair, memory: pair.other.read(memory.handle ^ 1, memory.address, 4),
        lambda pair, memory: pair.other.write(memory.handle, memory.address - 1, b"x"),
        lambda pair, memory: pair.other.write(memory.handle, memory.address + 4096, b"x"),
        lambda pair, memory: (pair.link.release(memory), pair.other.read(memory.handle, memory.address, 4)),
    ],
    ids=["another handle", "before", "behind", "released"],
)
def test_memory_that_is_not_there_ends_the_connection(reach: Callable[[Pair, object], object], iwarp: bool) -> None:
    pair = Pair(iwarp=iwarp)
    reach(pair, pair.link.register(100))
    assert isinstance(pair.next(), ConnectionLost)


def test_a_window_is_invalidated_and_then_closed() -> None:
    pair = Pair()
    memory = pair.link.register(100)
    window = pair.link.window(memory)
    assert window is not None and window.address == memory.address and window.handle != memory.handle
    pair.other.send(b"done", window.handle)
    received = pair.next()
    assert isinstance(received, MessageReceived) and received.invalidated == window.handle
    pair.other.read(memory.handle, memory.address, 4)
    pair.other.read(window.handle, window.address, 4)
    assert isinstance(pair.next(), ConnectionLost)


def test_iwarp_has_no_windows() -> None:
    pair = Pair(iwarp=True)
    assert pair.link.window(pair.link.register(4)) is None


def test_the_peer_hears_of_the_end() -> None:
    pair = Pair()
    pair.link.close()
    pair.link.close()
    assert pair.next() is None
    assert [type(event) for event in pair.heard] == [ConnectionLost]


def test_a_port_without_a_listener() -> None:
    fabric = Fabric()
    here: MemoryVerbs = fabric.host("192.0.2.2")
    fabric.host("192.0.2.1")
    with pytest.raises(VerbsError, match="refused"):
        here.connect(THERE, ConnectionParameters(), here.now() + SECOND)


def test_a_request_that_is_rejected() -> None:
    fabric = Fabric()
    here, there = fabric.host("192.0.2.2"), fabric.host("192.0.2.1")

    def reject() -> bool:
        event = there.poll(there.now())
        if isinstance(event, ConnectRequested):
            event.request.reject()
        return event is not None

    there.idle = reject
    there.listen(THERE)
    with pytest.raises(VerbsError, match="refused"):
        here.connect(THERE, ConnectionParameters(), here.now() + SECOND)
