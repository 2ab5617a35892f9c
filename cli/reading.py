"""What a capture is opened with on the command line, and a Session that shows how far it is."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from rdmascope.captures import CaptureError, Follow
from rdmascope.captures.errors import signals_to
from rdmascope.captures.read.merge import NumberOffset, Source
from rdmascope.captures.read.remote import local, stays
from rdmascope.captures.session.session import Made, Paths, Session
from rdmascope.captures.tables.saved import holds_tables, is_data_set
from rdmascope.dissect.rpcrdma.analyzer import NFS_RDMA_PORT, Options
from rdmascope.dissect.units import count, dropped_words, plural

from .options import DURATION, refuse_options
from .terminal import Meter, complain

if TYPE_CHECKING:
    from rdmascope.captures.live.session import Ending
    from rdmascope.captures.tables.condition import Condition

MAX_JOBS = 256
OUTPUTS = ("output", "save", "directory", "junit_file", "sarif_file")
"""Parameters of commands that name what is written."""


def recognition_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--port`` and ``--as``: what to take for RPC-over-RDMA."""
    command = click.option(
        "--as",
        "force",
        type=click.Choice(["rpcrdma"]),
        help="Decode every connection as RPC-over-RDMA, whatever it looks like.",
    )(command)
    return click.option(
        "--port",
        "ports",
        type=click.IntRange(1, 65535),
        multiple=True,
        metavar="PORT",
        help=f"Another service port of RPC-over-RDMA besides {NFS_RDMA_PORT}; may be repeated.",
    )(command)


jobs_option = click.option(
    "--jobs",
    type=click.IntRange(1, MAX_JOBS),
    metavar="N",
    help="Processes that analyse connections, divided by pairs of hosts; the results are those of one process.",
)
"""How many processes read one file: docs/fleets.md."""


