"""Streams out of order, and streams whose FPDU boundaries are lost time and again, cost as much as they are long."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from playbook.growth import growth
from playbook.segments import Segment, Talk, pattern, read_request, response, write
from playbook.streams import contents, observe
from rdmascope.dissect.transport.iwarp.stream import MAX_HELD

SETUP = 7
"""Segments before the first FPDU."""
DATA = pattern(1, 100)
LINEAR = 2.7


def writes(count: int, every: int = 0, crc: bool = False) -> Talk:
    """RDMA Writes, each in a segment of its own; one of ``every`` so many has illegal control octets."""
    talk = Talk()
    talk.open()
    talk.greet(crc=crc)
    for number in range(count):
        (ulpdu,) = write(0x11, 0x1000 + number * len(DATA), DATA)
        if every and number % every == every - 1:
            ulpdu = b"\xff\xff" + ulpdu[2:]
        talk.say(1, [ulpdu])
    return talk


def shuffled(segments: list[Segment]) -> list[Segment]:
    return random.Random(7).sample(segments, len(segments))


def with_lone_octets(segments: list[Segment]) -> list[Segment]:
    """The first octet of every segment alone, from the second on, before anything else."""
    octets = [replace(one, payload=one.payload[:1]) for one in segments[1:]]
    return octets + segments[::-1]


ORDERS: dict[str, Callable[[list[Segment]], list[Segment]]] = {
    "reversed": lambda segments: segments[::-1],
    "odd ones first": lambda segments: segments[1::2] + segments[::2],
    "twice": lambda segments: [one for one in segments for _ in range(2)],
    "in blocks": lambda segments: [one for at in range(0, len(segments), 8) for one in segments[at : at + 8][::-1]],
    "lone octets first": with_lone_octets,
}


def disordered(count: int, order: Callable[[list[Segment]], list[Segment]]) -> tuple[Talk, list[Segment]]:
    talk = writes(count)
    segments = list(talk.segments)
    return talk, segments[:SETUP] + order(segments[SETUP:])


@pytest.mark.parametrize("order", [*ORDERS.values(), shuffled], ids=[*ORDERS, "shuffled"])
def test_every_order_comes_out_whole(order: Callable[[list[Segment]], list[Segment]]) -> None:
    _, operations = observe(*disordered(100, order))
    assert [contents(one) for one in operations] == [DATA] * 100
    assert [one.address for one in operations] == [0x1000 + number * len(DATA) for number in range(100)]


# The others have to be looked for in all batches and gaps that are remembered, whose number is bounded.
@pytest.mark.parametrize(
    ("order", "size"),
    [*((order, 0) for order in ORDERS), *((order, 4) for order in ("reversed", "twice", "in blocks"))],
)
def test_the_work_grows_with_the_length(order: str, size: int) -> None:
    def made(count: int) -> Callable[[], object]:
        talk, segments = disordered(count, ORDERS[order])
        return partial(observe, talk, segments, range(size, len(segments), size) if size else ())

    assert max(growth(made, 150 if size else 250)) < LINEAR


@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("every", [2, 3, 10])
def test_boundaries_lost_time_and_again(every: int, crc: bool) -> None:
    def made(count: int) -> Callable[[], object]:
        talk = writes(count, every, crc)
        return partial(observe, talk, list(talk.segments))

    assert max(growth(made, 200)) < LINEAR


def test_responses_that_answer_no_read() -> None:
    def made(count: int) -> Callable[[], object]:
        talk = Talk()
        talk.open()
        talk.greet()
        for ulpdu in response(0x99, 0, bytes(64 * 10), 10):
            talk.say(0, [ulpdu])
        for number in range(count):
            talk.say(1, read_request(number + 1, (number, 0), 10, (0x22, 0x9000)))
        return partial(observe, talk, list(talk.segments))

    assert max(growth(made, 100)) < LINEAR


def test_what_waits_behind_a_gap_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_HELD <= 1 << 16
    monkeypatch.setattr("rdmascope.dissect.transport.iwarp.stream.MAX_HELD", 8)
    held: list[int] = []
    observer, operations = observe(*disordered(100, _every_other))
    for tcp in observer.connections.values():
        held += [one.stream.missing_segments for one in tcp.directions]
    assert held[1] and len(operations) < 100


def _every_other(segments: Sequence[Segment]) -> list[Segment]:
    return [*segments[:1], *segments[1::2], *segments[2::2]]
