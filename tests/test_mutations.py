"""Real captures, spoiled: cut at the start, with frames dropped, out of order or shortened.

What the whole capture says is the truth; of a spoiled one every byte that is not called missing must be that truth's.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from rdmascope.captures import open_capture
from rdmascope.captures.read.streams import Limits
from rdmascope.dissect.arrays import Rows
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpcs import Reassembled, Rpc

SAMPLES = Path(__file__).parent.parent / "captures" / "samples"
NAMES = ("rxe-nfs-all", "longcall-rxe", "bidir-rxe")


@cache
def whole(name: str) -> FrameBatch:
    one_batch = Limits(frames=1 << 20, bytes=1 << 30, window=1 << 26)
    with open_capture(SAMPLES / f"{name}.pcap.zst", one_batch) as capture:
        (batch,) = capture.batches()
    return batch


def analyze(batch: FrameBatch, rows: Rows) -> list[Rpc]:
    analyzer = Analyzer()
    return analyzer.feed(FrameBatch(batch.data, rows)) + analyzer.finish()


Truth = dict[tuple[int, str, int], Reassembled]


@cache
def truth(name: str) -> Truth:
    """Messages by XID, side and the time of their Send, in whichever direction: a callback of NFSv4.0 has a TCP
    connection of its own, and without its SYN it may be one in the backward direction."""
    batch = whole(name)
    found: Truth = {}
    for rpc in analyze(batch, batch.rows):
        for side, message, reassembled in (
            ("call", rpc.call, reassembled_call(rpc)),
            ("reply", rpc.reply, reassembled_reply(rpc)),
        ):
            assert message is not None and reassembled is not None and reassembled.complete
            found[rpc.xid, side, message.operation.last_time] = reassembled
    return found


def judge(name: str, rpcs: list[Rpc]) -> Counter[str]:
    """Count the states; raise AssertionError where a byte is wrong and not called missing."""
    true = truth(name)
    for rpc in rpcs:
        for side, message, reassembled in (
            ("call", rpc.call, reassembled_call(rpc)),
            ("reply", rpc.reply, reassembled_reply(rpc)),
        ):
            if message is None or reassembled is None:
                continue
            right = true.get((rpc.xid, side, message.operation.last_time))
            if right is None:
                assert not reassembled.complete or message.operation.payload.truncated, f"{side} of {rpc.xid:#x}"
                continue
            for start, given in reassembled.pieces:
                assert given == right.prefix[start : start + len(given)], f"{side} of {rpc.xid:#x} at {start}"
            assert not reassembled.complete or reassembled.length == right.length
    return Counter(rpc.state for rpc in rpcs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.8])
def test_a_capture_that_begins_later(name: str, share: float) -> None:
    batch = whole(name)
    states = judge(name, analyze(batch, batch.rows[int(len(batch) * share) :]))
    assert states["complete"] > 0
    assert states["no reply"] == 0 and states["no call"] <= 16 and states["damaged"] <= 16


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5])
def test_frames_that_were_not_recorded(name: str, share: float) -> None:
    batch = whole(name)
    rng = random.Random(7)
    kept = [index for index in range(len(batch)) if rng.random() >= share]
    judge(name, analyze(batch, batch.rows[kept]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("swaps", [3, 30])
def test_frames_recorded_out_of_order(name: str, swaps: int) -> None:
    """By up to three places: all is there, so all comes out."""
    batch = whole(name)
    rng = random.Random(11)
    order = np.arange(len(batch))
    for index in rng.sample(range(len(batch) - 4), swaps):
        other = index + rng.randint(1, 3)
        order[[index, other]] = order[[other, index]]
    rows = batch.rows[order]
    rows["number"] = np.arange(1, len(rows) + 1)
    states = judge(name, analyze(batch, rows))
    assert set(states) <= {"complete", "error"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("snaplen", [64, 96, 128, 160, 256])
def test_shortened_frames(name: str, snaplen: int) -> None:
    """Every RPC is still found and matched; what was cut off is called so."""
    batch = whole(name)
    rows = batch.rows.copy()
    rows["captured"] = np.minimum(rows["captured"], snaplen)
    rpcs = analyze(batch, rows)
    states = judge(name, rpcs)
    if snaplen > 64:  # Behind TCP's header nothing is left of a frame.
        assert len(rpcs) == len(truth(name)) // 2
    over_rdma = [rpc for rpc in analyze(batch, batch.rows) if rpc.connection.transport not in ("TCP", "UDP")]
    assert len([rpc for rpc in rpcs if rpc.connection.transport not in ("TCP", "UDP")]) == len(over_rdma)
    assert set(states) <= {"complete", "error"}
    if snaplen >= 160:
        assert all(rpc.name for rpc in rpcs)
