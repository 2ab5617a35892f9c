"""Which rules are meant by names, levels and roles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .finding import Finding
from .rule import LEVELS, Level, Rule, all_rules


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


def not_waived(waivers: Sequence[Waiver]) -> Callable[[Finding], bool] | None:
    """Whether a finding counts; None where every one does."""
    if not waivers:
        return None
    return lambda finding: not any(waiver.covers(finding) for waiver in waivers)


class UnknownRule(ValueError):
    """A name that no rule has."""


def matching_rules(*names: str) -> frozenset[str]:
    """Ids of the rules that are meant by these names; a name may end with a star.  Raises UnknownRule."""
    found: set[str] = set()
    for name in names:
        some = {id for id in all_rules() if _matches(id, name)}
        if not some:
            raise UnknownRule(f"no rule {name!r}; 'rdmascope rules' lists them")
        found |= some
    return frozenset(found)


def _matches(id: str, name: str) -> bool:
    return id == name.upper() or (name.endswith("*") and id.startswith(name[:-1].upper()))


def select_rules(
    names: Iterable[str] = (), ignore: Iterable[str] = (), level: str | None = None, role: str | None = None
) -> list[Rule]:
    """The rules of these names (all where there is none) but the ignored ones, of ``level`` or above, about ``role``.

    Raises UnknownRule for a name that no rule has.
    """
    every = all_rules()
    wanted = tuple(names)
    chosen = (matching_rules(*wanted) if wanted else frozenset(every)) - matching_rules(*ignore)
    kept = [rule for id, rule in every.items() if id in chosen]
    if level:
        lowest = LEVELS.index(Level(level.upper()))
        kept = [rule for rule in kept if LEVELS.index(rule.level) <= lowest]
    return [rule for rule in kept if role is None or rule.role in (role, "either")]
