"""What one process sends to another: nouns by ``pickle``, their bytes by reference to the file that both have mapped.

A message is the number of its parts, their lengths (eight bytes each, little-endian), and the parts: what ``pickle``
says, then arrays that it leaves out.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import partial
from operator import attrgetter
from queue import Queue
from threading import Thread
from types import MappingProxyType
from typing import Any, BinaryIO, NoReturn

import numpy as np

from rdmascope.dissect.arrays import Bytes
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.messages import Message, TransportHeader
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Rpc, SegmentUse
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.operations import Operation, Payload

Parts = list[bytes | bytearray | memoryview]

LEFT_OUT = 1 << 12
"""Bytes of an array from which on ``pickle`` need not copy it."""
WAITING = 3
"""Messages that wait for a reader."""

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


_PLAIN: tuple[type[Any], ...] = (Operation, Payload, Rpc, Message, TransportHeader, ChunkUse, SegmentUse)
"""Dataclasses of which there are many: without the names of their fields."""
_NAMES = {kind: tuple([one.name for one in fields(kind)]) for kind in _PLAIN}
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


class Outbox:
    """Sends messages by a thread of its own, so that a reader which is busy is waited for only behind some of them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: Queue[Parts | None] = Queue(WAITING)
        self._broken = False
        self._thread = Thread(target=self._send, daemon=True)
        self._thread.start()

    def put(self, parts: Parts) -> None:
        """Raises BrokenPipeError where the reader is gone."""
        if self._broken:
            raise BrokenPipeError
        self._waiting.put(parts)

    def close(self) -> None:
        """Behind what was put."""
        self._waiting.put(None)
        self._thread.join()

    def _send(self) -> None:
        while (parts := self._waiting.get()) is not None:
            if self._broken:
                continue
            try:
                lengths = [len(part) for part in parts]
                self._write(struct.pack(f"<{len(lengths) + 1}Q", len(lengths), *lengths))
                for part in parts:
                    self._write(part)
            except OSError:
                self._broken = True
            del parts
        with suppress(OSError):
            os.close(self._descriptor)

    def _write(self, part: bytes | bytearray | memoryview) -> None:
        left = memoryview(part)
        while len(left):
            left = left[os.write(self._descriptor, left) :]


class Inbox:
    """Reads them."""

    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "rb")

    def get(self) -> Parts:
        """Raises EOFError where the sender is gone."""
        (count,) = struct.unpack("<Q", self._read(8))
        lengths = struct.unpack(f"<{count}Q", self._read(8 * count))
        return [self._read(length) for length in lengths]

    def close(self) -> None:
        self._file.close()

    def _read(self, length: int) -> bytearray:
        taken = bytearray(length)
        if self._file.readinto(taken) != length:
            raise EOFError
        return taken
