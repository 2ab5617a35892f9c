"""Settings of the audit in a TOML file: ``[tool.rdmascope.audit]``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rdmascope.dissect.audit.rule import LEVELS, ROLES, Waiver, all_rules

from ..errors import CaptureError

PLACES = ("rdmascope.toml", "pyproject.toml")
"""Looked for in the working directory; the first that has the table counts."""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    rule: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    level: str | None = None
    role: str | None = None
    connection: tuple[int, ...] = ()
    examples: int = 3
    fail_on: str = "MUST"
    waivers: tuple[Waiver, ...] = ()


def read_settings(path: str | None) -> AuditSettings:
    """The table of the file at ``path``, or of the first of ``PLACES`` that has one; raises CaptureError."""
    for file in [path] if path else PLACES:
        if not Path(file).is_file():
            continue
        try:
            table: Any = tomllib.loads(Path(file).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CaptureError(f"{file}: {error}") from None
        for key in ("tool", "rdmascope", "audit"):
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            return _settings(file, table)
    return AuditSettings()


def _settings(place: str, table: dict[str, Any]) -> AuditSettings:
    kinds: dict[str, type] = {
        "rule": list, "ignore": list, "level": str, "role": str, "connection": list, "examples": int, "fail-on": str,
        "waive": list,
    }  # fmt: skip
    if isinstance(table.get("connection"), int):
        table = {**table, "connection": [table["connection"]]}
    for key, value in table.items():
        if key not in kinds:
            raise CaptureError(f"{place}: [tool.rdmascope.audit] has no {key!r}; there are {', '.join(kinds)}")
        if not isinstance(value, kinds[key]) or isinstance(value, bool):
            raise CaptureError(f"{place}: {key} must be a {kinds[key].__name__}")
    _one_of(place, "level", table.get("level"), [*LEVELS])
    _one_of(place, "role", table.get("role"), [*ROLES[:2], "client", "server"])
    _one_of(place, "fail-on", table.get("fail-on"), ["MUST", "SHOULD", "STATED", "NOTE", "NEVER"])
    waivers = tuple(_waiver(place, entry) for entry in table.get("waive", []))
    names = {key.replace("-", "_"): value for key, value in table.items() if key != "waive"}
    for key in ("rule", "ignore"):
        names[key] = tuple(str(name) for name in names.get(key, ()))
    names["connection"] = tuple(names.get("connection", ()))
    if not all(type(number) is int and number > 0 for number in names["connection"]):
        raise CaptureError(f"{place}: connection must be a number from 1, or a list of them")
    return AuditSettings(**names, waivers=waivers)


def _one_of(place: str, key: str, value: str | None, choices: Any) -> None:
    if value is not None and value.upper() not in [str(choice).upper() for choice in choices]:
        raise CaptureError(f"{place}: {key} is {value!r}; there are {', '.join(choices)}")


def _waiver(place: str, entry: Any) -> Waiver:
    known = {field.name for field in fields(Waiver)}
    if not isinstance(entry, dict) or not set(entry) <= known:
        raise CaptureError(f"{place}: a waiver has {', '.join(sorted(known))}")
    if not entry.get("rule") or not str(entry.get("reason", "")).strip():
        raise CaptureError(f"{place}: a waiver needs a rule and a reason")
    if entry["rule"] not in all_rules():
        raise CaptureError(f"{place}: waiver of {entry['rule']!r}, which is no rule")
    return Waiver(**entry)
