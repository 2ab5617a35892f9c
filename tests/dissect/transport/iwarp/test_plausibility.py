"""Streams with markers and without CRCs: what is shown is right, or is marked as doubtful."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from playbook.segments import Talk, pattern, read_request, response, send, untagged, write
from playbook.streams import Seen, observe, seen
from rdmascope.dissect.transport.iwarp.fpdus import DOUBTED, WRONG_HEADERS, WRONG_MARKERS
from rdmascope.dissect.transport.operations import Kind


def reading(seed: int = 1, drift: int = 0, swapped: bool = False, agreed: bool = True) -> tuple[Talk, list[Seen]]:
    """The server sends, writes and reads; its markers drift, or were never ``agreed``.  The truth beside it."""
    chance, truth = random.Random(seed), list[Seen]()
    made = Talk()
    made.open()
    made.greet(markers=(False, agreed))
    made.sides[1].markers, made.sides[1].drift, made.sides[1].swapped = True, drift, swapped
    made.say(0, send(1, pattern(seed, 60)))
    truth.append(Seen(Kind.SEND, 0, 0, 0, pattern(seed, 60)))
    for number in range(1, 25):
        data = pattern(1000 * seed + number, chance.randrange(4, 700))
        what = chance.choice("srrw")
        if what == "s":
            made.say(1, send(number, data))
            truth.append(Seen(Kind.SEND, 1, 0, 0, data))
        elif what == "w":
            made.say(1, write(0x11, 0x1000 * number, data))
            truth.append(Seen(Kind.WRITE, 1, 0x11, 0x1000 * number, data))
        else:
            made.say(1, read_request(number, (0x77, 0x500), len(data), (0x22, 0x9000 + number)))
            made.say(0, response(0x77, 0x500, data))
            truth.append(Seen(Kind.READ, 1, 0x22, 0x9000 + number, data))
    return made, truth


def held(found: Sequence[Seen], truth: Sequence[Seen]) -> None:
    """What came out is what was sent, and where bytes are missing that is said."""
    shown = {one._replace(data=None) for one in truth} | set(truth)
    assert not [one for one in found if one not in shown]


@pytest.mark.parametrize("drift", range(-32, 36, 4))
@pytest.mark.parametrize("swapped", [False, True])
def test_markers_off_the_grid_make_no_wrong_operation(drift: int, swapped: bool) -> None:
    for seed in range(8):
        made, truth = reading(seed, drift, swapped)
        observer, operations = observe(made)
        held(seen(operations), truth)
        if drift or swapped:
            framing = observer.connections[1].directions[1].framing
            assert framing.checks.marker_failure_count and {why for *_, why in framing.checks.faults} >= {WRONG_MARKERS}
            assert observer.connections[1].transport_health().directions[1].doubted_fpdus == framing.checks.doubt.count
        else:
            assert seen(operations) == truth


def test_markers_that_were_not_agreed() -> None:
    for seed in range(30):
        made, truth = reading(seed, agreed=False)
        observer, operations = observe(made)
        held(seen(operations), truth)
        assert observer.connections[1].directions[1].framing.checks.doubt.count


def test_markers_that_were_agreed_and_do_not_come() -> None:
    made = Talk()
    made.open()
    made.greet(markers=(True, False))
    made.sides[0].markers = False
    for msn in range(1, 20):
        made.say(0, send(msn, pattern(msn, 40 * msn)))
    assert not [one for one in observe(made)[1] if one.payload.whole]


def test_wherever_the_markers_stand() -> None:
    for drift in range(4, 512, 4):
        made, truth = reading(drift, drift)
        held(seen(observe(made)[1]), truth)


def test_a_marker_alone_at_the_end_of_a_frame() -> None:
    """The FPDU seems to end where a marker is due, and its last word is taken for that."""
    data = bytes(range(1, 122)) * 4
    truth = [Seen(Kind.SEND, 1, 0, 0, one) for one in (data, b"four")]
    for drift in (0, -180):
        made = Talk()
        made.open()
        made.greet(markers=(False, True))
        made.sides[1].drift = drift
        made.say(1, send(1, data))
        made.say(1, send(2, b"four"))
        assert len(made.segments[5].payload) == (516 if drift else 512)
        assert seen(observe(made)[1]) == ([] if drift else truth)


def test_however_the_batches_are_cut() -> None:
    for drift in (0, 4, 100, -8):
        made, _ = reading(3, drift)
        whole = seen(observe(made)[1])
        for step in (1, 3, 7):
            assert seen(observe(made, cuts=range(step, len(made.segments), step))[1]) == whole


def test_a_read_request_with_a_marker_inside_is_refused() -> None:
    """As old softiwarp has it: no marker is due in the FPDU, and one is there."""
    made = Talk()
    made.open()
    made.greet(markers=(False, True))
    made.say(1, send(1, bytes(16)))
    made.sides[1].drift = made.sides[1].next - made.sides[1].base + 20
    made.say(1, read_request(1, (0x77, 0x500), 40, (0x22, 0x9000)))
    made.say(1, send(2, bytes(16)))
    observer, operations = observe(made)
    assert seen(operations) == [Seen(Kind.SEND, 1, 0, 0, bytes(16))]
    framing = observer.connections[1].directions[1].framing
    assert framing.checks.faults[0][2] == WRONG_HEADERS


def test_belief_comes_back_with_right_markers() -> None:
    made = Talk()
    made.open()
    made.greet(markers=(True, False))
    sent = [pattern(number, 1400) for number in range(8)]
    for number, data in enumerate(sent):
        made.say(0, send(number + 1, data))
    spoiled = made.segments[6]
    at = 512 - (spoiled.seq - made.sides[0].base) % 512
    payload = spoiled.payload[: at + 2] + b"\xff\xff" + spoiled.payload[at + 4 :]
    segments = [replace(one, payload=payload) if one is spoiled else one for one in made.segments]
    observer, operations = observe(made, segments)
    assert [one.psn for one in operations if one.payload.whole] == [1, 4, 5, 6, 7, 8]
    assert [why for *_, why in observer.connections[1].directions[0].framing.checks.faults] == [WRONG_MARKERS, DOUBTED]


@pytest.mark.parametrize(
    "odd",
    [
        [untagged(3, 0, 500, b"four")],
        [untagged(3, 0, 1, b"four")],
        read_request(1, ((1 << 32) - 1, (1 << 64) - 4), 5, (1, 0)),
        read_request(1, (1, 0), 5, (1, (1 << 64) - 4)),
        [untagged(1, 1, 1, bytes(28), mo=4)],
        write(5, (1 << 64) - 3, b"four"),
    ],
    ids=["far ahead", "the number of the one before", "sink wraps", "source wraps", "offset", "write wraps"],
)
@pytest.mark.parametrize("markers", [False, True])
def test_headers_that_cannot_be_right(odd: list[bytes], markers: bool) -> None:
    """They are refused where bytes may be shifted, and taken as they are where there are no markers."""
    made = Talk()
    made.open()
    made.greet(markers=(True, False))
    if not markers:
        made = Talk()
        made.open()
        made.greet()
    made.say(0, send(1, b"one!"))
    made.say(0, odd)
    framing = observe(made)[0].connections[1].directions[0].framing
    assert [why for *_, why in framing.checks.faults] == ([WRONG_HEADERS] if markers else [])


def test_numbers_at_the_end_of_the_address_space_are_right() -> None:
    made = Talk()
    made.open()
    made.greet(markers=(True, False))
    made.say(0, write(5, (1 << 64) - 4, b"four"))
    made.say(0, write(5, 0, b""))
    made.say(0, read_request(1, (1, (1 << 64) - 5), 5, (1, (1 << 64) - 5)))
    framing = observe(made)[0].connections[1].directions[0].framing
    assert not framing.checks.faults
