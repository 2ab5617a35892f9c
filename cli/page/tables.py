"""The tables by procedure, client, file and connection, and pieces of HTML, in which nothing from the wire acts."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rdmascope.dissect.arrays import Int64s
from rdmascope.dissect.diagnosis.breakdown import OTHERS, Breakdown, Groups
from rdmascope.dissect.diagnosis.facts import Facts, label
from rdmascope.dissect.measure.time_cells import summed, widened
from rdmascope.dissect.percentiles import Distribution
from rdmascope.dissect.units import at_least, count, percent, plural, size

from .examples import shortened, tag, text
from .over_time import PERCENTS, edges, fitted, percentile

INTERVALS = 120
"""At most, in which a span is selected."""
MAX_CELLS = 40_000
"""Of all tables together; with more, intervals are wider."""
FEWEST_INTERVALS = 15
ROWS = {"procedures": 100, "clients": 100, "files": 200, "connections": 200}
"""Rows of each table at most."""
COLUMNS = (
    ("RPCs", "calls"),
    ("errors", "failed"),
    ("time", "waited"),
    ("median", "p50"),
    ("95%", "p95"),
    ("99%", "p99"),
    ("max", "max"),
    ("to server", "call_bytes"),
    ("to client", "reply_bytes"),
)
"""Heading and key; the page's script has the same keys in the same order."""
_CELL = (("u2", 0), ("u2", 1), ("i2", 2), ("u4", 3), ("u4", 4), ("f4", 5), ("f4", 6), ("f4", 7))
"""How the columns of cells are packed, little-endian."""


@dataclass(frozen=True, slots=True)
class Breaking:
    """One table: the names of its rows, the most time first, and their cells, by row."""

    id: str
    title: str
    noun: str
    names: list[str]
    cells: Int64s
    width: int
    others: int
    """Rows that are one, the last; 0 where none are."""
    exact: Mapping[int, Distribution | None]
    """Latencies by row, where they are known better than by cells."""
    hung: Mapping[int, int]
    """By row: nanoseconds for which a call without a reply is outstanding, the longest."""


def breakings(breakdown: Breakdown, facts: Facts) -> list[Breaking]:
    """The tables of a page."""
    breakdown.finish()
    procedures = {code: label(key) for key, code in breakdown.procedures.codes.items()}
    exact = {label(procedure.key): procedure.latency() for procedure in facts.procedures}
    files = {
        code: "(names no file)" if key is None else breakdown.path(key) for key, code in breakdown.files.codes.items()
    }
    clients = {code: key for key, code in breakdown.clients.codes.items()}
    connections = {}
    hung: dict[str, int] = {}
    waiting = {one.connection: one.waiting for one in reversed(facts.hung)}
    for number in waiting:
        client = facts.by_number[number].connection.endpoints[0].address if number in facts.by_number else ""
        hung[client] = max(hung.get(client, 0), waiting[number])
    hung |= {facts.paths[one.number]: one.waiting for one in reversed(facts.hung) if one.number in facts.paths}
    for key, code in breakdown.connections.codes.items():
        port = f":{key.port}" if key.port else ""
        server = f"[{key.server}]" if port and ":" in key.server else key.server
        connections[code] = f"{key.number}  {key.client} → {server}{port}"
        hung[connections[code]] = waiting.get(key.number, 0)
    return [
        _breaking("procedures", "By procedure", "procedure", breakdown.procedures, procedures, exact),
        _breaking("clients", "By client", "client", breakdown.clients, clients, hung=hung),
        _breaking("files", "By file", "file", breakdown.files, files, hung=hung),
        _breaking("connections", "By connection", "connection", breakdown.connections, connections, hung=hung),
    ]


def _breaking(
    id: str,
    title: str,
    noun: str,
    groups: Groups[Any],
    names: Mapping[int, str],
    exact: Mapping[str, Distribution | None] | None = None,
    hung: Mapping[str, int] | None = None,
) -> Breaking:
    cells = groups.cells.rows.copy()
    waited: dict[str, tuple[int, int]] = {}
    by_code = np.zeros((max([OTHERS, *names], default=0) + 1, 2), np.int64)
    if len(cells):
        by_code = np.zeros((int(max(cells[:, 0].max(), len(by_code) - 1)) + 1, 2), np.int64)
        np.add.at(by_code, cells[:, 0], cells[:, [7, 3]])
    for code, name in names.items():
        before = waited.get(name, (0, 0))
        waited[name] = before[0] + int(by_code[code, 0]), before[1] + int(by_code[code, 1])
    ranked = sorted(waited, key=lambda name: waited[name], reverse=True)
    shown = ranked[: ROWS[id]]
    others = len(ranked) - len(shown) + groups.merged
    rows = {name: row for row, name in enumerate(shown)}
    places = np.full(len(by_code), len(shown), np.int64)
    for code, name in names.items():
        places[code] = rows.get(name, len(shown))
    cells[:, 0] = places[cells[:, 0]]
    if others:
        shown = [*shown, f"({plural(others, f'other {noun}')})"]
    fit, width = fitted(summed(cells), groups.cells.width, INTERVALS)
    known = {rows[name]: one for name, one in (exact or {}).items() if name in rows}
    open_calls = {rows[name]: waiting for name, waiting in (hung or {}).items() if name in rows and waiting}
    return Breaking(id, title, noun, shown, fit, width, others, known, open_calls)


