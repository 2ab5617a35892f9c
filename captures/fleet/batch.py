"""The captures of a fleet, analysed by several processes; what a data set has already is not analysed again."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import NamedTuple

from rdmascope.dissect import plugged
from rdmascope.dissect.rpcrdma.analyzer import Options

from ..errors import CaptureError, words_of
from ..extras import need
from ..plugins import load_plugins
from ..read.urls import refuse_url
from ..tables.saved import MANIFEST
from ..tables.saved_tables import ManifestEntry, entries
from ..write.stale_tempdirs import remove_left
from .analysis import WORK, analyse, described, failed
from .units import CaptureUnit

ATTEMPTS = 2
"""At a capture on which a process ends without a result."""


class BatchCapture(NamedTuple):
    """What became of a capture."""

    unit: CaptureUnit
    entry: ManifestEntry
    known: bool
    """The data set had it."""


def prepare(data_set: str) -> None:
    """Make a data set where there is none.  Raises CaptureError where something else is there, or DuckDB is not."""
    need("duckdb")
    refuse_url(data_set)
    path = Path(data_set)
    if path.exists() and not (path.is_dir() and ((path / MANIFEST).is_dir() or not any(path.iterdir()))):
        raise CaptureError(f"{data_set}: is there, and is no data set")
    try:
        (path / MANIFEST).mkdir(parents=True, exist_ok=True)
        remove_left(str(path / WORK))
    except OSError as error:
        raise CaptureError(f"{data_set}: {error.strerror}") from None


def divided(
    units: Sequence[CaptureUnit], data_set: str, options: Options
) -> tuple[list[BatchCapture], list[CaptureUnit]]:
    """Captures that the data set has, as their files' names, sizes and times say, and the others."""
    there = {frozenset(one.paths): one for one in entries(data_set)}
    known, others = [], []
    for unit in units:
        entry = there.get(frozenset(unit.paths))
        if entry is not None and not entry.problem and entry.options == described(options) and entry.unchanged():
            known.append(BatchCapture(unit, entry, True))
        else:
            others.append(unit)
    return known, others


def batch(units: Sequence[CaptureUnit], data_set: str, options: Options, jobs: int) -> Iterator[BatchCapture]:
    """Analyse captures with so many processes; each as it is done, first those that are known."""
    prepare(data_set)
    known, others = divided(units, data_set, options)
    yield from known
    waiting = deque((unit, 1) for unit in others)
    context = multiprocessing.get_context("spawn")
    running: dict[int, tuple[SpawnProcess, Connection, CaptureUnit, int]] = {}
    reported: set[str] = set()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                unit, attempt = waiting.popleft()
                result, given = context.Pipe(duplex=False)
                process = context.Process(target=_analyse, args=(given, unit, data_set, options))
                with _ctrl_c_is_ours():
                    process.start()
                given.close()
                running[process.sentinel] = process, result, unit, attempt
            for sentinel in wait([*running]):
                assert isinstance(sentinel, int)
                process, result, unit, attempt = running.pop(sentinel)
                process.join()
                found = _received(result)
                if found is not None:
                    entry, failures = found
                    for words in set(failures) - reported:
                        plugged.report[-1](words)
                    reported.update(failures)
                    yield BatchCapture(unit, entry, frozenset(entry.paths) != frozenset(unit.paths))
                elif attempt < ATTEMPTS:
                    waiting.append((unit, attempt + 1))
                else:
                    problem = f"{unit.paths[0]}: analysing it ended with status {process.exitcode}, {ATTEMPTS} times"
                    yield BatchCapture(unit, failed(unit, data_set, options, problem), False)
    finally:
        for process, *_ in running.values():
            process.terminate()
            process.join()
        remove_left(str(Path(data_set, WORK)))


@contextmanager
def _ctrl_c_is_ours() -> Iterator[None]:
    """Processes that are begun here do not get it: this one ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def load_quietly(failures: list[str], files: Iterable[str] = ()) -> None:
    """Plug-ins, in a process that another one began, which has loaded them and said what does not load; what fails from
    now on is added to ``failures``."""
    plugged.report[:] = [lambda words: None]
    load_plugins(files)
    plugged.report[:] = [failures.append]


def _analyse(given: Connection, unit: CaptureUnit, data_set: str, options: Options) -> None:
    """In a process of its own; an error of the program costs this capture only."""
    failures: list[str] = []
    try:
        load_quietly(failures)
        entry = analyse(unit, data_set, options)
    except Exception as error:
        words = words_of(error) or f"internal error, please report it: {type(error).__name__}: {error}"
        try:
            entry = failed(unit, data_set, options, f"{unit.paths[0]}: {words}")
        except CaptureError:  # Nothing can be noted there, which the process that began this one finds, too.
            return
    given.send((entry, failures))


def _received(result: Connection) -> tuple[ManifestEntry, list[str]] | None:
    """What a process gave that has ended, and which plug-ins failed there."""
    with result:
        try:
            found: tuple[ManifestEntry, list[str]] | None = result.recv()
        except EOFError:
            return None
    return found
