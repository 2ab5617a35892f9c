"""The result of an audit: the tallies of every rule at every end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..transport.connection import Connection
from .auditor import Auditor, RuleTally
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
    chosen: int | None = None

    @property
    def connections(self) -> list[Connection]:
        known = self.auditor.connections
        return [known[number] for number in sorted(known) if self.chosen in (None, number)]

    @property
    def violations(self) -> int:
        return sum(tally.violated for tally in self.auditor.tallies.values())

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
