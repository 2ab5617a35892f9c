"""``rdmascope rules``: what the audit judges by."""

from __future__ import annotations

import click

from rdmascope.dissect.audit.page import markdown
from rdmascope.dissect.audit.rule import LEVELS, ROLES, all_rules
from rdmascope.dissect.records.audit import rule_record
from rdmascope.dissect.records.schema import schema

from ..terminal import console, print_json, show
from ..views.audit import rules_view


@click.command("rules")
@click.option("--level", type=click.Choice([*LEVELS], case_sensitive=False), help="Only rules of this level.")
@click.option("--role", type=click.Choice(ROLES), help="Only rules that judge this role.")
@click.option("--markdown", "as_markdown", is_flag=True, help="All rules with their pages, as Markdown.")
@click.option("--json", "as_json", is_flag=True, help=f"One {schema('rule')} object a line.")
def command(level: str | None, role: str | None, as_markdown: bool, as_json: bool) -> None:
    """List the rules that 'rdmascope audit' checks.

    \b
    Example: which requirements must a server meet?
      $ rdmascope rules --level MUST --role responder
      rule                 level  judges     requirement
      PD-INVALIDATE-STAG   MUST   responder  The invalidated handle belongs
                                             to the call that is answered
      ...
      $ rdmascope explain PD-INVALIDATE-STAG
    """
    rules = [
        rule
        for rule in all_rules().values()
        if (level is None or rule.level == level.upper()) and role in (None, rule.role)
    ]
    if as_markdown:
        click.echo(markdown(rules), nl=False)
    elif as_json:
        for rule in rules:
            print_json(rule_record(rule))
    else:
        show(console(), rules_view(rules))
