"""``rdmascope rules``: what the audit and diagnose judge by, and one of it in full."""

from __future__ import annotations

from difflib import get_close_matches

import click

from rdmascope.dissect.audit.rule import LEVELS, ROLES, all_rules, markdown
from rdmascope.dissect.diagnosis.facts import all_detectors
from rdmascope.dissect.records.audit import rule_record
from rdmascope.dissect.records.diagnosis import detector_record
from rdmascope.dissect.records.schema import schema

from ..terminal import console, print_json, show
from ..views.diagnosis import detector_view, detectors_view, rule_view, rules_view


@click.command("rules")
@click.argument("id", metavar="[ID]", required=False)
@click.option("--level", type=click.Choice([*LEVELS], case_sensitive=False), help="Only rules of this level.")
@click.option("--role", type=click.Choice(ROLES), help="Only rules that judge this role.")
@click.option("--markdown", "as_markdown", is_flag=True, help="All rules with their pages, as Markdown.")
@click.option("--json", "as_json", is_flag=True, help=f"{schema('rule')} and {schema('detector')} objects, one a line.")
def command(id: str | None, level: str | None, role: str | None, as_markdown: bool, as_json: bool) -> None:
    """List the rules that 'rdmascope audit' checks and the detectors of 'rdmascope diagnose', or explain one.

    With the ID of a rule: what it requires, its document and section, why it matters, and an example of right and
    wrong. With the ID of a detector: what it means, its thresholds, and what to look at next.

    \b
    Example: which requirements must a server meet?
      $ rdmascope rules --level MUST --role responder
      rule                 level  judges     requirement
      PD-INVALIDATE-STAG   MUST   responder  The invalidated handle belongs
                                             to the call that is answered
      ...
      $ rdmascope rules PD-INVALIDATE-STAG
    """
    if id is not None:
        _explain(id, as_json)
        return
    rules = [
        rule
        for rule in all_rules().values()
        if (level is None or rule.level == level.upper()) and role in (None, rule.role)
    ]
    detectors = [] if level or role else [*all_detectors().values()]
    if as_markdown:
        click.echo(markdown(rules), nl=False)
    elif as_json:
        for fields in (*map(rule_record, rules), *map(detector_record, detectors)):
            print_json(fields)
    else:
        show(console(), rules_view(rules), *([detectors_view(detectors)] if detectors else []))


def _explain(id: str, as_json: bool) -> None:
    """The page of a rule or of a detector."""
    rules, detectors = all_rules(), all_detectors()
    if rule := rules.get(id.upper()):
        fields, view = rule_record(rule), rule_view(rule)
    elif detector := detectors.get(id.lower()):
        fields, view = detector_record(detector), detector_view(detector)
    else:
        near = [*(get_close_matches(id.upper(), rules, 3) or get_close_matches(id.lower(), detectors, 3))] or [
            name for name in rules if id.upper() in name
        ][:3]
        hint = f"; is it {' or '.join(near)}?" if near else "; 'rdmascope rules' lists them"
        raise click.ClickException(f"no rule {id!r}{hint}")
    if as_json:
        print_json(fields)
    else:
        show(console(), view)
