"""``rdmascope audit``: judge both ends of every connection."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING

import click
from rich.text import Text

from rdmascope.captures import CaptureError
from rdmascope.captures.session.audit_settings import read_settings
from rdmascope.captures.write.output import check_outputs, seekable, write_output
from rdmascope.dissect.audit.auditor import Auditor, Result
from rdmascope.dissect.audit.rule import LEVELS, ROLES, not_waived, select_rules
from rdmascope.dissect.measure.filters import unknown_connections
from rdmascope.dissect.records.audit import finding_records, junit, sarif, sum_records, verdict_lines
from rdmascope.dissect.rpcrdma.analyzer import drop_contents

from ..options import connection_filter_options, pager_option
from ..reading import CAPTURE, behind, jobs_option, opened, recognition_options
from ..terminal import (
    EXIT_BAD_INPUT,
    EXIT_FOUND,
    EXIT_NOTHING_JUDGED,
    complain,
    console,
    encoded_json,
    paged,
    print_json,
    print_page,
    show,
)
from ..views import diagnosis as views
from ..views.tables import filter_field, filter_line, limit_lines

if TYPE_CHECKING:
    from rdmascope.captures.tables.condition import Condition

FAIL_ON = {"MUST": 0, "SHOULD": 1, "STATED": 2, "NOTE": 3, "NEVER": -1}
"""The least of Tally.worst that passes, less one."""

_levels = click.Choice([*FAIL_ON], case_sensitive=False)

LINES = 1000
"""Lines that are printed together."""

ENDS = {"client": 0, "server": 1}
"""Ends of a connection, by what the page calls them."""


@click.command("audit")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=CAPTURE)
@click.option(
    "--rule",
    "wanted",
    multiple=True,
    metavar="ID",
    help="Only this rule; V1-READ* for all whose names begin like that.",
)
@click.option("--ignore", multiple=True, metavar="ID", help="Not this rule.")
@click.option("--level", type=click.Choice([*LEVELS], case_sensitive=False), help="Only rules of this level or above.")
@click.option(
    "--role", type=click.Choice([*ROLES[:2], *ENDS]), help="Only rules about this role, or only what this end did."
)
@click.option(
    "--examples", type=click.IntRange(0), metavar="N", help="Findings to keep for each rule and end.  [default: 3]"
)
@click.option("--fail-on", type=_levels, help="Exit with 1 on violations of this level or above.  [default: MUST]")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="Settings; by default rdmascope.toml or pyproject.toml in the current directory.",
)
@pager_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: findings, verdicts, capture.")
@click.option("--junit", "junit_file", type=click.Path(dir_okay=False), help="Write JUnit XML.")
@click.option("--sarif", "sarif_file", type=click.Path(dir_okay=False), help="Write SARIF 2.1.0.")
@connection_filter_options
@recognition_options
@jobs_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    wanted: tuple[str, ...],
    ignore: tuple[str, ...],
    level: str | None,
    role: str | None,
    connections: tuple[int, ...],
    examples: int | None,
    fail_on: str | None,
    config: str | None,
    pager: bool,
    as_json: bool,
    junit_file: str | None,
    sarif_file: str | None,
    ports: tuple[int, ...],
    force: str | None,
    jobs: int | None,
    condition: Condition | None,
) -> None:
    """Check both ends of every connection against the specifications: each violation, by whom, and where.

    Example: does this server conform to RPC-over-RDMA?

    \b
      $ rdmascope audit bidir-rxe.pcap.zst --examples 1
      bidir-rxe.pcap.zst: 66 RPCs on 2 connections: 14 violations of 1 rule (1
      MUST)
      ...
        MUST  PD-INVALIDATE-AGREED  14 times
          Send With Invalidate only after both ends set R (cm-pvt-data-08 and RFC
          8797, 4.1)
          server 10.77.0.1:20049, connection 1: 7 of 7
            frame 29, RPC 2, XID 0xaea615e0
              found     a Send With Invalidate, and the server did not set R
              required  R from both ends
            … and 6 more

    The server uses remote invalidation as soon as the client allows it, without having announced it itself.
    What the rule requires, why, and an example of right and wrong:

    \b
      $ rdmascope rules PD-INVALIDATE-AGREED

    The table of each connection counts rules: passed, violated, cannot tell (the capture does not show enough) and
    not exercised (nothing happened that they judge); checks are the single judgements.

    With filters only the RPCs that pass and the setup of their connections are judged; the other RPCs still show what
    was agreed, or missed.

    Exit status: 0 clean, 1 violations at or above --fail-on, 2 a file that cannot be used, 3 nothing to judge.

    A TOML file can keep these settings, and waive findings for a reason:

    \b
      [tool.rdmascope.audit]
      level = "SHOULD"
      ignore = ["V1-HANDLE-PERSISTENT"]
      fail-on = "SHOULD"
      [[tool.rdmascope.audit.waive]]
      rule = "PD-INVALIDATE-AGREED"
      role = "responder"
      reason = "knfsd never sets R; reported upstream"
    """
    settings = read_settings(config)
    role = role or settings.role
    end = ENDS.get(role or "")
    rules = select_rules(
        wanted or settings.rule, (*ignore, *settings.ignore), level or settings.level, role if end is None else None
    )
    limit = FAIL_ON[(fail_on or settings.fail_on).upper()]
    chosen = frozenset(connections or settings.connection)
    check_outputs((junit_file, sarif_file), files)
    results: list[Result] = []
    failed = False
    out = console()
    for at, file in enumerate(files):
        kept = settings.examples if examples is None else examples
        try:
            meant, select, on_connections = None, None, chosen
            judged = "what single RPCs were judged by"
            captures = (file,) if condition is None else behind(file, judged, condition=condition)
            with seekable(captures) if condition is not None else nullcontext(captures) as paths:
                if condition is not None:
                    rpcs_that_pass = condition.chosen_rpcs(opened(paths, ports, force))
                    meant, select = rpcs_that_pass.judged, rpcs_that_pass.selected
                    with_rpcs = rpcs_that_pass.connections
                    on_connections = chosen & with_rpcs if chosen else with_rpcs
                auditor = Auditor(rules, kept, not_waived(settings.waivers), release=drop_contents, meant=meant)
                reading = opened(paths, ports, force, jobs=jobs)
                reading.path = file
                rpcs = reading.audit(auditor, chosen, select)
            for key in list(auditor.tallies):
                if (chosen and key.connection not in chosen) or end not in (None, key.endpoint):
                    del auditor.tallies[key]
            problem = unknown_connections(sorted(chosen), reading.extent())
            if chosen and not any(connection.number in chosen for connection in reading.analyzer.connections):
                reading.refuse(problem)
            result = Result(file, auditor, rpcs, on_connections)
            results.append(result)
            if as_json:
                for finding in finding_records(result):
                    print_json({**reading.placed(finding), "file": file})
                lines = verdict_lines(result, file=file)
                while page := [*islice(lines, LINES)]:
                    print_page(encoded_json("\n".join([*page, ""])))
                for line in sum_records(result):
                    words = filter_field(condition) if line["type"] == "audit" else {}
                    print_json({**line, "file": file, **words})
            else:
                with paged(out, pager):
                    above = [Text()] if at else []
                    if condition is not None:
                        above.append(filter_line(condition, "these are judged, and the setup of their connections"))
                    view = views.page(result, out.width, settings.waivers, reading.place_words)
                    show(out, *above, *limit_lines(reading.analyzer), view)
            reading.refuse(problem)
            reading.check()
        except CaptureError as error:
            complain(str(error))
            failed = True
    if junit_file:
        write_output(junit_file, junit(results), files)
    if sarif_file:
        write_output(sarif_file, sarif(results), files)
    if failed:
        ctx.exit(EXIT_BAD_INPUT)
    if any(tally.worst <= limit for result in results for tally in result.auditor.tallies.values() if tally.violated):
        ctx.exit(EXIT_FOUND)
    if not any(result.judged for result in results):
        ctx.exit(EXIT_NOTHING_JUDGED)