def no_jobs_option(why: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--jobs`` of a command that is not divided: says why."""

    def refuse(ctx: click.Context, option: click.Parameter, value: object) -> None:
        if value is not None:
            raise click.UsageError(f"--jobs: {why}", ctx)

    return click.option("--jobs", hidden=True, expose_value=False, callback=refuse)


class CapturePath(click.ParamType[str]):
    """A path, a URL, or -."""

    name = "capture"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        is_data_set(path := local(value))  # Which raises CaptureError where it is none that can be read.
        return path


CAPTURE = CapturePath()
file_argument = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=CAPTURE)
"""Paths or URLs of captures, or directories of captures, all of them one capture in the order of time; or - for
standard input.  They are opened by the captures folder, which explains what is wrong with them."""


def with_packets(paths: Sequence[str]) -> tuple[str, ...]:
    """In place of saved tables the captures that they were made of; data sets as they are: see ``GivenCaptures``."""
    return tuple(capture for path in paths for capture in ((path,) if is_data_set(path) else behind(path, "packets")))


packets_argument = click.argument(
    "files",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=CAPTURE,
    callback=lambda ctx, parameter, paths: with_packets(paths),
)
"""The argument FILE of commands that read packets; for saved tables and data sets, those of their captures."""


def follow_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--follow`` and ``--idle``: read a file that is still being written."""
    command = click.option(
        "--idle",
        type=DURATION,
        metavar="TIME",
        help="With --follow: stop once the file has not grown for this long: 10s.",
    )(command)
    return click.option(
        "--follow", is_flag=True, help="The file is still being written: keep reading as it grows, until Ctrl-C."
    )(command)


def following(follow: bool, idle: int | None) -> Follow | None:
    """What the follow options ask for."""
    refuse_options((idle is not None and not follow, "--idle says when --follow ends; give both"))
    return Follow(None if idle is None else idle / 1e9) if follow else None


def analyzer_options(ports: tuple[int, ...], force: str | None, contents: bool = True) -> Options:
    return Options(ports=frozenset({NFS_RDMA_PORT, *ports}), force=force is not None, contents=contents)


@contextmanager
def stoppable(ending: Ending) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the capture, not the program."""

    def stop(number: int, _: object) -> None:
        if ending.why:
            raise KeyboardInterrupt
        ending.because(signal.Signals(number).name)

    with signals_to(stop, signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def _until_interrupted(follow: Follow | None) -> Iterator[Follow | None]:
    """While the file is followed, the first Ctrl-C ends the reading at what is written by then, not the command."""
    with _ended_early(follow is not None) as stopped:
        yield None if follow is None else Follow(follow.idle, stopped)


@contextmanager
def _ended_early(possible: bool) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was typed: the first one ends the reading, and the command shows what was found so far; the second
    ends the command."""
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True

    with signals_to(stop, *([signal.SIGINT] if possible else [])):
        yield lambda: stopped


def opened(
    paths: Sequence[str],
    ports: tuple[int, ...] = (),
    force: str | None = None,
    *,
    contents: bool = True,
    icrc: bool = False,
    streaming: bool = False,
    drops_on_page: bool = False,
    follow: Follow | None = None,
    jobs: int | None = None,
    condition: Condition | None = None,
) -> Session:
    """A pass over captures, or over saved tables where ``paths`` is one such; see ``Reading``.

    ``ports``, ``force`` and ``icrc`` ask what tables do not tell: of the captures behind them.  ``condition``: of a
    data set nothing is wanted but the RPCs that pass it.
    """
    if follow is None:
        paths = read_anew(paths, ports, force, icrc)
    if not any(map(holds_tables, paths)):
        options = analyzer_options(ports, force, contents)._replace(icrc=icrc)
        return Reading(paths, options, streaming, drops_on_page, follow=follow, jobs=jobs)
    from rdmascope.captures.tables.saved_session import open_saved_session

    if len(paths) > 1:
        raise CaptureError("saved tables stand alone, without other files")
    saved = open_saved_session(paths[0], condition)
    if ports or force or icrc or follow is not None:
        saved.lacks("what --port, --as, --icrc and --follow ask of")
    for words in saved.remarks():
        complain(words)
    return saved


def read_anew(paths: Sequence[str], ports: tuple[int, ...], force: str | None, icrc: bool = False) -> Sequence[str]:
    """In place of saved tables, which do not tell what these options ask, their captures; data sets as they are."""
    if not (ports or force or icrc) or any(map(is_data_set, paths)):
        return paths
    return captures_of(paths, "what --port, --as and --icrc ask of")


def captures_of(
    paths: Sequence[str], what: str, together: bool = False, condition: Condition | None = None
) -> tuple[str, ...]:
    """The captures that stand behind each path."""
    return tuple(capture for path in paths for capture in behind(path, what, together, condition))


def behind(path: str, what: str, together: bool = False, condition: Condition | None = None) -> tuple[str, ...]:
    """The capture itself, or those that saved tables were made of, for ``what`` tables do not hold: which is said.

    ``together``: they are read as one, so that frames have other numbers than in a data set.  ``condition``: of a data
    set only those that have RPCs which pass.  Raises CaptureError for one that asks for numbers: they are others there.
    """
    if not holds_tables(path):
        return (path,)
    from rdmascope.captures.tables.saved_tables import captures_behind, listed

    if condition is None or not is_data_set(path):
        captures = captures_behind(path, what)
    else:
        captures = _having(path, condition, what)
    words = ", as one capture with frames numbered in the order of time" if together and captures[1:] else ""
    complain(f"{path}: the tables do not hold {what}; read from {listed(captures)}{words}")
    return captures


def _having(data_set: str, condition: Condition, what: str) -> tuple[str, ...]:
    """Captures of a data set that have RPCs which pass."""
    from rdmascope.captures.fleet.batch import CapturesBehind
    from rdmascope.captures.tables.saved_session import open_saved_session

    if condition.numbered:
        words = f"{what} is in its captures, which are read as one, with other numbers"
        raise CaptureError(f"{data_set}: {words}; choose by time, client or server")
    saved, there = open_saved_session(data_set, condition), CapturesBehind(data_set)
    some = there.divided("rpcs", condition.chosen_rpcs(saved).numbers)
    captures = [capture for capture in there.captures if capture.entry.capture in some]
    if problem := next(filter(None, (capture.problem() for capture in captures)), ""):
        raise CaptureError(f"{data_set}: {problem}")
    condition.count_times_from(saved.first_time)
    return tuple(path for capture in captures for path in capture.paths)


class Reading(Session):
    """A Session with a progress bar, ended by Ctrl-C where it follows."""

    def __init__(
        self,
        paths: Paths,
        options: Options | None = None,
        streaming: bool = False,
        drops_on_page: bool = False,
        follow: Follow | None = None,
        jobs: int | None = None,
        before: NumberOffset | None = None,
    ) -> None:
        """``streaming``: the command prints while it reads; ``drops_on_page``: and what the capture lost, on a terminal
        that need not be said twice."""
        super().__init__(paths, options, follow=follow, jobs=jobs, before=before)
        self._streaming = streaming
        self._drops_on_page = drops_on_page
        self._warned = False

    def _read(self, line: Callable[[Source], Iterator[Made]]) -> Iterator[Made]:
        before = gc.isenabled()
        gc.disable()  # Until all is read: what the command keeps in the meantime is no garbage.
        try:
            with (
                _until_interrupted(self.follow) as self.follow,
                _ended_early(self._can_end_early()) as stopped,
                closing(Meter(self.path, self._streaming)) as progress,
            ):

                def at(position: int, size: int | None, frames: int) -> None:
                    if self.follow is not None:
                        sys.stdout.flush()
                    progress.at(position, size, f"{count(frames)} frames")
                    if stopped():
                        raise CaptureError(f"{self.path}: stopped by Ctrl-C after {plural(frames, 'frame')}")

                self._progress = at
                yield from super()._read(line)
            if not self._warned:  # A second pass has no news.
                self._warned = True
                twice = self._drops_on_page and sys.stdout.isatty() and sys.stderr.isatty()
                for words in () if twice else dropped_words(self.analyzer.dropped_frames, self.analyzer.frames):
                    complain(words)
        finally:
            if "duckdb" not in sys.modules:  # Which complains about what is left of it.
                gc.freeze()  # Nor will it be garbage: looking through it takes as long as a tenth of the reading.
            if before:
                gc.enable()

    def _can_end_early(self) -> bool:
        """It is a file, not followed, of a command that neither prints as it reads nor writes what would look whole;
        the main thread gets signals."""
        context = click.get_current_context(silent=True)
        if context is not None and any(context.params.get(name) for name in OUTPUTS):
            return False
        main = threading.current_thread() is threading.main_thread()
        return main and self.follow is None and not self._streaming and all(map(stays, self.paths))

    def check(self) -> None:
        for words in self.remarks():
            complain(words)
        super().check()
