"""``rdmascope explain``: the page of a rule."""

from __future__ import annotations

from difflib import get_close_matches

import click

from rdmascope.dissect.audit.rule import all_rules
from rdmascope.dissect.records.audit import rule_record

from ..terminal import console, print_json, show
from ..views.audit import rule_view


@click.command("explain")
@click.argument("id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="The rule as one rdmascope.rule object.")
def command(id: str, as_json: bool) -> None:
    """What a rule requires, its document and section, why it matters, and an example of right and wrong.

    \b
    Example:
      $ rdmascope explain V1-CREDIT-EXCEEDED
      V1-CREDIT-EXCEEDED  Calls outstanding stay within the credits
      ...
    """
    rules = all_rules()
    rule = rules.get(id.upper())
    if rule is None:
        near = get_close_matches(id.upper(), rules, 3) or [name for name in rules if id.upper() in name][:3]
        hint = f"; is it {' or '.join(near)}?" if near else "; 'rdmascope rules' lists them"
        raise click.ClickException(f"no rule {id!r}{hint}")
    if as_json:
        print_json(rule_record(rule))
    else:
        show(console(), rule_view(rule))
