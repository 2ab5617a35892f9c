"""The page of ``rdmascope report -o`` and ``rdmascope.write_page``: everything that was gathered, as one HTML document
that loads nothing. For a data set it has hosts over time, and the slowest RPCs with the commands that cut them out.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rdmascope.captures.errors import need
from rdmascope.captures.session.grouping import RpcGrouping
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import Condition
from rdmascope.captures.tables.saved import is_data_set
from rdmascope.captures.write.output import check_outputs, write_output
from rdmascope.dissect.audit.auditor import Result, who
from rdmascope.dissect.audit.rule import Finding, Rule, facts
from rdmascope.dissect.diagnosis.detectors.conformance import TOLERATED
from rdmascope.dissect.diagnosis.facts import Diagnosis, Facts, Statement, diagnose, label
from rdmascope.dissect.measure.call_groups import FAIL, PASS, UNDECIDABLE, ServiceLevel, ServiceLevelCounts
from rdmascope.dissect.measure.statistics import SlowRpc, undecoded
from rdmascope.dissect.transport.connection import ENDS
from rdmascope.dissect.units import at_least, count, duration, moment, percent, plural

from ..views import report as report_views
from ..views.diagnosis import CERTAIN, NOTHING, counted, headline_view, note_lines, shared_words
from .examples import (
    ShownRpc,
    data_script,
    details,
    example_html,
    listed,
    of_rich,
    reference_html,
    shortened,
    tag,
    text,
    waterfall_html,
)
from .over_time import (
    Breaking,
    Charts,
    PageFacts,
    breakings,
    cell_data,
    library,
    peak_series,
    retransmissions,
    same_width,
    series,
    table_html,
)

if TYPE_CHECKING:
    from rdmascope.captures.library import Capture
    from rdmascope.captures.tables.fleet_sums import HostInterval, SummedSession  # It takes long to load.

MAX_HOSTS = 50
"""Rows of the heat map: the hosts on which RPCs waited longest."""
MAX_COLUMNS = 96
"""Columns of the heat map: hours, or several together."""
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


MAX_RULES = 40
MAX_ENDS = 8
"""Ends listed for a rule."""
NOTE = 3
"""The ``worst`` of a tally with nothing worse than a note."""
LEVELS = {"MUST": "problem", "SHOULD": "warning", "STATED": "note"}


def diagnosis_html(diagnosis: Diagnosis, shown: Collection[int]) -> str:
    """``shown``: numbers of the RPCs that the page has in full."""
    if not diagnosis.statements:
        return tag("p", text(NOTHING[0].upper() + NOTHING[1:] + "."), class_="healthy")
    return tag(
        "ol", *(tag("li", _statement(statement, shown)) for statement in diagnosis.statements), class_="statements"
    )


def _statement(statement: Statement, shown: Collection[int]) -> str:
    cause = statement.cause
    words = shared_words(statement)
    shared = f" ({words})" if words else ""
    lines = [text(shortened(line)) for line in cause.evidence]
    if cause.since is not None:
        lines.append(text(f"since {moment(cause.since)}"))
    if cause.rpcs:
        lines.append(f"{'RPC' if len(cause.rpcs) == 1 else 'RPCs'} {_numbers(cause.rpcs, shown)}")
    if cause.frames:
        lines.append(text(f"{'frame' if len(cause.frames) == 1 else 'frames'} {', '.join(map(str, cause.frames))}"))
    if cause.confidence < CERTAIN:
        lines.append(text(f"confidence {percent(cause.confidence)}"))
    lines += [text(f"weakened: {why}") for why in cause.weakened_by]
    explained = details(
        "What it means, and what to look at next",
        tag("p", text(statement.explanation)),
        listed(text(step) for step in statement.next_steps),
    )
    return "".join(
        (
            tag(
                "h3",
                tag("span", text(statement.severity.value), class_=f"badge {statement.severity.value}"),
                " ",
                text(statement.title),
            ),
            tag("p", text(shortened(cause.text) + shared), class_="cause"),
            listed(lines, class_="evidence"),
            explained,
        )
    )


def _numbers(numbers: Iterable[int], shown: Collection[int]) -> str:
    return ", ".join(
        tag("a", str(number), href=f"#rpc-{number}") if number in shown else str(number) for number in numbers
    )


def audit_html(result: Result | None, shown: Collection[int]) -> str:
    """The rules that were broken, the worst first; None: not judged."""
    if result is None:
        return tag(
            "p",
            "Not judged here: ",
            tag("code", "rdmascope audit FILE"),
            " checks both ends against the specifications.",
        )
    if not result.connections:
        return tag("p", "There is no RPC-over-RDMA connection to judge.")
    broken = [
        (min(tally.worst for _, tally in tallies if tally.violated), rule)
        for rule, tallies in result.by_rule.items()
        if any(tally.violated for _, tally in tallies)
    ]
    judged = sum(tally.opportunities for tally in result.auditor.tallies.values())
    head = f"{count(judged)} checks by {plural(len(result.auditor.rules), 'rule')}: "
    if not broken:
        return tag("p", text(head + "no violation."), class_="healthy")
    head += f"{plural(result.violations, 'violation')}, {plural(result.notes, 'note')}."
    ranked = sorted(broken, key=lambda ranking: (ranking[0], -result.times(ranking[1]), ranking[1]))
    parts = [tag("li", _rule(result, result.auditor.rules[rule], worst, shown)) for worst, rule in ranked[:MAX_RULES]]
    rest = len(ranked) - len(parts)
    more = tag("p", text(f"And {plural(rest, 'rule')} more: rdmascope audit FILE has all.")) if rest else ""
    return tag("p", text(head)) + tag("ol", *parts, class_="statements") + more


def _rule(result: Result, rule: Rule, worst: int, shown: Collection[int]) -> str:
    level = rule.level.value
    badge = ("note", "note") if worst == NOTE or rule.id in TOLERATED else (level, LEVELS.get(level, "note"))
    ends = [(key, tally) for key, tally in result.by_rule[rule.id] if tally.violated]
    lines = []
    for key, tally in ends[:MAX_ENDS]:
        number = f"{count(tally.violated)} of {count(tally.opportunities)}"
        connection = result.auditor.connections.get(key.connection)
        where = f"{ENDS[key.endpoint]}s of earlier connections"
        if connection is not None:
            where = f"{who(connection, key.endpoint)}, connection {key.connection}"
        lines.append(text(f"{where}: {number}") + listed(_finding(example, shown) for example in tally.examples[:2]))
    if len(ends) > MAX_ENDS:
        lines.append(text(f"{plural(len(ends) - MAX_ENDS, 'end')} more"))
    explained = details(
        "What the rule says",
        tag("dl", *(tag("dt", text(name)) + tag("dd", text(words)) for name, words in facts(rule))),
    )
    return "".join(
        (
            tag("h3", tag("span", text(badge[0]), class_=f"badge {badge[1]}"), " ", text(rule.title)),
            tag(
                "p",
                tag("code", text(rule.id)),
                text(f" ({rule.cited}), {plural(result.times(rule.id), 'time')}"),
                class_="cause",
            ),
            listed(lines, class_="evidence"),
            explained,
        )
    )


def _finding(finding: Finding, shown: Collection[int]) -> str:
    frames = ", ".join(map(str, finding.frames))
    where = text(f"frame {frames}" if len(finding.frames) == 1 else f"frames {frames}" if frames else "no frame")
    if finding.rpc is not None:
        where += f", RPC {_numbers([finding.rpc], shown)}"
    return f"{where}: found {text(shortened(finding.observed))}; required {text(shortened(finding.required))}"


MAX_UNDECODED = 100
"""Rows of what was not decoded."""
MAX_BYTES = 5_000_000
"""Bytes of the page, for any capture."""
MAX_HUNG = 20
"""Calls without a reply that are drawn, those outstanding the longest."""
HERE = Path(__file__).parent


def page_html(page: PageFacts, max_bytes: int = MAX_BYTES) -> str:
    """The document.  Where it would become too large, RPCs are left out, and it says so."""
    facts = page.facts
    diagnosis = diagnose(facts)
    tables = same_width(breakings(page.breakdown, facts)) if facts.calls else []
    chosen = _chosen(page)
    while True:
        html = _assembled(page, diagnosis, tables, chosen)
        if len(html.encode()) < max_bytes or not any(chosen):
            return html
        chosen = [examples[: len(examples) // 2] for examples in chosen]


Chosen = list[list[ShownRpc]]
"""The slowest RPCs, failed ones, and those that are damaged or have no reply."""


def _chosen(page: PageFacts) -> Chosen:
    examples = page.examples
    slowest = [
        examples.slowest[slow_rpc.number]
        for slow_rpc in page.facts.statistics.slowest()
        if slow_rpc.number in examples.slowest
    ]
    return [slowest, [*examples.failed.values()], [*examples.damaged.values()]]


def _assembled(page: PageFacts, diagnosis: Diagnosis, tables: Sequence[Breaking], chosen: Chosen) -> str:
    facts = page.facts
    shown = {example.number for examples in chosen for example in examples}
    result = None if page.auditor is None else Result(page.session.path, page.auditor, facts.calls)
    verdict = f"Diagnosis: {counted(diagnosis)}" if diagnosis.statements else "Diagnosis"
    sections = [("diagnosis", verdict, diagnosis_html(diagnosis, shown))]
    if page.levels:
        sections.insert(0, ("levels", "Service levels", _levels(page.levels)))
    waterfall = waterfall_html(chosen[0], facts.first_time)
    if waterfall:
        unfolded = details(
            "With the time in which none of them waited", waterfall_html(chosen[0], facts.first_time, False)
        )
        sections.append(("waterfall", "The slowest, and those that hang", waterfall + unfolded))
    data: list[str] = []
    if tables:
        sections.append(("time", "Over time", _over_time(page, data)))
        sections += [(f"by-{table.id}", table.title, table_html(table, facts.waiting)) for table in tables]
        data.append(
            data_script("tables-data", {"width": tables[0].width, "tables": [cell_data(table) for table in tables]})
        )
    sections.append(("findings", "Findings of the audit", audit_html(result, shown)))
    sections += _examples(page, chosen)
    sections += _left_out(page, tables, chosen)
    scripts = [library(), (HERE / "page.js").read_text()]
    return _document(page.session, facts, page.condition, diagnosis, sections, data, scripts)


def fleet_html(
    session: SummedSession, top: int, condition: Condition | None, levels: Sequence[ServiceLevelCounts]
) -> str:
    """The document of a data set of so many captures that its RPCs are not looked at one by one."""
    facts, diagnosis = session.facts(top), session.diagnosis()
    verdict = f"Diagnosis: {counted(diagnosis)}" if diagnosis.statements else "Diagnosis"
    sections = [("levels", "Service levels", _levels(levels))] if levels else []
    sections.append(("diagnosis", verdict, diagnosis_html(diagnosis, ())))
    sections += fleet_sections(session, facts.statistics.slowest())
    return _document(session, facts, condition, diagnosis, sections, (), ())


def _document(
    session: Session,
    facts: Facts,
    condition: Condition | None,
    diagnosis: Diagnosis,
    sections: Sequence[tuple[str, str, str]],
    data: Sequence[str],
    scripts: Sequence[str],
) -> str:
    return "".join(
        (
            "<!DOCTYPE html>\n",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{text(_policy(scripts))}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            tag("title", text(f"{session.path}: {counted(diagnosis)}")),
            tag("style", (HERE / "page.css").read_text()),
            "</head><body>",
            '<a class="skip" href="#diagnosis">To the diagnosis</a>',
            _header(session, facts, condition, diagnosis, sections),
            tag("main", *(_section(*section) for section in sections)),
            *data,
            *(f"<script>{script}</script>\n" for script in scripts),
            "</body></html>\n",
        )
    )


def _levels(levels: Sequence[ServiceLevelCounts]) -> str:
    """Whether each service level was kept."""
    badges = {PASS: "good", FAIL: "problem", UNDECIDABLE: "warning"}
    rows = []
    for level in levels:
        value = "-" if level.value is None else at_least(level.value, level.value_is_bound)
        badge = tag("span", text(level.verdict), class_=f"badge {badges[level.verdict]}")
        cells = badge, tag("code", text(level.level.text)), text(value), count(level.calls), count(level.beyond)
        rows.append(tag("tr", *(tag("td", cell) for cell in cells)))
    names = ("verdict", "service level", "measured", "calls", "beyond")
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    return tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="wide")


def _policy(scripts: Sequence[str]) -> str:
    """Only these scripts, and nothing from anywhere."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def _section(id: str, heading: str, content: str) -> str:
    return tag("section", tag("h2", text(heading), id=f"{id}-title"), content, id=id, aria_labelledby=f"{id}-title")


