"""What the process that looks closer does for connections and files: the pictures of ``report``, ``transport`` and
``files``, of one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import RenderableType

from rdmascope.dissect.diagnosis.facts import Gathered
from rdmascope.dissect.measure.files import FileTable
from rdmascope.dissect.rpcrdma.eviction import Evicted

from ..views import files as file_views
from ..views.report import connections_view
from ..views.transport import connection_view
from .filling import BrowsedCapture
from .nodes import Details, nodes_of


def connection_details(capture: BrowsedCapture, number: int, width: int) -> Iterator[Details | None]:
    """What its ends agreed on, what they sent, and how the transport did; nothing where it was evicted."""
    capture = capture.holding("connections", number)
    session = capture.session()
    gathered = Gathered()
    for table in session.tables():
        gathered.add_table(table)
        del table
        yield None
    found = [one for one in session.analyzer.conversations if one.connection.number == number]
    if found and capture.numbered:
        health = session.analyzer.health(number)
        parts = (
            connections_view(found, gathered.statistics, Evicted()),
            connection_view(found[0].connection, health, (), width),
        )
        yield Details("connections", number, [*nodes_of(parts, width)], [], [])


def file_details(capture: BrowsedCapture, number: int, width: int) -> Iterator[Details | None]:
    """Its line of ``files``, what there is to remark, and its earlier names."""
    capture = capture.holding("files", number)
    before = 0 if capture.behind is None else capture.behind.before.files
    session = capture.session()
    files = FileTable(session.mounts)
    for table in session.tables():
        for _ in files.add_table(table, None):
            pass
        del table
        yield None
    for file in files:
        if before + file.number == number:
            parts: tuple[RenderableType, ...] = (
                file_views.grid(files, [file], width),
                *file_views.notes(files, file),
                *file_views.earlier(files, [file], session.first_time),
            )
            yield Details("files", number, [*nodes_of(parts, width)], [], [])


NOUN_JOBS: dict[str, Callable[..., Iterator[Any]]] = {"connection": connection_details, "file": file_details}
"""By the name under which they are asked for."""
