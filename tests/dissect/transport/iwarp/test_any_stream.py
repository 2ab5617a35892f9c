"""Any iWARP messages, in whatever segments, however spoilt: whole, or never made up."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings, strategies as st

from playbook.capture import frame_batches
from playbook.segments import Talk, pattern, read_request, response, send, write
from playbook.streams import Seen, observe, seen
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.transport.operations import Kind


class Said(NamedTuple):
    """A message: who says it, what kind, how long; with a number it is unlike all others."""

    sender: int
    kind: str
    length: int


@dataclass(frozen=True)
class Script:
    markers: tuple[bool, bool]
    crc: bool
    mtu: int
    said: tuple[Said, ...]
    sizes: tuple[int, ...]
    """Of segments, in turn."""

    def play(self) -> tuple[Talk, list[Seen]]:
        made, expected = Talk(seqs=((1 << 32) - 3000, 5)), []
        made.open()
        made.greet(markers=self.markers, crc=self.crc)
        msn, asked = [0, 0], [0, 0]
        for number, (sender, kind, length) in enumerate(self.said, 1):
            data, sizes = pattern(number, length), self.sizes[number % 3 :]
            if kind == "send":
                msn[sender] += 1
                made.say(sender, send(msn[sender], data, self.mtu), sizes)
                expected.append(Seen(Kind.SEND, sender, 0, 0, data))
            elif kind == "write":
                made.say(sender, write(number, number << 32, data, self.mtu), sizes)
                expected.append(Seen(Kind.WRITE, sender, number, number << 32, data))
            else:
                asked[sender] += 1
                made.say(sender, read_request(asked[sender], (7, 0), length, (number, number << 32)))
                made.say(1 - sender, response(7, 0, data, self.mtu), sizes)
                expected.append(Seen(Kind.READ, sender, number, number << 32, data))
            made.acknowledge(1 - sender)
        made.acknowledge(0)
        return made, expected


scripts = st.builds(
    Script,
    markers=st.tuples(st.booleans(), st.booleans()),
    crc=st.booleans(),
    mtu=st.sampled_from([37, 128, 1000, 1 << 16]),
    said=st.lists(
        st.builds(
            Said,
            st.integers(0, 1),
            st.sampled_from(["send", "write", "read"]),
            st.one_of(st.integers(1, 300), st.integers(1, 3000)),
        ),
        min_size=1,
        max_size=12,
    ).map(tuple),
    sizes=st.lists(st.integers(1, 1500), max_size=6).map(tuple),
)
QUICK = settings(suppress_health_check=[HealthCheck.too_slow])
CUTS = st.lists(st.integers(0, 1000), max_size=3)


@QUICK
@given(scripts, CUTS, st.randoms(use_true_random=False))
def test_what_arrives_late_or_twice_comes_out_whole(script: Script, cuts: list[int], chance: random.Random) -> None:
    made, expected = script.play()
    segments = made.segments[:5]
    for segment in made.segments[5:]:
        segments.append(segment)
        if chance.random() < 0.2:
            segments.append(chance.choice(segments[3:]))
        if chance.random() < 0.2 and len(segments) > 6 and segments[-2].sender == segments[-1].sender:
            segments[-2:] = reversed(segments[-2:])
    _, operations = observe(made, segments, cuts)
    assert sorted(seen(operations)) == sorted(expected)


@QUICK
@given(scripts, CUTS, st.sets(st.integers(0, 200), max_size=12), st.sampled_from([None, None, 40, 200]))
def test_what_the_capture_lacks_is_never_made_up(
    script: Script, cuts: list[int], lost: set[int], snap: int | None
) -> None:
    made, expected = script.play()
    segments = [replace(one, snap=snap) for number, one in enumerate(made.segments) if number not in lost]
    _, operations = observe(made, segments, cuts)
    truth: dict[tuple[Kind, int, int], list[bytes]] = {}
    for one in expected:
        assert one.data is not None
        truth.setdefault((one.kind, one.initiator, one.handle), []).append(one.data)
    for operation in operations:
        key = operation.kind, operation.initiator, operation.handle
        assert key in truth
        place = operation.psn - 1 if operation.kind is Kind.SEND else 0
        data = truth[key][place]
        skipped = operation.address & 0xFFFFFFFF
        for piece in operation.payload.pieces():
            there = piece.data[piece.offset : piece.offset + piece.captured].tobytes()
            assert there == data[skipped + piece.at : skipped + piece.at + piece.captured]


@QUICK
@given(scripts, st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=30), CUTS)
def test_broken_bytes_raise_nothing(script: Script, changes: list[tuple[int, int]], cuts: list[int]) -> None:
    made, _ = script.play()
    frames = made.frames()
    broken = [bytearray(frame.data) for frame in frames]
    for place, value in changes:
        data = broken[place % len(broken)]
        data[14 + place // 7 % (len(data) - 14)] = value
    analyzer = Analyzer()
    shown = [replace(frame, data=bytes(data)) for frame, data in zip(frames, broken, strict=True)]
    for batch in frame_batches(shown, cuts):
        analyzer.feed(batch)
    analyzer.finish()
    for connection in analyzer.connections:
        analyzer.health(connection.number)
