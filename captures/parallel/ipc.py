"""Processes of one's own that do jobs, and what one process sends to another: nouns by ``pickle``, their bytes by
file.

A message is the number of its parts, their lengths (eight bytes each, little-endian), and the parts: what ``pickle``
says, then arrays that it leaves out.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from multiprocessing.connection import Connection as PipeEnd, Pipe
from operator import attrgetter
from queue import Queue
from threading import Thread
from types import MappingProxyType
from typing import Any, BinaryIO, Generic, NamedTuple, NoReturn, TypeVar

import numpy as np

from rdmascope.dissect.arrays import Bytes
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.messages import Message, TransportHeader
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Rpc, SegmentUse
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.operations import Operation, Payload

from ..errors import CaptureError, words_of

Parts = list[bytes | bytearray | memoryview]

LEFT_OUT = 1 << 12
"""Bytes of an array from which on ``pickle`` need not copy it."""
WAITING = 3
"""Messages that wait for a reader, at most, before who sends waits, too."""

Sent = TypeVar("Sent")

Resolve = Callable[[str, int], object]
"""'connection' or 'conversation', and its number."""


def _refer(kind: str, number: int = 0) -> NoReturn:
    """Stands for what the reader has itself: see ``_Unpickler``."""
    raise NotImplementedError(kind, number)


def unchanging(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """As it was before it was packed."""
    return MappingProxyType(mapping)


def _made(kind: type, values: tuple[Any, ...]) -> Any:
    """A dataclass of the values of its fields."""
    noun: Any = object.__new__(kind)
    for name, value in zip(_NAMES[kind], values, strict=True):
        setattr(noun, name, value)
    return noun


_BY_FIELD: tuple[type[Any], ...] = (Operation, Payload, Rpc, Message, TransportHeader, ChunkUse, SegmentUse)
"""Dataclasses of which there are many: without the names of their fields."""
_NAMES = {kind: tuple([field.name for field in fields(kind)]) for kind in _BY_FIELD}
_VALUES = {kind: attrgetter(*names) for kind, names in _NAMES.items()}


class _Pickler(pickle.Pickler):
    def __init__(self, file: BinaryIO, data: Bytes, left_out: Callable[[pickle.PickleBuffer], object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL, buffer_callback=left_out)
        self._data = data

    def reducer_override(self, noun: Any) -> Any:
        kind = type(noun)
        if kind in _VALUES:
            return _made, (kind, _VALUES[kind](noun))
        if kind is np.ndarray:
            return (_refer, ("data",)) if noun is self._data else NotImplemented
        if kind is Conversation:
            return _refer, ("conversation", noun.connection.number)
        if kind is Connection:
            return _refer, ("connection", noun.number)
        if kind is MappingProxyType:
            return unchanging, (dict(noun),)
        if kind is memoryview:
            return (_refer, ("view",)) if noun.obj is self._data else (memoryview, (bytes(noun),))
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, buffers: Sequence[Any], data: Bytes, resolve: Resolve) -> None:
        super().__init__(file, buffers=buffers)
        # No method: what is loaded remembers it, and would be a cycle with all that was loaded.
        self._referred = partial(_referred, data, resolve)

    def find_class(self, module: str, name: str) -> Any:
        return self._referred if (module, name) == (__name__, "_refer") else super().find_class(module, name)


def _referred(data: Bytes, resolve: Resolve, kind: str, number: int = 0) -> object:
    """What ``_refer`` stands for."""
    if kind == "data":
        return data
    return data.data if kind == "view" else resolve(kind, number)


def packed(noun: object, data: Bytes) -> Parts:
    """A message; what refers to ``data``, connections and conversations does so at the other end, too."""
    parts: Parts = []

    def left_out(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < LEFT_OUT:
            return True
        parts.append(raw)
        return False

    file = io.BytesIO()
    _Pickler(file, data, left_out).dump(noun)
    return [file.getbuffer(), *parts]


def unpacked(parts: Parts, data: Bytes, resolve: Resolve) -> Any:
    """What ``packed`` was given."""
    first, *buffers = parts
    return _Unpickler(io.BytesIO(first), buffers, data, resolve).load()


class Outbox(Generic[Sent]):
    """Sends messages by a thread, so that a reader which is busy is waited for only behind some of them.

    The thread is there from the first message until ``finish``: who has none of its own yet may fork.
    """

    def __init__(self, send: Callable[[Sent], object]) -> None:
        self._deliver = send
        self._waiting: Queue[Sent | None] = Queue(WAITING)
        self._broken = False
        self._thread: Thread | None = None

    def put(self, message: Sent) -> None:
        """Raises BrokenPipeError where the reader is gone."""
        if self._broken:
            raise BrokenPipeError
        if self._thread is None:
            self._thread = Thread(target=self._send, daemon=True)
            self._thread.start()
        self._waiting.put(message)

    def finish(self) -> None:
        """Wait until all is sent."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _send(self) -> None:
        while (message := self._waiting.get()) is not None:
            try:
                if not self._broken:
                    self._deliver(message)
            except OSError:
                self._broken = True
            del message


