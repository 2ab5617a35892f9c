"""The processes of a divided capture: one decodes and deals out, workers analyse; this one puts together.

All traffic between two hosts goes to one worker: a connection, its CM exchange, and the flows among which its partner
is looked for. TCP, where iWARP is looked for, is divided separately in the same way. Every worker gets every batch, so
that all advance together; results wait until all workers have finished a batch.

Processes send each other nouns by ``pickle``, and their bytes by file. A message is the number of its parts, their
lengths (eight bytes each, little-endian), and the parts: the pickle, then the arrays that it leaves out.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from functools import partial
from multiprocessing.connection import Connection as PipeEnd, Pipe
from operator import attrgetter
from queue import Queue
from threading import Thread
from types import MappingProxyType
from typing import Any, BinaryIO, Generic, NoReturn, TypeVar

import numpy as np

from rdmascope.dissect.arrays import Bytes, Int64s, Rows, take
from rdmascope.dissect.frames import Clock, FrameBatch
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.fragments import TcpFragments
from rdmascope.dissect.link.frame_decoder import DecodedFrames
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import IcrcCheck
from rdmascope.dissect.named_tuple import NamedTuple
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.messages import Message, TransportHeader
from rdmascope.dissect.rpcrdma.records import PORTS, RPC_RECORDS
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Rpc, SegmentUse
from rdmascope.dissect.transport.connection import Connection, Registry
from rdmascope.dissect.transport.iwarp.observer import IwarpObserver
from rdmascope.dissect.transport.operations import Operation, Payload

from ..errors import CaptureError, signals_to, words_of
from ..read.merge import decoded
from ..read.open import CaptureFile, open_capture
from ..session.process_memory import gc_paused
from .combine import DividedBatch, FrameCounts, MergedAnalyzer, ShareAnalyzer

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
    """A read-only mapping, restored: it cannot be pickled as it is."""
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


def carries_iwarp(path: str, ports: frozenset[int]) -> bool:
    """Whether one of the TCP connections in a capture is iWARP or carries RPC, in a pass of its own; ``ports``: of the
    service."""
    addresses, fragments = AddressTable(), TcpFragments()
    observer = IwarpObserver(Registry([]), ports, records=RPC_RECORDS, record_ports=PORTS)
    try:
        with open_capture(path) as capture:
            for batch in capture.batches():
                segments = fragments.segments(batch, locate(batch, addresses), observer.addresses)
                observer.feed(segments.batch.data, segments.rows)
                if observer.connections:
                    return True
    except CaptureError:  # Which the other pass comes to, too.
        pass
    observer.finish()
    return bool(observer.connections)


class Partition:
    """Which worker has which pair of hosts."""

    def __init__(self, workers: int) -> None:
        self._owners: dict[int, int] = {}
        """By both address ids."""
        self._tcp_owners: dict[int, int] = {}
        self._dealt = [0] * workers
        """Packets of each worker so far."""

    def deal(self, decoded: DecodedFrames) -> list[DecodedFrames]:
        """A batch for each worker; its frames are those that tell the number and the times of all."""
        packets = decoded.packets
        rows, icrc = packets.rows, packets.icrc
        worker = self._worker(rows, self._owners)
        tcp_worker = self._worker(decoded.segments, self._tcp_owners)
        frames = decoded.batch.rows
        times = frames["time"]
        telling = np.unique([int(times.argmin()), int(times.argmax()), len(frames) - 1])
        few = replace(decoded.batch, rows=take(frames, telling), comments={})
        dealt: list[DecodedFrames] = []
        for number in range(len(self._dealt)):
            mine = (worker == number).nonzero()[0]
            share = replace(
                packets,
                rows=take(rows, mine),
                skipped=packets.skipped if not number else {},
                frames=None,
                icrc=IcrcCheck(icrc.verified, _among(icrc.wrong, mine), _among(icrc.damaged, mine)),
            )
            dealt.append(DecodedFrames(few, share, take(decoded.segments, (tcp_worker == number).nonzero()[0])))
        return dealt

    def _worker(self, rows: Rows, owners_of: dict[int, int]) -> Int64s:
        source, destination = rows["source"].astype(np.int64), rows["destination"].astype(np.int64)
        pairs = np.minimum(source, destination) << 32 | np.maximum(source, destination)
        distinct, which, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        owners = np.zeros(len(distinct), np.int64)
        new: list[tuple[int, int, int]] = []
        for index, (pair, count) in enumerate(zip(distinct.tolist(), counts.tolist(), strict=True)):
            owner = owners_of.get(pair)
            if owner is None:
                new.append((-count, index, pair))
                continue
            owners[index] = owner
            self._dealt[owner] += count
        for count, index, pair in sorted(new):
            owner = owners_of[pair] = owners[index] = self._dealt.index(min(self._dealt))
            self._dealt[owner] -= count
        worker: Int64s = owners[which]
        return worker


def _among(indices: Int64s, mine: Int64s) -> Int64s:
    """Positions in ``mine`` of those ``indices`` that are in it."""
    if not len(indices):
        return indices
    among: Int64s = mine.searchsorted(indices[np.isin(indices, mine)])
    return among


class Division:
    """The processes, which begin at once; ``close`` ends them.  Make it before there are threads: they are forked."""

    def __init__(
        self,
        capture: CaptureFile,
        data: Bytes,
        analyzer: MergedAnalyzer,
        workers: int,
        lists: bool = False,
    ) -> None:
        """``data``: of the capture, which is mapped; ``lists``: usual batches have what is decoded."""
        self._lists = lists
        self._capture, self._data, self._analyzer = capture, data, analyzer
        self._children: list[int] = []
        """Their ids; that of the process that decodes is the last."""
        inboxes: list[int] = []
        outboxes: list[int] = []
        """Descriptors from the decoding process to this one and to the workers."""
        try:
            for _ in range(workers + 1):
                ends = os.pipe()
                inboxes.append(ends[0])
                outboxes.append(ends[1])
            answers: list[int] = []
            for number in range(1, workers + 1):
                ends = os.pipe()
                answers.append(ends[0])
                others = [descriptor for descriptor in (*inboxes, *outboxes, *answers) if descriptor != inboxes[number]]
                self._fork(others, partial(self._work, inboxes[number], ends[1]))
                os.close(ends[1])
            self._fork([*inboxes, *answers], partial(self._decode, outboxes))
        except OSError as error:
            self.close()
            raise CaptureError(f"{capture.path}: no {workers} processes to be had: {error.strerror}") from None
        for descriptor in (*inboxes[1:], *outboxes):
            os.close(descriptor)
        self._front = Inbox(inboxes[0])
        self._workers = [Inbox(answer) for answer in answers]
        self._nouns = analyzer.divide(workers)

    def batches(self) -> Iterator[DividedBatch]:
        """Raises CaptureError behind the last batch where the capture is damaged, and where a process was killed.

        The first Ctrl-C ends the reading, as damage does: what was read is analysed to its end.
        """
        with _interrupted_by(self._stop):
            while True:
                received = self._take(self._front, 0)
                if received is None:
                    return
                counts, decoded = received
                self._analyzer.addresses.learn(counts.known, counts.addresses)
                batch = DividedBatch(
                    counts, [self._take(inbox, number) for number, inbox in enumerate(self._workers, 1)], decoded
                )
                self._capture.passed(counts.position)
                yield batch
                del batch, decoded

    def put_together(self, batch: DividedBatch) -> RpcTable:
        """The RPCs that ended in it."""
        return self._analyzer.feed_divided(batch, self._data)

    def finish(self) -> RpcTable:
        """The RPCs that end with the capture."""
        return self._analyzer.finish_divided(
            [self._take(inbox, number) for number, inbox in enumerate(self._workers, 1)], self._data
        )

    def close(self) -> None:
        """End the processes, whatever they do."""
        children, self._children = self._children, []
        for child in children:
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            with suppress(OSError):
                os.waitpid(child, 0)

    def _stop(self) -> None:
        with suppress(OSError):
            os.kill(self._children[-1], signal.SIGUSR1)

    def _take(self, inbox: Inbox, worker: int) -> Any:
        """What a process sent; raises what it could not do."""
        try:
            parts = inbox.get()
        except EOFError:
            who = f"worker {worker} of {len(self._workers)}" if worker else "the process that decodes"
            at = f"at byte {self._capture.position}"
            raise CaptureError(f"{self._capture.path}: {at}: {who} was killed, and what it had is lost") from None
        value, error = unpacked(parts, self._data, self._nouns[worker - 1].resolve if worker else _nothing)
        if error is not None:
            raise error
        return value

    def _fork(self, others: Iterable[int], work: Callable[[], None]) -> None:
        """A child that does it, without the descriptors of others."""
        child = os.fork()
        if child:
            self._children.append(child)
            return
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # The process that takes the results decides.
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            for other in others:
                os.close(other)
            with suppress(OSError):  # The reader may be gone.
                work()
        finally:
            os._exit(0)

    def _decode(self, descriptors: Sequence[int]) -> None:
        """Decode, and send what is decoded to the workers and to the process that takes results."""
        stopped = False

        def stop(number: int, frame: object) -> None:
            nonlocal stopped
            stopped = True

        signal.signal(signal.SIGUSR1, stop)
        front, *workers = map(_outbox, descriptors)
        decoder, partition, known, known_tcp = self._analyzer.decoder, Partition(len(workers)), 0, 0
        error: Exception | None = None
        try:
            for frames in decoded(self._capture, decoder):
                if stopped:
                    error = CaptureError(f"{self._capture.path}: at byte {self._capture.position}: interrupted")
                    break
                frames = frames.within(self._data)
                addresses = known, decoder.addresses.since(known)
                known = len(decoder.addresses)
                shares = partition.deal(frames)
                tcp_addresses = known_tcp, decoder.tcp_addresses.since(known_tcp)
                known_tcp = len(decoder.tcp_addresses)
                for outbox, share in zip(workers, shares, strict=True):
                    outbox.put(packed((share, addresses, tcp_addresses, self._capture.position), self._data))
                counts = _counts(self._capture.position, frames.batch, addresses)
                front.put(packed(((counts, frames if self._lists else None), None), self._data))
                del frames
        except BrokenPipeError:  # Of a worker, which may have said why it ended.
            front.finish()
            return
        except Exception as problem:
            error = problem
        front.put(packed((None, error), self._data))
        for outbox in workers:
            outbox.put(packed(None, self._data))
        for outbox in (front, *workers):
            outbox.finish()

    def _work(self, reading: int, writing: int) -> None:
        inbox, outbox = Inbox(reading), _outbox(writing)
        share = ShareAnalyzer(self._analyzer.options, self._analyzer.pass_listeners, self._lists)
        try:
            while (received := unpacked(inbox.get(), self._data, _nothing)) is not None:
                decoded, addresses, tcp_addresses, position = received
                share.learn(addresses, tcp_addresses)
                self._capture.passed(position)
                with gc_paused():
                    outbox.put(packed((share.delivery(decoded), None), self._data))
                del received, decoded
            outbox.put(packed((share.ending(), None), self._data))
        except (EOFError, BrokenPipeError):
            return
        except Exception as error:
            outbox.put(packed((None, error), self._data))
        outbox.finish()


@contextmanager
def _interrupted_by(stop: Callable[[], None]) -> Iterator[None]:
    """The first SIGINT calls it; the second is as usual.  Of a thread that gets no signals, neither."""
    before = signal.getsignal(signal.SIGINT)
    takes = threading.current_thread() is threading.main_thread() and before is not signal.SIG_IGN

    def interrupted(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        stop()

    with signals_to(interrupted, *([signal.SIGINT] if takes else [])):
        yield


def _counts(position: int, batch: FrameBatch, addresses: tuple[int, list[bytes]]) -> FrameCounts:
    rows, times = batch.rows, batch.rows["time"]
    clock = Clock.of(rows["number"], times)
    truncated = int(np.count_nonzero(rows["captured"] < rows["original"]))
    return FrameCounts(position, len(batch), truncated, int(times.min()), int(times.max()), clock, *addresses)


def _outbox(descriptor: int) -> Outbox[Parts]:
    return Outbox(partial(send_parts, descriptor))


def _nothing(kind: str, number: int) -> NoReturn:
    raise KeyError(kind)