def _header(
    session: Session,
    facts: Facts,
    condition: Condition | None,
    diagnosis: Diagnosis,
    sections: Sequence[tuple[str, str, str]],
) -> str:
    analyzer = session.analyzer
    summary = report_views.summary(
        session.path,
        frames=analyzer.frames,
        traced=analyzer.traced,
        notes=note_lines(diagnosis),
        packets=analyzer.packets,
        first_time=analyzer.earliest_time,
        last_time=analyzer.last_time,
        conversations=analyzer.conversations,
        statistics=facts.statistics,
        evicted=analyzer.evicted,
    )
    lines = of_rich(summary).split("</div>", 1)[1]  # The first is the name, which is the heading.
    if condition is not None:
        words = f"Only {condition.passed:,} of {condition.tried:,} RPCs: {condition}"
        lines += tag("p", text(words), class_="filtered")
    links = listed(tag("a", text(heading), href=f"#{id}") for id, heading, _ in sections)
    headline = headline_view(diagnosis)
    words = "" if headline is None else tag("p", text(headline.plain), class_="bad")
    return tag("header", words, tag("h1", text(session.path)), lines, tag("nav", links, aria_label="Sections"))


def _over_time(page: PageFacts, data: list[str]) -> str:
    facts, breakdown = page.facts, page.breakdown
    total = series(breakdown.total, facts.first_time)
    charts = Charts(facts.span, moment(facts.first_time))
    charts.latency(total)
    charts.rates(total)
    charts.unanswered(
        [
            (label(unanswered.key), unanswered.time - facts.first_time, unanswered.waiting)
            for unanswered in facts.hung[:MAX_HUNG]
        ]
    )
    charts.outstanding(
        peak_series(breakdown.outstanding, facts.first_time), peak_series(breakdown.slots, facts.first_time)
    )
    start = int(total.starts[0]) + facts.first_time
    packets = retransmissions(facts.healths.values(), start, total.width, len(total.starts))
    if packets.any():
        charts.retransmissions(total, packets)
    data.append(data_script("charts-data", charts.item("charts")))
    offset = breakdown.total.start - facts.first_time
    axis = {"unit": charts.unit, "name": charts.unit_name, "span": max(1, facts.span), "offset": offset}
    data.append(data_script("axis-data", axis))
    remarks = [f"Percentiles are good to 7%; intervals of the charts are {total.width / 1e9:.3g} s."]
    if breakdown.outstanding is not None:
        remarks.append(
            "Calls outstanding and credits are those of the busiest connection, slots of the busiest session."
        )
    if breakdown.highest_slot is not None:
        remarks.append(f"The highest NFSv4.1 slot used is {breakdown.highest_slot}.")
    if not packets.any():
        remarks.append("No packet was retransmitted.")
    if facts.evicted:
        remarks.append(f"Retransmissions of {plural(facts.evicted, 'evicted connection')} are not drawn.")
    described = (
        "Charts on one axis of time: latency as a heat map with percentiles, RPCs and bytes per second, credits and"
        " slots in use, packets retransmitted. The tables below have their numbers; the fields above select a span of"
        " time without a pointer."
    )
    form = tag(
        "form",
        tag("fieldset",
            tag("legend", "Span of time for the tables: drag over a chart, or give it here"),
            tag("label", "from ", '<input type="number" id="span-from" min="0" step="any">'),
            tag("label", "to ", '<input type="number" id="span-to" min="0" step="any">'),
            tag("span", text(charts.unit_name), class_="unit"),
            tag("button", "Select", type="submit"),
            tag("button", "Whole capture", type="button", id="span-clear")),
        tag("p", "The tables show the whole capture.", id="span-state", role="status", aria_live="polite"),
        id="span",
    )  # fmt: skip
    figure = tag(
        "figure",
        tag("div", id="charts", role="img", aria_label=described),
        tag("figcaption", text(" ".join(remarks))),
    )
    return form + figure + tag("noscript", tag("p", "The charts need JavaScript; the tables do not."))


