"""Work done ahead of its reader by a process of its own, such as decoding the batches of a large capture."""

from __future__ import annotations

import mmap
import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import BinaryIO, NamedTuple, TypeVar

from rdmascope.dissect.arrays import Bytes
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.link.frame_decoder import DecodedFrames, FrameDecoder

from ..errors import CaptureError
from .merge import MergedCaptures
from .open import CaptureFile

Item = TypeVar("Item")

FIRST_BATCH = 1 << 11
"""Frames of the first batch: until it comes the other process has nothing to do."""
_SET_PIPE_SIZE = 1031
"""fcntl's F_SETPIPE_SZ on Linux."""
_PIPE_SIZE = 1 << 20
_SLOT = 6 << 20
"""Bytes of an item that do not go through the pipe, where both processes would have to take turns."""
_SLOTS = 2


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


class _Slots(NamedTuple):
    """Memory that both processes have: an item is in one of its slots, which are taken in turn."""

    memory: mmap.mmap
    used: int
    """Descriptor of a pipe: the child takes a byte for each slot that it fills."""
    free: int
    """Its other end: this process writes a byte for each that it is done with."""


class _InSlot(NamedTuple):
    """What the pipe has in place of an item."""

    slot: int
    length: int


def _shared() -> _Slots:
    memory = mmap.mmap(-1, _SLOTS * _SLOT)
    used, free = os.pipe()
    os.write(free, bytes(_SLOTS))
    return _Slots(memory, used, free)


def ahead(work: Callable[[], Iterator[Item]]) -> Iterator[Item]:
    """What ``work()`` yields, item by item: a child process makes the next while this one is used.

    Items go through ``pickle``, and up to two wait in memory that both processes have.  What ``work`` raises is raised
    here, behind the items before it; a child that is killed is a ChildProcessError.  Where there is no process to be
    had, the work is done here.  The child begins at once, with what this process has in memory, and ends with the
    iterator.
    """
    try:
        reading, writing = os.pipe()
    except OSError:
        return work()
    shared: _Slots | None = None
    try:
        shared = _shared()
        child = os.fork()
    except OSError:
        for descriptor in (reading, writing, *((shared.used, shared.free) if shared is not None else ())):
            os.close(descriptor)
        return work()
    if not child:
        try:
            os.close(reading)
            os.close(shared.free)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # The process that takes the items decides.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _work(work, writing, shared)
        finally:
            os._exit(0)
    os.close(writing)
    os.close(shared.used)
    return _items(child, os.fdopen(reading, "rb"), shared)


def _work(work: Callable[[], Iterator[Item]], descriptor: int, shared: _Slots) -> None:
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.fcntl(descriptor, _SET_PIPE_SIZE, _PIPE_SIZE)
    with suppress(OSError), os.fdopen(descriptor, "wb") as pipe:  # The reader may be gone.
        try:
            slot = 0
            for item in work():
                os.read(shared.used, 1)  # Waits for a free slot; after the end of the reader there is none.
                placed = _placed(item, shared, slot)
                del item  # Or it would live until the next is made.
                pickle.dump((placed, None), pipe, pickle.HIGHEST_PROTOCOL)
                del placed
                pipe.flush()
                slot = (slot + 1) % _SLOTS
            pickle.dump((None, StopIteration()), pipe)
        except BrokenPipeError:
            raise
        except Exception as error:
            pickle.dump((None, error), pipe)


def _placed(item: Item, shared: _Slots, slot: int) -> Item | _InSlot:
    """Where the item is now; itself, where it is too large."""
    shared.memory.seek(slot * _SLOT)
    room = _Room(shared.memory, _SLOT)
    try:
        pickle.dump(item, room, pickle.HIGHEST_PROTOCOL)
    except BufferError:
        return item
    return _InSlot(slot, _SLOT - room.left)


class _Room:
    """A part of memory as a file that ``pickle`` writes; BufferError where it is full."""

    def __init__(self, memory: mmap.mmap, left: int) -> None:
        self._memory, self.left = memory, left

    def write(self, data: bytes | memoryview | pickle.PickleBuffer) -> int:
        size = memoryview(data).nbytes
        if size > self.left:
            raise BufferError
        self.left -= size
        return self._memory.write(data)


def _items(child: int, pipe: BinaryIO, shared: _Slots) -> Iterator[Item]:
    try:
        while True:
            try:
                item, end = pickle.load(pipe)
            except (EOFError, pickle.UnpicklingError):
                raise ChildProcessError("the process that reads ahead was killed") from None
            if isinstance(end, StopIteration):
                return
            if end is not None:
                raise end
            if isinstance(item, _InSlot):
                first = item.slot * _SLOT
                with memoryview(shared.memory) as memory, memory[first : first + item.length] as data:
                    item = pickle.loads(data)
            with suppress(BrokenPipeError):  # The child may be done.
                os.write(shared.free, b"\0")
            yield item
            del item
    finally:
        pipe.close()
        os.close(shared.free)
        shared.memory.close()
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


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
