"""Captures of which octets, frames, lengths and times were changed at random: everything is read, nothing is raised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from playbook import Capture, Wire
from playbook.capture import frame_batches
from playbook.packets import Frame
from playbook.samples import MANIFEST, SAMPLES
from playbook.shapes import DATA, read, write
from rdmascope.captures.session.session import Session
from rdmascope.dissect.audit.auditor import Auditor
from rdmascope.dissect.records.rpc import full_fields
from rdmascope.dissect.records.rpc_lines import rpc_records
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

SEEDS = ("loss-rxe", "loss-siw", "bidir-rxe", "nconnect-rxe", "v2-settles", "longcall-rxe", "playbook")
MOST = 400
"""Frames of a capture that are changed."""


@cache
def original(name: str) -> Sequence[Frame]:
    """Some frames of a capture that is sound."""
    if name in MANIFEST:
        frames: list[Frame] = []
        for batch in Session(str(SAMPLES / MANIFEST[name]["file"])).batches():
            for row in batch.rows[: MOST * 4 - len(frames)]:
                data = batch.data[int(row["offset"]) : int(row["offset"]) + int(row["captured"])].tobytes()
                frames.append(Frame(int(row["time"]), data, int(row["original"])))
        return frames
    wire = Wire(seed=1)
    connections = [wire.connect(f"10.0.0.{host}") for host in (2, 3)]
    for turn in range(12):
        (read if turn % 3 else write)(connections[turn % 2], DATA[:5000])
    return Capture(wire).frames


def mutated(random: Random) -> list[Frame]:
    """Some consecutive frames, changed."""
    frames = original(random.choice(SEEDS))
    first = random.randrange(max(1, len(frames) - 50))
    frames = list(frames[first : first + random.randrange(20, MOST)])
    for _ in range(random.choice((1, 3, 10, 40))):
        at = random.randrange(len(frames))
        one = frames[at]
        match random.randrange(8):
            case 0 | 1 | 2:
                octets = bytearray(one.data)
                for _ in range(random.choice((1, 1, 2, 8))):
                    place = random.randrange(min(len(octets), random.choice((80, 160, 5000)))) if octets else 0
                    octets[place : place + 1] = bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF, random.getrandbits(8)))])
                frames[at] = replace(one, data=bytes(octets))
            case 3:
                frames[at] = replace(one, data=one.data[: random.randrange(len(one.data) + 1)])
            case 4:
                del frames[at : at + random.choice((1, 1, 5, 20))]
                if not frames:
                    frames = [one]
            case 5:
                frames.insert(random.randrange(len(frames) + 1), one)
            case 6:
                frames.insert(random.randrange(len(frames)), frames.pop(at))
            case 7:
                step = random.choice((-1, 1)) * 10 ** random.randrange(3, 19)
                frames[at] = replace(one, time=min(max(one.time + step, 0), (1 << 63) - 1))
    return frames


def analysed(frames: Sequence[Frame], random: Random) -> None:
    """Read all of it, in batches that end anywhere, and judge it."""
    cuts = [random.randrange(len(frames)) for _ in range(random.choice((0, 1, 4, 20)))]
    auditor = Auditor()
    analyzer = Analyzer(listener=auditor.listener)
    rpcs = [rpc for batch in frame_batches(frames, cuts) for rpc in analyzer.feed(batch)] + analyzer.finish()
    assert len({rpc.number for rpc in rpcs}) == len(rpcs)
    auditor.finish(analyzer.conversations)
    rpc_records(RpcTable(rpcs))
    for rpc in rpcs:
        full_fields(rpc)
    for connection in analyzer.connections:
        analyzer.health(connection.number)


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_raised(seed: int) -> None:
    analysed(mutated(Random(seed)), Random(seed))
