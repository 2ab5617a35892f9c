"""From a capture file to RPCs: what every command does first."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import click

from rdmascope.captures import Capture, CaptureError, Captures, Follow, open_captures
from rdmascope.captures.merge import first_of
from rdmascope.captures.read_ahead import ahead, processors
from rdmascope.dissect.arrays import Bytes
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.link.front import Decoded, Front
from rdmascope.dissect.rpcrdma.analyzer import NFS_RDMA_PORT, Analyzer, Options
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.connection import Connection

from .terminal import complain, meter
from .units import count, plural

Made = TypeVar("Made", FrameBatch, Decoded)


def recognition_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--port`` and ``--as``: what to take for RPC-over-RDMA."""
    command = click.option(
        "--as",
        "force",
        type=click.Choice(["rpcrdma"]),
        help="Take every connection for RPC-over-RDMA, whatever it looks like.",
    )(command)
    return click.option(
        "--port",
        "ports",
        type=click.IntRange(1, 65535),
        multiple=True,
        help=f"One more service port of RPC-over-RDMA beside {NFS_RDMA_PORT}; may be repeated.",
    )(command)


Source = str | tuple[str, ...]
"""One path, or several to be read as one capture."""


def _source(context: click.Context, parameter: click.Parameter, paths: tuple[str, ...]) -> Source:
    return paths[0] if len(paths) == 1 else paths


file_argument = click.argument("file", metavar="FILE...", nargs=-1, required=True, callback=_source)
"""Paths of captures or of directories of captures, all of them one capture in the order of time; or - for standard
input.  They are opened by the captures folder, which explains what is wrong with them."""


