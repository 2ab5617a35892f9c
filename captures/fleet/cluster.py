"""The captures of a fleet, analysed by the workers of a Dask cluster; Dask is loaded here and nowhere else."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rdmascope.dissect import plugged
from rdmascope.dissect.rpcrdma.analyzer import Options

from ..errors import CaptureError, need
from ..plugins import FILES
from ..read.remote import is_url
from ..tables.data_set import CaptureEntry
from ..write.stale_tempdirs import FolderOfProcess
from .batch import (
    ATTEMPTS,
    BatchCapture,
    CaptureUnit,
    analyse,
    compacted,
    divided,
    failed,
    load_quietly,
    prepare,
)

PATIENCE = 30
"""Seconds in which a scheduler has to answer."""


def on_cluster(units: Sequence[CaptureUnit], data_set: str, options: Options, address: str) -> Iterator[BatchCapture]:
    """As ``batch``, by the workers of the cluster whose scheduler is at ``address``.

    All of them reach captures and data set under the same paths or URLs.  Raises CaptureError where there is no such
    cluster.
    """
    need("distributed")
    prepare(data_set)
    data_set = data_set if is_url(data_set) else os.path.abspath(data_set)
    known, others = divided(units, data_set, options)
    yield from known
    yield from compacted(_by_workers(others, data_set, options, address), data_set)


def _by_workers(units: Sequence[CaptureUnit], data_set: str, options: Options, address: str) -> Iterator[BatchCapture]:
    from distributed import Client, as_completed

    try:
        client = Client(address, timeout=PATIENCE)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:
        raise CaptureError(f"{address}: no Dask scheduler answers: {error}") from None
    with client:
        plugins = [Path(file) for file in os.environ.get(FILES, "").split(os.pathsep) if file]
        texts = [(file.name, file.read_bytes()) for file in plugins]
        given = {
            client.submit(_analysed, texts, unit, data_set, options, pure=False, retries=ATTEMPTS - 1): unit
            for unit in units
        }
        reported: set[str] = set()
        for future in as_completed(list(given)):  # type: ignore[no-untyped-call]
            unit, problem = given.pop(future), future.exception()
            if problem is None:
                entry, failures = future.result()
                for words in set(failures) - reported:
                    plugged.report[-1](words)
                reported.update(failures)
                yield BatchCapture(unit, entry, frozenset(entry.paths) != frozenset(unit.paths))
            else:
                words = f"{unit.paths[0]}: analysing it failed on the cluster: {type(problem).__name__}: {problem}"
                yield BatchCapture(unit, failed(unit, data_set, options, words), False)


def _analysed(
    plugins: list[tuple[str, bytes]], unit: CaptureUnit, data_set: str, options: Options
) -> tuple[CaptureEntry, list[str]]:
    """On a worker: the entry, and which plug-ins failed.

    ``plugins`` are names and texts of files.  An interpreter of its own loads them: in the worker they would stay, and
    judge for its next client.
    """
    if not plugins:
        failures: list[str] = []
        load_quietly(failures)  # Those that are installed where the worker runs.
        return analyse(unit, data_set, options), failures
    given = pickle.dumps((plugins, unit, data_set, options))
    program = [sys.executable, "-c", f"from {__name__} import _alone; _alone()"]
    done = subprocess.run(program, input=given, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise RuntimeError(f"the interpreter with plug-ins ended with status {done.returncode}")
    found: tuple[CaptureEntry, list[str]] | Exception = pickle.loads(done.stdout)
    if isinstance(found, Exception):
        raise found
    return found


def _alone() -> None:
    """What ``_analysed`` begins: reads what it is given, and writes what it found or what was raised."""
    answer = os.dup(1)
    os.dup2(2, 1)  # A plug-in may print.
    plugins, unit, data_set, options = pickle.load(sys.stdin.buffer)
    failures: list[str] = []
    found: tuple[CaptureEntry, list[str]] | Exception
    try:
        with FolderOfProcess() as folder:
            files = [folder / str(number) / name for number, (name, _) in enumerate(plugins)]
            for file, (_, text) in zip(files, plugins, strict=True):
                file.parent.mkdir()
                file.write_bytes(text)
            load_quietly(failures, map(str, files))
            found = analyse(unit, data_set, options), failures
    except Exception as error:
        found = error
    with os.fdopen(answer, "wb") as output:
        pickle.dump(found, output)