def _examples(page: PageFacts, chosen: Chosen) -> list[tuple[str, str, str]]:
    slowest, failed, damaged = chosen
    examples = page.examples
    kinds = (
        ("slowest", "Slowest RPCs", slowest, 0, "by latency"),
        ("failed", "Failed RPCs", failed, examples.more_failed, "the first of each procedure and status"),
        (
            "damaged",
            "Damaged and unanswered RPCs",
            damaged,
            examples.more_damaged,
            "the first of each procedure and state",
        ),
    )
    sections = []
    seen: set[int] = set()
    for id, heading, rpcs, more, how in kinds:
        if not rpcs:
            continue
        rest = f"; {count(more)} more are not shown: rdmascope rpcs FILE --errors" if more else ""
        opened = "".join(
            reference_html(example)
            if example.number in seen
            else example_html(example, page.facts.healths.get(example.connection))
            for example in rpcs
        )
        seen |= {example.number for example in rpcs}
        sections.append(
            (id, heading, tag("p", text(f"{plural(len(rpcs), 'RPC')}, {how}{rest}."), class_="dim") + opened)
        )
    return sections


def _left_out(page: PageFacts, tables: Sequence[Breaking], chosen: Chosen) -> list[tuple[str, str, str]]:
    """What was not decoded, and what the page leaves out."""
    error = None if page.session.damage is None else str(page.session.damage)
    rows = undecoded(page.session.analyzer, page.facts.statistics, error)
    sections = []
    if rows:
        cells = [
            tag("tr", tag("td", count(number)), tag("td", text(what)), tag("td", text(shortened(why))))
            for what, why, number in rows[:MAX_UNDECODED]
        ]
        head = tag("tr", *(tag("th", name, scope="col") for name in ("number", "of", "why")))
        table = tag("table", tag("caption", "Ignored or damaged"), tag("thead", head), tag("tbody", *cells))
        sections.append(("undecoded", "Not decoded", table))
    left = [f"{plural(len(rows) - MAX_UNDECODED, 'more reason')} why something was not decoded"]
    left = left if len(rows) > MAX_UNDECODED else []
    left += [f"{breaking.title}: {count(breaking.others)} are one row" for breaking in tables if breaking.others]
    dropped = sum(map(len, _chosen(page))) - sum(map(len, chosen))
    if dropped:
        left.append(f"{plural(dropped, 'RPC')} in full, for the size of the page")
    examples = page.examples
    if more := examples.more_failed + examples.more_damaged:
        left.append(f"{plural(more, 'RPC')} that failed or are damaged, of kinds that are shown or beyond their number")
    left.append("Each packet, and all but some RPCs: rdmascope rpcs, show and packets have them")
    sections.append(("left-out", "What this page leaves out", listed(map(text, left))))
    return sections


