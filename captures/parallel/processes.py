"""The processes of a divided capture: one decodes and deals out, workers analyse; this one puts together.

All that two hosts say to each other goes to one worker: a connection, its CM exchange, and the flows among which its
partner is looked for.  TCP, in which iWARP is looked for, is dealt out likewise, by itself.  Every worker is handed
every batch, so that all of them are at the same place; what one made waits until all did."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from rdmascope.dissect.arrays import Bytes, Int64s, Rows, take
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.fragments import TcpFragments
from rdmascope.dissect.link.frame_decoder import DecodedFrames
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.packets import IcrcCheck
from rdmascope.dissect.rpcrdma.records import PORTS, RPC_RECORDS
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.transport.connection import Registry
from rdmascope.dissect.transport.iwarp.observer import IwarpObserver

from ..errors import CaptureError, signals_to
from ..read.merge import decoded
from ..read.open import CaptureFile, open_capture
from ..session.process_memory import gc_paused
from .combine import DividedBatch, FrameCounts, MergedAnalyzer, ShareAnalyzer, ShareEnding
from .ipc import Inbox, Outbox, Parts, packed, send_parts, unpacked


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
    """Those indices of rows that are ``mine``, counted among these."""
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
        """Of the process that decodes: to this one, and to the workers."""
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
        """Those that end with the capture."""
        return self._analyzer.finish_divided(self._endings(), self._data)

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

    def _endings(self) -> list[ShareEnding]:
        return [self._take(inbox, number) for number, inbox in enumerate(self._workers, 1)]

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
    rows = batch.rows
    times = rows["time"]
    truncated = int(np.count_nonzero(rows["captured"] < rows["original"]))
    return FrameCounts(position, len(batch), truncated, int(times.min()), int(times.max()), *addresses)


def _outbox(descriptor: int) -> Outbox[Parts]:
    return Outbox(partial(send_parts, descriptor))


def _nothing(kind: str, number: int) -> NoReturn:
    raise KeyError(kind)
