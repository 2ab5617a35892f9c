"""``rdmascope explain``: the page of a rule or of a detector."""

from __future__ import annotations

from difflib import get_close_matches

import click

from rdmascope.dissect.audit.rule import all_rules
from rdmascope.dissect.diagnosis.detector import all_detectors
from rdmascope.dissect.records.audit import rule_record
from rdmascope.dissect.records.diagnosis import detector_record

from ..terminal import console, print_json, show
from ..views.audit import rule_view
from ..views.diagnosis import detector_view


@click.command("explain")
@click.argument("id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One rdmascope.rule or rdmascope.detector object.")
def command(id: str, as_json: bool) -> None:
    """What a rule requires, its document and section, why it matters, and an example of right and wrong.

    For a detector of 'rdmascope diagnose': what it means, from which threshold on it reports, and what to look at next.

    \b
    Example:
      $ rdmascope explain V1-CREDIT-EXCEEDED
      V1-CREDIT-EXCEEDED  Calls outstanding stay within the credits
      ...
    """
    rules = all_rules()
    rule = rules.get(id.upper())
    if rule is None:
        detectors = all_detectors()
        if found := detectors.get(id.lower()):
            if as_json:
                print_json(detector_record(found))
            else:
                show(console(), detector_view(found))
            return
        near = [*(get_close_matches(id.upper(), rules, 3) or get_close_matches(id.lower(), detectors, 3))] or [
            name for name in rules if id.upper() in name
        ][:3]
        hint = f"; is it {' or '.join(near)}?" if near else "; 'rdmascope rules' lists them"
        raise click.ClickException(f"no rule {id!r}{hint}")
    if as_json:
        print_json(rule_record(rule))
    else:
        show(console(), rule_view(rule))
