"""Findings that are known and accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .finding import Finding


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
