"""The audit's page: one look at every tally, however many connections there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from playbook import Wire
from playbook.audits import audit
from playbook.violations import SCRIPTS, hello
from rdmascope.cli.views.diagnosis import page
from rdmascope.dissect.audit.auditor import Auditor, Result


class Counted(dict[Any, Any]):
    """A dictionary that counts what is read of it."""

    reads = 0

    def items(self) -> Any:
        return list(self._counted())

    def _counted(self) -> Iterator[tuple[Any, Any]]:
        for item in super().items():
            Counted.reads += 1
            yield item

    def get(self, key: Any, default: Any = None) -> Any:
        Counted.reads += 1
        return super().get(key, default)


def audited(connections: int) -> Auditor:
    wire = Wire(seed=1)
    SCRIPTS["V1-CREDIT-ZERO"](wire)
    for _ in range(connections - 1):
        hello(wire.connect())
    return audit(wire)


def work(connections: int) -> int:
    """Tallies that were read for the page."""
    auditor = audited(connections)
    auditor.tallies = Counted(auditor.tallies)
    Counted.reads = 0
    console = Console(width=100, record=True)
    with console.capture():
        console.print(page(Result("file", auditor, connections), 100))
    return Counted.reads


def test_the_work_for_the_page_grows_with_the_connections() -> None:
    one, two, four = (work(number) for number in (5, 10, 20))
    assert two < 2.2 * one
    assert four < 2.2 * two


@pytest.mark.parametrize("rule", ["V1-HANDLE-PREDICTABLE", "XC-EXPERIMENTAL"])
def test_notes_are_not_counted_as_violations(rule: str) -> None:
    wire = Wire(seed=1)
    SCRIPTS[rule](wire)
    hello(wire.connections[0])
    result = Result("file", audit(wire), 1)
    assert (result.violations, result.notes) == (0, 1)
    console = Console(width=100)
    with console.capture() as shown:
        console.print(page(result, 100))
    assert "no violation; 1 note" in shown.get()
    assert f"note  {rule}" in shown.get()