def write_page(
    capture: Capture, path: str | os.PathLike[str], *, where: Sequence[str] = (), top: int = 10, audit: bool = True
) -> int:
    """The report of a capture as one HTML page that needs no network, as ``rdmascope report -o`` writes it.

    Takes Bokeh (``pip install 'rdmascope[html]'``) and rich.

    Args:
        capture: what ``read`` gave; it is read once.
        path: of the page, which may be none of the files that are read.
        where: conditions in SQL over the columns of the table ``rpcs``: only RPCs of which these are all true.
        top: how many of the slowest RPCs are on it.
        audit: judge both ends by the rules of the audit.

    Returns its size in bytes.  Raises CaptureError where it cannot be written, or the capture cannot be read to its
    end: the page then has what is before the damage.
    """
    given = (capture.paths,) if isinstance(capture.paths, str | os.PathLike) else capture.paths
    inputs = [os.fspath(given_path) for given_path in given]
    check_page(path, inputs)
    with ExitStack() as stack:
        condition = None
        if where:
            condition = stack.enter_context(closing(Condition(tuple(where))))
        summed = None
        if is_data_set(inputs[0]):
            from rdmascope.captures.tables.fleet_sums import summed_session

            summed = summed_session(inputs[0], condition, False)
        session = capture.session() if summed is None else stack.enter_context(closing(summed))
        size, _ = write_page_of(session, path, inputs, top, audit, condition)
        session.check()
    return size


