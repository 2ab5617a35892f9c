"""Sections of the page of a data set: hosts over time, and the slowest RPCs with the commands that cut them out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from math import log2

import numpy as np

from rdmascope.captures.tables.fleet_sums import HostInterval, SummedSession
from rdmascope.dissect.diagnosis.facts import label
from rdmascope.dissect.measure.statistics import SlowRpc
from rdmascope.dissect.units import at_least, count, duration, plural

from .examples import tag, text

MAX_HOSTS = 50
"""Of the heat map: those on which RPCs waited longest."""
MAX_COLUMNS = 96
"""Of the heat map: hours, or several together."""
WIDTH, HEIGHT, NAMES = 9, 16, 160
"""Pixels: of a cell, and of the names before them."""


def fleet_sections(session: SummedSession, slowest: list[SlowRpc]) -> Iterator[tuple[str, str, str]]:
    """Id, heading and HTML of each section."""
    width, cells = session.hosts_over_time(MAX_COLUMNS)
    if cells:
        yield "hosts", "Hosts over time", _heat_map(width, cells)
    if slowest:
        yield "worst", "The slowest, and what cuts them out", _worst(session, slowest)


def _heat_map(width: int, cells: list[HostInterval]) -> str:
    waited: dict[str, int] = {}
    for cell in cells:
        waited[cell.host] = waited.get(cell.host, 0) + cell.waited
    hosts = sorted(waited, key=lambda host: -waited[host])
    rows = {host: row for row, host in enumerate(hosts[:MAX_HOSTS])}
    first = min(cell.begin for cell in cells)
    columns = 1 + max((cell.begin - first) // width for cell in cells)
    longest = max(log2(max(2, cell.p99)) for cell in cells)
    drawn = []
    for cell in cells:
        if cell.host not in rows:
            continue
        begun = np.datetime_as_string(np.datetime64(cell.begin, "ns"), "h").replace("T", " ")
        words = (
            f"{cell.host}, {begun}:00 UTC: {plural(cell.calls, 'RPC')}, 99% within {duration(cell.p99)}, "
            f"{plural(cell.errors, 'error')}"
        )
        drawn.append(
            tag("rect", tag("title", text(words)), x=NAMES + (cell.begin - first) // width * WIDTH,
                y=rows[cell.host] * HEIGHT, width=WIDTH - 1, height=HEIGHT - 1,
                fill_opacity=f"{max(0.04, (log2(max(2, cell.p99)) / longest) ** 4):.2f}")
        )  # fmt: skip
    names = [tag("text", text(host), x=0, y=row * HEIGHT + HEIGHT - 4, class_="host") for host, row in rows.items()]
    size = {"width": NAMES + columns * WIDTH, "height": len(rows) * HEIGHT}
    picture = tag("svg", *names, *drawn, role="img", aria_label="Heat map of hosts over time", class_="heat", **size)
    hours = width // 3_600_000_000_000
    more = f"; {plural(len(hosts) - MAX_HOSTS, 'more host')} with less are left out" if len(hosts) > MAX_HOSTS else ""
    caption = (
        f"Hosts, those first on which RPCs waited longest, by {plural(hours, 'hour')} (UTC): the darker, the longer "
        f"the time within which 99% of the RPCs were{more}. rdmascope report --by host,day has numbers."
    )
    return tag("figure", tag("div", picture, class_="wide"), tag("figcaption", text(caption)))


def _worst(session: SummedSession, slowest: list[SlowRpc]) -> str:
    path = session.paths[0]
    rows = []
    for slow_rpc in slowest:
        cut = [
            "rdmascope",
            "export",
            "--to",
            "capture",
            path,
            "--rpc",
            str(slow_rpc.number),
            "-o",
            f"rpc-{slow_rpc.number}.pcapng",
        ]
        cells = (
            count(slow_rpc.number), text(session.host(slow_rpc.connection) or ""), text(label(slow_rpc.key)),
            text(at_least(slow_rpc.waiting, slow_rpc.latency is None)), tag("code", text(shlex.join(cut))),
        )  # fmt: skip
        rows.append(tag("tr", *(tag("td", cell) for cell in cells)))
    head = tag("tr", *(tag("th", name, scope="col") for name in ("RPC", "host", "procedure", "latency", "its packets")))
    return tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="wide")
