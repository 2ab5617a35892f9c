"""The captures of a fleet, analysed by the workers of a Dask cluster; Dask is loaded here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from rdmascope.dissect.rpcrdma.analyzer import Options

from ..errors import CaptureError
from ..extras import need
from .analysis import analyse, failed, note
from .batch import ATTEMPTS, BatchCapture, divided, prepare
from .stored import analyse_to_url
from .units import CaptureUnit

PATIENCE = 30
"""Seconds in which a scheduler has to answer."""


def on_cluster(
    units: Sequence[CaptureUnit], data_set: str, options: Options, address: str, url: str | None = None
) -> Iterator[BatchCapture]:
    """As ``batch``, by the workers of the cluster whose scheduler is at ``address``.

    All of them reach captures and data set under the same paths.  With ``url`` they put the tables into a store, and
    ``data_set`` is a folder that has its manifest.  Raises CaptureError where there is no such cluster.
    """
    need("distributed")
    from distributed import Client, as_completed

    prepare(data_set)
    data_set = os.path.abspath(data_set)
    known, others = divided(units, data_set, options)
    yield from known
    try:
        client = Client(address, timeout=PATIENCE)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:
        raise CaptureError(f"{address}: no Dask scheduler answers: {error}") from None
    with client:
        work, target = (analyse, data_set) if url is None else (analyse_to_url, url)
        given = {client.submit(work, unit, target, options, pure=False, retries=ATTEMPTS - 1): unit for unit in others}
        for future in as_completed(list(given)):  # type: ignore[no-untyped-call]
            unit, problem = given.pop(future), future.exception()
            if problem is None:
                entry = future.result()
                if url is not None:
                    note(data_set, entry)
                yield BatchCapture(unit, entry, frozenset(entry.paths) != frozenset(unit.paths))
            else:
                words = f"{unit.paths[0]}: analysing it failed on the cluster: {type(problem).__name__}: {problem}"
                yield BatchCapture(unit, failed(unit, data_set, options, words), False)
