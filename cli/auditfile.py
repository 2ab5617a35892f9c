"""Settings of the audit in a TOML file: ``[tool.rdmascope.audit]``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from rdmascope.dissect.audit.finding import Finding
from rdmascope.dissect.audit.rule import LEVELS, ROLES, all_rules

PLACES = ("rdmascope.toml", "pyproject.toml")
"""Looked for in the working directory; the first that has the table counts."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """Findings that are known and accepted."""

    rule: str
    reason: str
    role: str | None = None
    """'requester' or 'responder'."""
    address: str | None = None
    """Of the endpoint that is judged."""
    connection: int | None = None

    def covers(self, finding: Finding) -> bool:
        return (
            finding.rule.id == self.rule
            and self.role in (None, finding.role)
            and self.address in (None, finding.connection.endpoints[finding.endpoint].address)
            and self.connection in (None, finding.connection.number)
        )


@dataclass(frozen=True, slots=True)
class AuditSettings:
    rule: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    level: str | None = None
    role: str | None = None
    connection: int | None = None
    examples: int = 3
    fail_on: str = "MUST"
    waivers: tuple[Waiver, ...] = ()


def read_settings(path: str | None) -> AuditSettings:
    """The table of the file at ``path``, or of the first of ``PLACES`` that has one; raises click.ClickException."""
    for place in [path] if path else PLACES:
        if not Path(place).is_file():
            continue
        try:
            table: Any = tomllib.loads(Path(place).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise click.ClickException(f"{place}: {error}") from None
        for key in ("tool", "rdmascope", "audit"):
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            return _settings(place, table)
    return AuditSettings()


def _settings(place: str, table: dict[str, Any]) -> AuditSettings:
    kinds: dict[str, Any] = {
        "rule": list, "ignore": list, "level": str, "role": str, "connection": int, "examples": int, "fail-on": str,
        "waive": list,
    }  # fmt: skip
    for key, value in table.items():
        if key not in kinds:
            raise click.ClickException(f"{place}: [tool.rdmascope.audit] has no {key!r}; there are {', '.join(kinds)}")
        if not isinstance(value, kinds[key]) or isinstance(value, bool):
            raise click.ClickException(f"{place}: {key} must be a {kinds[key].__name__}")
    _one_of(place, "level", table.get("level"), [*LEVELS])
    _one_of(place, "role", table.get("role"), [*ROLES[:2], "client", "server"])
    _one_of(place, "fail-on", table.get("fail-on"), ["MUST", "SHOULD", "STATED", "NOTE", "NEVER"])
    waivers = tuple(_waiver(place, entry) for entry in table.get("waive", []))
    names = {key.replace("-", "_"): value for key, value in table.items() if key != "waive"}
    for key in ("rule", "ignore"):
        names[key] = tuple(str(one) for one in names.get(key, ()))
    return AuditSettings(**names, waivers=waivers)


def _one_of(place: str, key: str, value: str | None, choices: Any) -> None:
    if value is not None and value.upper() not in [str(choice).upper() for choice in choices]:
        raise click.ClickException(f"{place}: {key} is {value!r}; there are {', '.join(choices)}")


def _waiver(place: str, entry: Any) -> Waiver:
    known = {field.name for field in fields(Waiver)}
    if not isinstance(entry, dict) or not set(entry) <= known:
        raise click.ClickException(f"{place}: a waiver has {', '.join(sorted(known))}")
    if not entry.get("rule") or not str(entry.get("reason", "")).strip():
        raise click.ClickException(f"{place}: a waiver needs a rule and a reason")
    if entry["rule"] not in all_rules():
        raise click.ClickException(f"{place}: waiver of {entry['rule']!r}, which is no rule")
    return Waiver(**entry)