def send_parts(descriptor: int, parts: Parts) -> None:
    """Write a message.  Raises OSError where the reader is gone."""
    lengths = [len(part) for part in parts]
    for part in (struct.pack(f"<{len(lengths) + 1}Q", len(lengths), *lengths), *parts):
        left = memoryview(part)
        while len(left):
            left = left[os.write(descriptor, left) :]


class Inbox:
    """The reading end: messages in their order."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "rb")

    def get(self) -> Parts:
        """Raises EOFError where the sender is gone."""
        (count,) = struct.unpack("<Q", self._read(8))
        return [self._read(length) for length in struct.unpack(f"<{count}Q", self._read(8 * count))]

    def close(self) -> None:
        self._file.close()

    def _read(self, length: int) -> bytearray:
        taken = bytearray(length)
        if self._file.readinto(taken) != length:
            raise EOFError
        return taken


Jobs = Mapping[str, Callable[..., Iterator[Any]]]
"""Name of a job -> what makes its results; they go through ``pickle``."""
MakeJobs = Callable[[], Jobs]
"""Is called in the process itself, which so imports what they need once it is asked for something."""


class Reply(NamedTuple):
    """Something that a worker sent."""

    request: int
    """Number of the request."""
    value: Any
    """A result; None where ``ended``."""
    ended: bool = False
    """The job is over."""
    problem: str = ""
    """Why it ended early, in one line."""


class Worker:
    """The process, which begins at once with what this one has in memory; it ends with ``close`` or with its parent.

    Make it before there are threads: it is forked.  Jobs are done in their order; but of those that are requested with
    ``latest`` only the last one matters, and the others end at their next result.
    """

    def __init__(self, make_jobs: MakeJobs, folder: str, orphaned: Callable[[], None] = lambda: None) -> None:
        """``folder``: where its temporary files are, so that they go with it; ``orphaned``: what it does where this
        process ended without ``close``."""
        self._requests = 0
        ours, theirs = Pipe()
        sys.stdout.flush()
        self._child = os.fork()
        if not self._child:
            try:
                ours.close()
                _serve(make_jobs, theirs, folder)
                orphaned()
            finally:
                os._exit(0)
        theirs.close()
        self._pipe: PipeEnd = ours

    def request(self, name: str, *arguments: Any, latest: bool = False) -> int:
        """Have a job done; gives the number that its results have."""
        self._requests += 1
        with suppress(OSError):
            self._pipe.send((self._requests, name, arguments, latest))
        return self._requests

    def replies(self) -> Iterator[Reply]:
        """What it sends, until it is closed; waits for it, so take them in a thread.  CaptureError: it was killed."""
        while True:
            try:
                reply: Reply = self._pipe.recv()
            except (EOFError, OSError):
                if self._child:
                    raise CaptureError("the process that reads the capture was killed") from None
                return
            yield reply

    def close(self) -> None:
        """End it, whatever it does."""
        child, self._child = self._child, 0
        if child:
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            self._pipe.close()


def _serve(make_jobs: MakeJobs, pipe: PipeEnd, folder: str) -> None:
    for number in (signal.SIGINT, signal.SIGTSTP, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # The process that asks decides.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # The terminal is the other's.
        os.dup2(nowhere, descriptor)
    tempfile.tempdir = folder
    jobs: Jobs = {}
    outbox: Outbox[bytes] = Outbox(pipe.send_bytes)

    def send(reply: Reply) -> None:
        outbox.put(pickle.dumps(reply, pickle.HIGHEST_PROTOCOL))

    waiting: list[tuple[int, str, tuple[Any, ...], bool]] = []
    with suppress(EOFError, OSError):
        while True:
            if not waiting:
                waiting.append(pipe.recv())
            jobs = jobs or make_jobs()
            request, name, arguments, replaceable = waiting.pop(0)
            problem = ""
            try:
                for value in jobs[name](*arguments):
                    if value is not None:
                        send(Reply(request, value))
                    while pipe.poll():
                        waiting.append(pipe.recv())
                    if replaceable and any(item[3] for item in waiting):
                        break
            except (EOFError, BrokenPipeError, ConnectionError):
                raise
            except Exception as error:  # A fault of this program: said where it is seen, and the next job is done.
                problem = words_of(error) or f"internal error, please report it: {type(error).__name__}: {error}"
            send(Reply(request, None, True, problem))
            outbox.finish()
            while pipe.poll():
                waiting.append(pipe.recv())
            latest = [item for item in waiting if item[3]][-1:]
            waiting = [item for item in waiting if not item[3] or item in latest]
