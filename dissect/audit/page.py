"""The page of a rule, and the page of all: one source for ``explain`` and for the documentation."""

from __future__ import annotations

from collections.abc import Iterable

from .rule import Rule

SECTIONS = {
    "V1": "RPC-over-RDMA version 1",
    "PD": "Private data",
    "V2": "RPC-over-RDMA version 2",
    "XC": "Transport characteristics of version 2",
}

_HEAD = """# Rules of the audit

`rdmascope audit FILE` judges both endpoints of every RPC-over-RDMA connection by these rules. This page is written by
`rdmascope rules --markdown`.

A judgement is *pass*, *violation*, *not applicable* (there was nothing to judge) or *undecidable* (packets are not in
the capture, frames are truncated, the connection began before the capture, or the upper-layer binding is not known).
Levels: **MUST** and **SHOULD** are the document's own words, **STATED** is behaviour that it describes without them.
"""


def facts(rule: Rule) -> list[tuple[str, str]]:
    """What there is to know of a rule, as (name, text), in the order of a page."""
    parts = rule.paragraphs
    found = [
        ("Level", rule.level.value),
        ("Judges", {"either": "either end", "requester": "the requester", "responder": "the responder"}[rule.role]),
        ("Document", rule.sources),
    ]
    if rule.unjudgeable:
        found.append(("Not judged", rule.unjudgeable))
    found += [(name, parts[name]) for name in ("What", "Why", "Right", "Wrong") if name in parts]
    return found


def markdown(rules: Iterable[Rule]) -> str:
    """``docs/rules.md``."""
    rules = list(rules)
    parts = [_HEAD]
    for prefix, title in SECTIONS.items():
        chosen = [rule for rule in rules if rule.id.startswith(f"{prefix}-")]
        parts.append(f"\n## {title}\n\n| rule | level | judges | requirement |\n| --- | --- | --- | --- |\n")
        parts += [
            f"| [{rule.id}](#{rule.id.lower()}) | {rule.level} | {rule.role} | {_escape(rule.title)} |\n"
            for rule in chosen
        ]
        for rule in chosen:
            parts.append(f"\n### {rule.id}\n\n{_escape(rule.title)}.\n\n")
            parts += [f"- **{name}**: {_escape(text)}\n" for name, text in facts(rule)]
    return "".join(parts)


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
