"""Frames of the samples, changed, truncated, spliced, doubled and shuffled: the analyzer takes them all."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest

from playbook import Capture, Wire, call, nfs3, reply
from playbook.capture import frame_batch
from playbook.growth import growth
from playbook.packets import READ_REQUEST, SEND_ONLY, Packet, encode_frames, reth
from playbook.samples import MANIFEST, SAMPLES
from playbook.wrap import Raw, batch
from rdmascope.captures import open_capture
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

FEW = 1500


@cache
def frames(name: str) -> list[Raw]:
    """The first frames of a sample."""
    found: list[Raw] = []
    with open_capture(str(SAMPLES / MANIFEST[name]["file"])) as capture:
        for one in capture.batches():
            for row in one.rows[: FEW - len(found)]:
                at = int(row["offset"])
                data = one.data[at : at + int(row["captured"])].tobytes()
                found.append(Raw(data, int(row["time"]), int(row["link_type"])))
    return found


def harmed(frame: Raw, other: Raw, chance: random.Random) -> Raw:
    data = bytearray(frame.data)
    kind = chance.choice(("bytes", "bytes", "bit", "truncated", "spliced"))
    if kind == "bytes":
        for _ in range(chance.randint(1, 4)):
            reach = min(len(data), chance.choice((60, 120, len(data))))
            data[chance.randrange(reach)] = chance.choice((0, 255, chance.randrange(256)))
    elif kind == "bit":
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif kind == "truncated":
        data = data[: chance.randint(1, len(data))]
    else:
        data = data[: chance.randint(1, len(data))] + other.data[chance.randrange(len(other.data)) :]
    return frame._replace(data=bytes(data))


def spoiled(name: str, chance: random.Random) -> Iterator[Raw]:
    """A stretch of a sample with some or all frames harmed, some of them twice or in another place."""
    start, share = chance.randrange(max(1, len(frames(name)) - 100)), chance.choice((0.05, 0.3, 1.0))
    part = frames(name)[start : start + chance.randint(20, 300)]
    other = frames(chance.choice(sorted(MANIFEST)))
    made = [harmed(one, chance.choice(other), chance) if chance.random() < share else one for one in part]
    made += chance.sample(made, len(made) // 20)
    for _ in range(len(made) // 20):
        a, b = chance.randrange(len(made)), chance.randrange(len(made))
        made[a], made[b] = made[b], made[a]
    if chance.random() < 0.3:
        chance.shuffle(made)
    yield from made


def analyzed(raws: list[Raw], sizes: list[int]) -> Analyzer:
    analyzer, at = Analyzer(), 0
    rpcs = []
    while at < len(raws):
        size = sizes[at % len(sizes)]
        rpcs += analyzer.feed(batch(raws[at : at + size], at + 1))
        at += size
    rpcs += analyzer.finish()
    for rpc in rpcs:
        assert rpc.status is not None
    for connection in analyzer.connections:
        analyzer.health(connection.number)
    return analyzer


@pytest.mark.parametrize("name", sorted(MANIFEST))
def test_no_frame_raises(name: str) -> None:
    chance = random.Random(name)
    for _ in range(12):
        analyzed(list(spoiled(name, chance)), [chance.choice((1, 7, 50, 400)) for _ in range(5)])


def test_a_read_request_that_takes_a_psn_which_waits_behind_a_gap() -> None:
    wire = Wire(seed=1)
    connection = wire.connect()
    for _ in range(3):
        rpc = call(connection, nfs3.getattr_())
        reply(rpc, nfs3.getattr_reply())
    last = max((one for one in wire.packets if one.sender == 0 and one.opcode == SEND_ONLY), key=lambda one: one.time)
    behind = replace(last, uid=9001, time=last.time + 10_000, psn=last.psn + 4 & 0xFFFFFF)
    over = replace(
        last,
        uid=9002,
        time=last.time + 20_000,
        opcode=READ_REQUEST,
        psn=last.psn + 2 & 0xFFFFFF,
        extended=reth(0x1000, 0x77, 6 * 4096),
        payload=b"",
    )
    analyzer = Analyzer()
    analyzer.feed(frame_batch(encode_frames([*wire.packets, behind, over])))
    analyzer.finish()
    assert len(analyzer.connections) == 1


def corrupted(packets: list[Packet]) -> list[Packet]:
    """Every third packet with a foreign opcode, every fifth with a PSN far away."""
    return [
        replace(
            one,
            opcode=0x55 if number % 3 == 2 else one.opcode,
            psn=one.psn ^ 0x400000 if number % 5 == 4 else one.psn,
        )
        for number, one in enumerate(packets)
    ]


def test_the_work_grows_with_the_number_of_harmed_packets() -> None:
    def made(count: int) -> Callable[[], object]:
        wire = Wire(seed=1)
        connection = wire.connect()
        for _ in range(count):
            rpc = call(connection, nfs3.getattr_())
            reply(rpc, nfs3.getattr_reply())
        whole = frame_batch(Capture(wire, corrupted(wire.packets)).frames)

        def run() -> None:
            analyzer = Analyzer()
            analyzer.feed(whole)
            analyzer.finish()

        return run

    assert max(growth(made, 150)) < 2.7
