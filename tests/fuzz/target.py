"""What a target is, and where its first inputs come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from playbook.samples import MANIFEST, SAMPLES
from playbook.wrap import Raw
from rdmascope.captures import open_capture
from rdmascope.captures.session.session import Session
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply

FOUND = Path(__file__).with_name("found")
"""Inputs that did harm once, a folder for each target; tests/test_fuzz.py runs them all."""


class Target(NamedTuple):
    """``run`` takes any bytes; what it raises is a finding."""

    run: Callable[[bytes], object]
    seeds: Callable[[], Iterator[bytes]]
    max_bytes: int = 4096
    """Of an input."""


class SampleMessage(NamedTuple):
    """The first kilobytes of one RPC message of a sample."""

    is_call: bool
    backward: bool
    called: tuple[int | None, int | None, int | None]
    """Program, version, procedure."""
    data: bytes


@cache
def sample_messages(each: int = 60) -> tuple[SampleMessage, ...]:
    """Whole calls and replies of every sample, each kind a few times."""
    found: list[SampleMessage] = []
    for name in MANIFEST:
        seen: dict[tuple[object, ...], int] = {}
        for rpc in Session(str(SAMPLES / MANIFEST[name]["file"])).rpcs():
            kind = (rpc.program, rpc.version, rpc.procedure, rpc.operations)
            seen[kind] = seen.get(kind, 0) + 1
            if seen[kind] > 2 or len(seen) > each or rpc.program is None:
                continue
            for is_call, message in ((True, reassembled_call(rpc)), (False, reassembled_reply(rpc))):
                if message is not None and message.complete:
                    data = bytes(message.prefix[:2048])
                    found.append(SampleMessage(is_call, rpc.backward, (rpc.program, rpc.version, rpc.procedure), data))
    return tuple(found)


@cache
def sends() -> tuple[bytes, ...]:
    """Sends of RPC-over-RDMA with headers of different lengths, of every sample."""
    found: dict[tuple[str, int | None, int], bytes] = {}
    for name in MANIFEST:
        for rpc in Session(str(SAMPLES / MANIFEST[name]["file"])).rpcs():
            for message in (rpc.call, rpc.reply):
                if message is not None:
                    header = message.header
                    send = message.data[message.start - header.length : message.end].tobytes()
                    found.setdefault((name, header.procedure, header.length), send[:512])
    return tuple(found.values())


@cache
def first_frames(name: str, count: int) -> tuple[Raw, ...]:
    """Of a sample."""
    found: list[Raw] = []
    with open_capture(str(SAMPLES / MANIFEST[name]["file"])) as capture:
        for batch in capture.batches():
            for row in batch.rows[: count - len(found)]:
                at = int(row["offset"])
                data = batch.data[at : at + int(row["captured"])].tobytes()
                found.append(Raw(data, int(row["time"]), int(row["link_type"])))
            if len(found) >= count:
                break
    return tuple(found)