def follow_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--follow`` and ``--idle``: read a file that is still being written."""
    command = click.option(
        "--idle",
        type=click.FloatRange(0),
        metavar="SECONDS",
        help="With --follow: stop when the file has not grown for so long.",
    )(command)
    return click.option(
        "--follow", is_flag=True, help="The file is still being written: read on as it grows, until Ctrl-C."
    )(command)


def following(follow: bool, idle: float | None) -> Follow | None:
    """What the follow options ask for."""
    if idle is not None and not follow:
        raise click.UsageError("--idle says when --follow ends; give both", click.get_current_context())
    return Follow(idle) if follow else None


@contextmanager
def _until_interrupted(follow: Follow | None) -> Iterator[Follow | None]:
    """While the file is followed, the first Ctrl-C ends the reading at what is written by then, not the command."""
    if follow is None:
        yield None
        return
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield Follow(follow.idle, lambda: stopped)
    finally:
        signal.signal(signal.SIGINT, before)


def analyzer_options(ports: tuple[int, ...], force: str | None, contents: bool = True) -> Options:
    return Options(ports=frozenset({NFS_RDMA_PORT, *ports}), force=force is not None, contents=contents)


AHEAD_FROM = 256 << 20
"""Bytes of a file from which on a second process is worth its memory."""
FIRST = 1 << 11
"""Frames of the first batch: until it comes nobody else has anything to do."""


def decoded(capture: Capture | Captures, front: Front) -> Iterator[Decoded]:
    """The batches of a capture, decoded; of a large file by a process of its own, while this one uses them."""
    if not isinstance(capture, Captures) and capture.mapped is not None:
        data = capture.mapped
        if len(data) >= AHEAD_FROM and processors() > 1:
            return _received(capture, data, front, ahead(lambda: _sent(capture, front)))
    return map(front.take, filter(len, capture.batches()))


Parcel = tuple[int, Decoded, tuple[int, list[bytes]]]
"""Position in the file; a batch without the bytes, which both processes have; new addresses, and from which on."""


def _sent(capture: Capture, front: Front) -> Iterator[Parcel]:
    for batch in filter(len, capture.batches(FIRST)):
        known = len(front.addresses)
        one = front.take(batch).within(batch.data[:0])
        yield capture.position, one, (known, front.addresses.since(known))


def _received(capture: Capture, data: Bytes, front: Front, parcels: Iterator[Parcel]) -> Iterator[Decoded]:
    try:
        for position, one, addresses in parcels:
            front.addresses.learn(*addresses)
            capture.passed(position)
            yield one.within(data)
    except ChildProcessError as error:
        raise CaptureError(f"{capture.path}: at byte {capture.position}: {error}") from None


class Reading:
    """One pass over a capture.

    Damage in the file does not raise while there is something to show: it waits in ``damage``, and ``check()``
    raises it at the end.
    """

    def __init__(self, source: Source, options: Options, streaming: bool = False, follow: Follow | None = None) -> None:
        """``streaming``: the command prints while it reads."""
        self.paths = (source,) if isinstance(source, str) else source
        self.path = self.paths[0] + (f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else "")
        self.follow = follow
        self.passed_over: list[str] = []
        """Files of a directory that are no captures, and why."""
        self.streaming = streaming
        self.analyzer = Analyzer(options)
        self.damage: CaptureError | None = None

    @property
    def first_time(self) -> int:
        """Nanoseconds; of the first frame, 0 before there is one."""
        return self.analyzer.first_time or 0

    def batches(self) -> Iterator[FrameBatch]:
        """The batches of frames, up to the damage if there is any."""
        return self._read(lambda capture: capture.batches())

    def _decoded(self) -> Iterator[Decoded]:
        """The same, decoded."""
        return self._read(lambda capture: decoded(capture, self.analyzer.front))

    def _read(self, line: Callable[[Capture | Captures], Iterator[Made]]) -> Iterator[Made]:
        """What ``line`` gives of the frames, until they end or are damaged."""
        frames = 0
        # The nouns hold no cycles, and looking for some takes longer than all the decoding.
        gc.disable()
        try:
            with _until_interrupted(self.follow) as follow, open_captures(self.paths, follow=follow) as capture:
                if isinstance(capture, Captures):
                    self.passed_over = capture.passed_over
                made = line(capture)  # Before the meter, which is a thread.
                with meter(self.path, self.streaming) as progress:
                    for one in made:
                        frames += len(one)
                        yield one
                        if follow is not None:
                            sys.stdout.flush()
                        progress.at(capture.position, capture.size, f"{count(frames)} frames")
        except CaptureError as error:
            if not frames:
                raise click.ClickException(str(error)) from None
            self.damage = error

    def rpcs(self, retire: Callable[[list[Connection]], None] | None = None) -> Iterator[Rpc]:
        """RPCs as they end, at the end those that never did.

        ``retire`` is given connections of which no more RPC comes, where they are too many to be kept.
        """
        feed = self.analyzer.feed_decoded
        for batch in self._decoded():
            yield from feed(batch)
            if self.analyzer.retired.connections and (gone := self.analyzer.retired_since()):
                if retire is not None:
                    retire(gone)
                gc.collect()
        yield from self.analyzer.finish()

    def check(self) -> None:
        """Raise what was wrong with the file, after what it gave was shown."""
        if self.passed_over:
            complain(f"passed over: {first_of(self.passed_over)}")
        if self.damage is not None:
            raise click.ClickException(str(self.damage))
        frames = self.analyzer.frames
        if not frames:
            raise click.ClickException(f"{self.path}: no frames in it")
        if not self.analyzer.packets:
            kinds = ", ".join(kind for kind, _ in self.analyzer.skipped.most_common(3))
            raise click.ClickException(f"{self.path}: no RDMA packet among {plural(frames, 'frame')} ({kinds})")

    def lacks(self, what: str) -> NoReturn:
        """Raise that ``what`` is not in the file, and why that may be."""
        try:
            self.check()
        except click.ClickException as error:
            raise click.ClickException(f"no {what}; {error.message}") from None
        raise click.ClickException(f"{self.path}: no {what}")


@contextmanager
def rereadable(source: Source) -> Iterator[Source]:
    """What can be read twice: standard input is copied to a temporary file."""
    if source != "-":
        yield source
        return
    import shutil
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="rdmascope-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield copy.name
