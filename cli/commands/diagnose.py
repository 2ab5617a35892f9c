"""``rdmascope diagnose``: what is wrong, and what to look at next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rdmascope.captures.session.diagnosis_pass import diagnosis_of
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.saved import is_data_set
from rdmascope.dissect.diagnosis.facts import SEVERITIES, all_detectors
from rdmascope.dissect.records.diagnosis import statement_record
from rdmascope.dissect.records.schema import schema

from ..options import filter_options
from ..reading import file_argument, jobs_option, opened, recognition_options
from ..terminal import EXIT_FOUND, console, print_json, show
from ..views.diagnosis import diagnosis_view

if TYPE_CHECKING:
    from rdmascope.captures.tables.condition import Condition

FAIL_ON = (*(severity.value for severity in SEVERITIES), "never")


@click.command("diagnose")
@file_argument
@click.option("--explain", is_flag=True, help="With what each statement means, and what to look at next.")
@click.option("--rule", "kinds", multiple=True, metavar="ID", help="Only this detector; may be repeated.")
@click.option(
    "--fail-on",
    type=click.Choice(FAIL_ON, case_sensitive=False),
    default="warning",
    show_default=True,
    help="Exit with 1 on statements of this severity or above.",
)
@click.option("--json", "as_json", is_flag=True, help=f"One {schema('statement')} object a line.")
@filter_options
@recognition_options
@jobs_option
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    explain: bool,
    kinds: tuple[str, ...],
    fail_on: str,
    as_json: bool,
    ports: tuple[int, ...],
    force: str | None,
    jobs: int | None,
    condition: Condition | None,
) -> None:
    """Say what is wrong: each cause with its evidence, the time that it cost, and what to look at next.

    It prints nothing if nothing is wrong. The cause that RPCs waited for longest comes first; among equals problems
    before warnings. Notes about the capture itself come last.

    \b
    Example: a client that lost packets.
      $ rdmascope diagnose loss-rxe.pcap.zst
      loss-rxe.pcap.zst: 3 problems, 1 warning
      ...
      4 problem  Packet loss  [packets-lost]
        1,017 packets retransmitted, 15 recoveries; RPCs delayed ...
      ...

    What a detector looks for, its thresholds, and what it means:

    \b
      $ rdmascope rules packets-lost

    With filters only the RPCs that pass count; connections and packets are those of the whole capture.
    docs/diagnosis.md has all detectors. Times are as seen at the capture point.

    Exit status: 0 nothing at or above --fail-on, 1 something, 2 a file that cannot be used.
    """
    known = all_detectors()
    for kind in kinds:
        if kind not in known:
            raise click.BadParameter(f"no detector {kind!r}; there are {', '.join(known)}", ctx, param_hint="--rule")
    reading: Session
    if len(files) == 1 and is_data_set(files[0]) and not (ports or force):
        from rdmascope.captures.tables.fleet_sums import SummedSession

        reading = summed = SummedSession(files[0], condition)
        ctx.call_on_close(summed.close)
        diagnosis = summed.diagnosis(kinds)
    else:
        reading = opened(files, ports, force, drops_on_page=not as_json, jobs=jobs)
        diagnosis = diagnosis_of(reading, kinds, condition)
        if condition is not None:
            reading.refuse(condition.problem(reading))
    if as_json:
        for statement in diagnosis.statements:
            print_json({**statement_record(statement), "file": reading.path})
    else:
        show(console(), diagnosis_view(reading.path, diagnosis, explain))
    reading.check()
    limit = FAIL_ON.index(fail_on.lower())
    if fail_on.lower() != "never" and any(
        SEVERITIES.index(statement.severity) <= limit for statement in diagnosis.statements
    ):
        ctx.exit(EXIT_FOUND)
