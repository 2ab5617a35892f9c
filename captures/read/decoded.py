"""The decoded batches of a capture."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.link.frame_decoder import DecodedFrames, FrameDecoder

from .merge import MergedCaptures
from .open import CaptureFile

FIRST_BATCH = 1 << 11
"""Frames of the first batch of workers: until it comes they have nothing to do."""

Source = CaptureFile | MergedCaptures


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def decoded(
    capture: Source,
    decoder: FrameDecoder,
    divided: Callable[[Iterable[FrameBatch]], Iterable[FrameBatch]],
    jobs: int | None = None,
) -> Iterator[DecodedFrames]:
    """The batches of a capture, decoded; of a mapped file no more is in memory than one of them needs.

    ``divided`` may make more batches of them.  ``jobs``: in the batches that so many processes would be given.
    """
    batches: Iterable[FrameBatch]
    if jobs is not None and not isinstance(capture, MergedCaptures) and capture.mapped is not None:
        batches = filter(len, capture.batches(FIRST_BATCH))
    else:
        batches = divided(filter(len, capture.batches()))
    for batch in batches:
        if not isinstance(capture, MergedCaptures):
            capture.release()
        yield decoder.take(batch)
        del batch
