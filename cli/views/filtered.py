"""What a filter left, in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from rdmascope.captures.tables.condition import Condition


def filter_line(condition: Condition, shown: str = "") -> Text:
    """How many RPCs passed, and by what filter; ``shown``: what is there of them."""
    what = f"; {shown}" if shown else ""
    return Text(f"only {condition.passed:,} of {condition.tried:,} RPCs: {condition}{what}", "yellow")


def filter_field(condition: Condition | None) -> dict[str, str]:
    """The filter of a record, where there is one."""
    return {} if condition is None else {"filter": str(condition)}
