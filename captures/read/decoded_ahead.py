"""The decoded batches of a capture: of a large file another process decodes ahead of the one that uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rdmascope.dissect.arrays import Bytes
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.link.frame_decoder import DecodedFrames, FrameDecoder

from ..errors import CaptureError
from .merge import MergedCaptures
from .open import CaptureFile
from .read_ahead import FIRST_BATCH, ahead, processors

Source = CaptureFile | MergedCaptures

AHEAD_FROM = 256 << 20
"""Bytes of a file from which on a second process is worth its memory."""


def decoded(
    capture: Source,
    decoder: FrameDecoder,
    divided: Callable[[Iterable[FrameBatch]], Iterable[FrameBatch]],
    jobs: int | None = None,
) -> Iterator[DecodedFrames]:
    """The batches of a capture, decoded; of a large file by a process of its own, while this one uses them.

    ``divided`` may make more batches of them, where they are decoded here.  ``jobs``: in the batches that so many
    processes would be given, here.
    """
    if not isinstance(capture, MergedCaptures) and capture.mapped is not None:
        if jobs is not None:
            return map(decoder.take, _released(capture, filter(len, capture.batches(FIRST_BATCH))))
        data = capture.mapped
        if len(data) >= AHEAD_FROM and processors() > 1:
            return _received(capture, data, decoder, ahead(lambda: _sent(capture, decoder)))
    return map(decoder.take, _released(capture, divided(filter(len, capture.batches()))))


def _released(capture: Source, batches: Iterable[FrameBatch]) -> Iterator[FrameBatch]:
    """The same; of a mapped file no more is in memory than one of them needs."""
    for batch in batches:
        if not isinstance(capture, MergedCaptures):
            capture.release()
        yield batch


Parcel = tuple[int, DecodedFrames, tuple[int, list[bytes]]]
"""Position in the file; a batch without the bytes, which both processes have; new addresses, and from which on."""


def _sent(capture: CaptureFile, decoder: FrameDecoder) -> Iterator[Parcel]:
    for batch in filter(len, capture.batches(FIRST_BATCH)):
        known = len(decoder.addresses)
        one = decoder.take(batch).within(batch.data[:0])
        yield capture.position, one, (known, decoder.addresses.since(known))
        del batch, one


def _received(
    capture: CaptureFile, data: Bytes, decoder: FrameDecoder, parcels: Iterator[Parcel]
) -> Iterator[DecodedFrames]:
    try:
        for position, one, addresses in parcels:
            decoder.addresses.learn(*addresses)
            capture.passed(position)
            yield one.within(data)
            del one
    except ChildProcessError as error:
        raise CaptureError(f"{capture.path}: at byte {capture.position}: {error}") from None