def same_width(tables: list[Breaking]) -> list[Breaking]:
    """All in the same intervals, and so that there are not too many cells."""
    width = max(table.width for table in tables)
    doublings = [(width // table.width).bit_length() - 1 for table in tables]
    while True:
        cells = [widened(one.cells, more) for one, more in zip(tables, doublings, strict=True)]
        last = max((int(cell[:, 1].max()) for cell in cells if len(cell)), default=0)
        if sum(map(len, cells)) <= MAX_CELLS or last < FEWEST_INTERVALS:
            break
        doublings = [more + 1 for more in doublings]
    return [
        Breaking(one.id, one.title, one.noun, one.names, mine, one.width << more, one.others, one.exact, one.hung)
        for one, mine, more in zip(tables, cells, doublings, strict=True)
    ]


def cell_data(table: Breaking) -> dict[str, Any]:
    """For the page's script: its columns, packed."""
    packed = [
        base64.b64encode(np.minimum(table.cells[:, column], _highest(kind)).astype(f"<{kind}").tobytes()).decode()
        for kind, column in _CELL
    ]
    return {"id": table.id, "rows": len(table.names), "columns": packed}


def _highest(kind: str) -> int:
    return int(np.iinfo(kind).max) if kind[0] != "f" else 1 << 62


def table_html(table: Breaking, total_waited: int) -> str:
    """Sorted by the time that RPCs took, with what sorts and filters it."""
    heads = "".join(
        tag("th", tag("button", text(heading), type="button"), scope="col", data_key=key, class_="number",
            aria_sort="descending" if key == "waited" else "none")
        for heading, key in COLUMNS
    )  # fmt: skip
    first = tag("th", tag("button", text(table.noun), type="button"), scope="col", data_key="name", aria_sort="none")
    body = "".join(_row(table, row, total_waited) for row in range(len(table.names)))
    caption = f"RPCs, latencies and bytes of each {table.noun}"
    filter_id = f"filter-{table.id}"
    search = tag(
        "p",
        tag("label", text(f"Only {table.noun}s with"), for_=filter_id),
        f' <input type="search" id="{filter_id}" autocomplete="off" spellcheck="false" data-table="{table.id}">',
        tag("output", for_=filter_id, id=f"shown-{table.id}"),
        class_="filter",
    )
    made = tag(
        "table",
        tag("caption", text(caption)),
        tag("thead", tag("tr", first, heads)),
        tag("tbody", body),
        id=table.id,
        class_="sortable",
    )
    return search + tag("div", made, class_="wide", tabindex="0", role="region", aria_label=caption)


def _row(table: Breaking, row: int, total_waited: int) -> str:
    cells = table.cells[table.cells[:, 0] == row]
    calls, failed, up, down, waited = (int(cells[:, column].sum()) for column in range(3, 8))
    exact = table.exact.get(row)
    latencies = _latencies(cells, exact)
    if exact is None and row in table.hung:
        # Cells know latencies to within 7 %.
        longest = table.hung[row]
        bounds = [value >= 0.93 * longest for value in latencies]
        latencies = [min(value, longest) if bound else value for value, bound in zip(latencies, bounds, strict=True)]
    else:
        bounds = [exact is not None and exact.is_bound(int(value)) for value in latencies]
    values: list[tuple[float, str]] = [
        (calls, count(calls)),
        (failed, count(failed) if failed else "–"),
        (waited, percent(waited / total_waited) if total_waited and waited else "–"),
        *(
            (value, at_least(value, is_bound) if value >= 0 else "–")
            for value, is_bound in zip(latencies, bounds, strict=True)
        ),
        (up, size(up)),
        (down, size(down)),
    ]
    return tag(
        "tr",
        tag("th", text(shortened(table.names[row])), scope="row"),
        *(tag("td", text(shown), data_v=f"{value:.10g}") for value, shown in values),
        data_row=row,
        class_="others" if table.others and row == len(table.names) - 1 else None,
    )


def _latencies(cells: Int64s, exact: Distribution | None) -> list[float]:
    """Median, 95%, 99% and maximum; -1 for none."""
    if exact is not None:
        return [exact.median, exact.p95, exact.p99, exact.maximum]
    bins, inverse = np.unique(cells[:, 2], return_inverse=True)
    counts = np.bincount(inverse, cells[:, 3], len(bins)).astype(np.int64)
    known = bins >= 0
    bins, counts = bins[known], counts[known]
    if not len(bins):
        return [-1.0] * 4
    return [*(percentile(bins, counts, one) for one in PERCENTS), float(edges(bins[-1:] + 1)[0])]
