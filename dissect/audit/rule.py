"""Rule: one requirement of a specification, and the function that judges it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from ..plugged import guarded, origin
from .audit_event import Subject
from .judgement import Judgement
from .traits import CHUNK_LISTS, SECOND


class Level(StrEnum):
    """How strongly a document words a requirement (RFC 2119)."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    STATED = "STATED"
    """Behaviour the document states without a requirement word."""


LEVELS = tuple(Level)
"""Strongest first."""

ROLES = ("requester", "responder", "either")

DOCUMENTS = {
    "V1": "draft-ietf-nfsv4-rfc5666bis-04",
    "PD": "draft-ietf-nfsv4-rpcrdma-cm-pvt-data-08",
    "V2": "draft-cel-nfsv4-rpcrdma-version-two-01",
    "XC": "draft-dnoveck-nfsv4-rpcrdma-xcharext-02",
}
"""The drafts, by the first part of a rule's id."""

UNCHECKED = ("RFC 8166", "RFC 8167")
"""RFCs whose section numbers are the drafts', counted on; RFC 8797's were looked up."""

SHORT = {"V1": "rfc5666bis-04", "PD": "cm-pvt-data-08", "V2": "version-two-01", "XC": "xcharext-02"}
"""The drafts in a word."""

Judge = Callable[[Any], Judgement | None]
Function = TypeVar("Function", bound=Judge)


@dataclass(frozen=True, slots=True)
class Rule:
    """A requirement.  ``judge`` looks at one noun and gives a Judgement, or None where there is nothing to judge."""

    id: str
    title: str
    level: Level
    section: str
    """Of the draft."""
    final: str
    """Document and section of the final RFC; '' where the draft did not become one."""
    role: str
    """The end that is judged: 'requester', 'responder' or 'either'."""
    subject: type[Subject]
    """The noun that ``judge`` takes."""
    judge: Judge
    needs: int
    """What the noun must have, in the bits of ``shape``; of others ``judge`` would say nothing."""
    backward: bool | None
    """Judges only backward (True) or only forward (False) messages; None: both."""
    unjudgeable: str
    """Why no capture can show it; '' where one can."""
    plugin: str = ""
    """What brought it; '': rdmascope."""

    def __reduce__(self) -> tuple[Callable[[str], Rule], tuple[str]]:
        return _registered, (self.id,)

    @property
    def document(self) -> str:
        return DOCUMENTS.get(self.id.partition("-")[0], self.final)

    @property
    def cited(self) -> str:
        """Where the requirement stands: in the draft, and in the RFC where one came of it."""
        draft = SHORT.get(self.id.partition("-")[0], "")
        if not draft:
            return f"{self.final}, {self.section}" if self.section else self.final
        final, _, section = self.final.partition(", ")
        if section.replace(" and ", ", ") == self.section:
            return f"{draft} and {self.final}"
        return f"{draft}, {self.section}; {self.final}" if final else f"{draft}, {self.section}"

    @property
    def sources(self) -> str:
        """All places where it stands."""
        if self.document == self.final:
            return self.cited
        found = f"{self.document}, section {self.section}"
        if not self.final:
            return found
        unchecked = self.final.startswith(UNCHECKED)
        return f"{found}; {self.final}" + (" (section number not checked against the RFC's text)" if unchecked else "")

    def applies(self, backward: bool, shape: int) -> bool:
        """Whether it is about a message of this direction.  In version 2 backward calls may have chunks, too."""
        if backward and self.backward is False:
            return bool(self.needs & CHUNK_LISTS and shape & SECOND)
        return self.backward in (None, backward)

    @property
    def paragraphs(self) -> dict[str, str]:
        """The docstring: 'What', 'Why', 'Right' and 'Wrong', each one line of text."""
        found: dict[str, str] = {}
        for part in (inspect.getdoc(self.judge) or "").split("\n\n"):
            text = " ".join(part.split())
            head, colon, rest = text.partition(": ")
            key = head if colon and head in ("Why", "Right", "Wrong") else "What"
            found[key] = f"{found[key]} {text}" if key in found else rest if key != "What" else text
        return found


_RULES: dict[str, Rule] = {}


def _registered(id: str) -> Rule:
    """What a rule is to another process: ``judge`` is not sent."""
    return _RULES.get(id) or all_rules()[id]


def rule(
    id: str,
    title: str,
    level: Level,
    section: str,
    final: str,
    subject: type[Subject],
    role: str = "either",
    *,
    needs: int = 0,
    backward: bool | None = None,
    unjudgeable: str = "",
) -> Callable[[Function], Function]:
    """Register the function below as the judge of a rule."""

    def register(judge: Function) -> Function:
        if id in _RULES and inspect.unwrap(_RULES[id].judge).__code__ != judge.__code__:
            raise ValueError(f"there is a rule {id} already")
        if role not in ROLES:
            raise ValueError(f"rule {id}: no role {role!r}; there are {', '.join(ROLES)}")
        given = id, title, level, section, final, role, subject, guarded(judge), needs, backward, unjudgeable
        _RULES[id] = Rule(*given, plugin=origin())
        return judge

    return register


def all_rules() -> dict[str, Rule]:
    """Every rule of the package by id, in the order of ids."""
    package = __name__.rpartition(".")[0] + ".rules"
    for module in iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")
    return dict(sorted(_RULES.items()))
