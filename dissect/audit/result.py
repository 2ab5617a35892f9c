"""The result of an audit: the tallies of every rule at every end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..transport.connection import Connection
from .auditor import Auditor, RuleTally, TallyKey
from .rule import Rule

SIDES = ("active", "passive")


class RuleRow(NamedTuple):
    """One rule at one end."""

    connection: Connection
    endpoint: int
    rule: Rule
    tally: RuleTally


@dataclass(frozen=True)
class Result:
    """The audit of one file."""

    file: str
    auditor: Auditor
    rpcs: int
    chosen: frozenset[int] = frozenset()
    """Connections that were asked for; all where there are none."""

    @property
    def connections(self) -> list[Connection]:
        known = self.auditor.connections
        return [known[number] for number in sorted(known) if not self.chosen or number in self.chosen]

    @cached_property
    def by_rule(self) -> dict[str, list[tuple[TallyKey, RuleTally]]]:
        """The tallies of each rule, in the order of connections."""
        found: dict[str, list[tuple[TallyKey, RuleTally]]] = defaultdict(list)
        for place, tally in sorted(self.auditor.tallies.items()):
            found[place.rule].append((place, tally))
        return dict(found)

    @cached_property
    def by_end(self) -> dict[tuple[int, int], list[RuleTally]]:
        """The tallies of each end of a connection, by its number and the end."""
        found: dict[tuple[int, int], list[RuleTally]] = defaultdict(list)
        for place, tally in self.auditor.tallies.items():
            found[place.connection, place.endpoint].append(tally)
        return dict(found)

    @property
    def violations(self) -> int:
        """Notes left out."""
        return sum(tally.violated - tally.notes for tally in self.auditor.tallies.values())

    @property
    def notes(self) -> int:
        return sum(tally.notes for tally in self.auditor.tallies.values())

    @property
    def judged(self) -> bool:
        """There was something to judge."""
        return any(tally.opportunities for tally in self.auditor.tallies.values())

    def rows(self) -> Iterator[RuleRow]:
        """Every rule at every end."""
        for connection in self.connections:
            for endpoint in (0, 1):
                for rule in self.auditor.rules.values():
                    yield RuleRow(connection, endpoint, rule, self.auditor.tally(rule.id, connection.number, endpoint))


def side(endpoint: int) -> str:
    return SIDES[endpoint]


def who(connection: Connection, endpoint: int) -> str:
    """'client 10.0.0.2', 'server 10.0.0.1:20049'."""
    end = connection.endpoints[endpoint]
    if endpoint == 0:
        return f"client {end.address}"
    port = f":{connection.service_port}" if connection.service_port else ""
    return f"server [{end.address}]{port}" if port and ":" in end.address else f"server {end.address}{port}"
