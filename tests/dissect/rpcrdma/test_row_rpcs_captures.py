"""Row RPCs in columns, of whole captures: several merged, played from scripts, truncated, in batches of any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures.peer.shipped import shipped_scripts, write_capture
from rdmascope.captures.peer.wire.script import captured, parse_script, play_script
from rdmascope.captures.read.streams import Limits
from rdmascope.captures.session.session import Session
from rdmascope.dissect.frames import FrameBatch

from .test_analyzer_playbook import QUICK
from .test_row_rpcs import compare, first_batch, sample_batches

SMALL = [name for name in MANIFEST if int(str(MANIFEST[name]["frames"])) < 6000]
PAIRS = [
    ("bidir-rxe", "ipv6-rxe"),
    ("loss-rxe", "nconnect-rxe"),
    ("loss-siw", "longcall-rxe"),
    ("v2-settles", "v2-falls-back"),
]


def merged_batches(*names: str, frames: int) -> list[FrameBatch]:
    paths = [str(SAMPLES / MANIFEST[name]["file"]) for name in names]
    return [*Session(paths, limits=Limits(frames=frames)).batches()]


@pytest.mark.parametrize("frames", [53])
@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_merged_captures(names: tuple[str, ...], frames: int) -> None:
    compare(merged_batches(*names, frames=frames))


@pytest.mark.parametrize("frames", [17])
@pytest.mark.parametrize("name", SMALL)
def test_every_sample_in_small_batches(name: str, frames: int) -> None:
    compare([*sample_batches(name, Limits(frames=frames))][: 2000 // frames])


@pytest.mark.parametrize("frames", [5, 40, 5000])
@pytest.mark.parametrize("name", shipped_scripts())
def test_what_scripts_play(name: str, frames: int, tmp_path: Path) -> None:
    script = parse_script(shipped_scripts()[name])
    path = tmp_path / "played.pcapng"
    with path.open("wb") as file:
        write_capture(file, captured(script, play_script(script)[0]), script.snaplen)
    compare([*Session(str(path), limits=Limits(frames=frames)).batches()])


def test_truncated_messages_are_rows() -> None:
    """Wherever their RPC header ends, or their COMPOUND."""
    batch = next(sample_batches("meta-rxe", Limits(frames=8000)))
    whole = compare([batch])
    for snaplen in (128, 200, 256):
        rows = batch.rows.copy()
        rows["captured"] = np.minimum(rows["captured"], snaplen)
        assert compare([FrameBatch(batch.data, rows)]) > 0.98 * whole > 1000


@settings(QUICK, max_examples=30)
@given(
    st.sampled_from(["meta-rxe", "bidir-rxe", "ipv6-rxe", "rxe-nfs-all"]),
    st.integers(60, 260),
    st.integers(0, 300),
    st.integers(1, 90),
)
def test_truncated_frames_from_any_frame_on(name: str, snaplen: int, first: int, frames: int) -> None:
    batch = first_batch(name, 600)
    rows = batch.rows[first : first + 40 * frames].copy()
    rows["captured"] = np.minimum(rows["captured"], snaplen)
    compare([FrameBatch(batch.data, rows[at : at + frames]) for at in range(0, len(rows), frames)])
