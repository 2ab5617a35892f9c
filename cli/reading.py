"""From a capture file to RPCs: what every command does first."""

from __future__ import annotations

import gc
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from rdmascope.captures import CaptureError, open_capture
from rdmascope.dissect.analyzer import NFS_RDMA_PORT, Analyzer, Options
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.rpcs import Rpc

from .terminal import meter
from .units import count, plural


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


file_argument = click.argument("file", metavar="FILE")
"""A path, or - for standard input; opened by the captures folder, which explains what is wrong with it."""


def analyzer_options(ports: tuple[int, ...], force: str | None, contents: bool = True) -> Options:
    return Options(ports=frozenset({NFS_RDMA_PORT, *ports}), force=force is not None, contents=contents)


class Reading:
    """One pass over a capture.

    Damage in the file does not raise while there is something to show: it waits in ``damage``, and ``check()``
    raises it at the end.
    """

    def __init__(self, path: str, options: Options, streaming: bool = False) -> None:
        """``streaming``: the command prints while it reads."""
        self.path = path
        self.streaming = streaming
        self.analyzer = Analyzer(options)
        self.damage: CaptureError | None = None

    @property
    def first_time(self) -> int:
        """Nanoseconds; of the first frame, 0 before there is one."""
        return self.analyzer.first_time or 0

    def batches(self) -> Iterator[FrameBatch]:
        """The batches of frames, up to the damage if there is any."""
        frames = 0
        # The nouns hold no cycles, and looking for some takes longer than all the decoding.
        gc.disable()
        try:
            with meter(self.path, self.streaming) as progress, open_capture(self.path) as capture:
                for batch in capture.batches():
                    frames += len(batch)
                    yield batch
                    progress.at(capture.position, capture.size, f"{count(frames)} frames")
        except CaptureError as error:
            if not frames:
                raise click.ClickException(str(error)) from None
            self.damage = error

    def rpcs(self) -> Iterator[Rpc]:
        """RPCs as they end, at the end those that never did."""
        feed = self.analyzer.feed
        for batch in self.batches():
            yield from feed(batch)
        yield from self.analyzer.finish()

    def check(self) -> None:
        """Raise what was wrong with the file, after what it gave was shown."""
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
def rereadable(path: str) -> Iterator[str]:
    """A path that can be read twice: standard input is copied to a temporary file."""
    if path != "-":
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="rdmascope-") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield copy.name