def check_page(path: str | os.PathLike[str], inputs: Sequence[str]) -> None:
    """Before the work begins: raises CaptureError where no page can be written there."""
    need("bokeh")
    check_outputs([path], inputs)


def write_page_of(
    session: Session,
    path: str | os.PathLike[str],
    inputs: Sequence[str],
    top: int,
    audit: bool,
    condition: Condition | None,
    levels: Sequence[ServiceLevel] = (),
) -> tuple[int, set[str]]:
    """Read a session that was not read yet, and write its page; returns the page's bytes, and the verdicts on service
    levels.  Raises CaptureError."""
    if is_data_set(inputs[0]):
        from rdmascope.captures.tables.fleet_sums import SummedSession

        if isinstance(session, SummedSession):
            asked = RpcGrouping(levels=levels)
            if levels:
                asked.ask(session)
            html = fleet_html(session, top, condition, asked.levels)
            write_output(path, html, inputs)
            return len(html.encode()), {level.verdict for level in asked.levels}
    page = PageFacts(session, top, condition, audit, levels)
    if condition is not None:
        session.refuse(condition.problem(session))
    if not session.analyzer.packets:
        session.check()
    html = page_html(page)
    write_output(path, html, inputs)
    return len(html.encode()), {level.verdict for level in page.levels}
