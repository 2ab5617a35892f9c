"""The sample captures, and what the analyzer finds in them."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rdmascope.captures import open_capture
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc

SAMPLES = Path(__file__).parents[2] / "captures" / "samples"
MANIFEST: dict[str, dict[str, Any]] = {
    sample["file"].removesuffix(".pcap.zst"): sample
    for sample in tomllib.loads((SAMPLES / "manifest.toml").read_text())["sample"]
}


class Seen(NamedTuple):
    analyzer: Analyzer
    rpcs: list[Rpc]

    def states(self) -> dict[str, int]:
        return dict(Counter(rpc.state for rpc in self.rpcs))


def truncated_tables(name: str, snaplen: int, frames: int, analyzer: Analyzer) -> Iterator[RpcTable]:
    """The RPCs of its first frames, as if they had been captured with this snaplen."""
    with open_capture(str(SAMPLES / MANIFEST[name]["file"])) as capture:
        for batch in capture.batches():
            rows = batch.rows[batch.rows["number"] <= frames].copy()
            rows["captured"] = np.minimum(rows["captured"], snaplen)
            if len(rows):
                decoded = analyzer.decoder.take(FrameBatch(batch.data, rows))
                yield analyzer.feed_table(decoded).with_readable_rows()


@cache
def analyzed(name: str) -> Seen:
    analyzer = Analyzer()
    rpcs: list[Rpc] = []
    with open_capture(str(SAMPLES / MANIFEST[name]["file"])) as capture:
        for batch in capture.batches():
            rpcs += analyzer.feed(batch)
    return Seen(analyzer, rpcs + analyzer.finish())


@cache
def sample_frames(count: int = 12) -> tuple[tuple[bytes, int], ...]:
    """Frames of every sample, each kind of length once: ``(data, link type)``."""
    found: list[tuple[bytes, int]] = []
    for sample in MANIFEST.values():
        lengths: set[int] = set()
        with open_capture(str(SAMPLES / sample["file"])) as capture:
            for batch in capture.batches():
                for row in batch.rows[:2000]:
                    captured = int(row["captured"])
                    if captured in lengths or len(lengths) >= count:
                        continue
                    lengths.add(captured)
                    at = int(row["offset"])
                    found.append((batch.data[at : at + captured].tobytes(), int(row["link_type"])))
    return tuple(found)
