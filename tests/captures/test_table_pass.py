"""One pass that fills several tables says what a pass for each of them says."""

from __future__ import annotations

import pytest

from playbook.commands import BOTH_WAYS, EVERYTHING
from rdmascope.captures import table_pass
from rdmascope.captures.session import Session
from rdmascope.captures.table_pass import table_batches
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import Options

IWARP = EVERYTHING.replace("rxe", "siw")


def rows(path: str, names: list[str], options: Options | None = None) -> dict[str, list[tuple[object, ...]]]:
    found: dict[str, list[tuple[object, ...]]] = {name: [] for name in names}
    for name, columns in table_batches(Session(path, options), dict.fromkeys(names)):
        found[name] += zip(*(values.tolist() for values in columns.values()), strict=True)
    return found


@pytest.mark.parametrize("path", [BOTH_WAYS, IWARP])
def test_all_tables_in_one_pass(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = {name: rows(path, [name])[name] for name in TABLES}
    monkeypatch.setattr(table_pass, "ROWS", 7)
    together = rows(path, list(TABLES))
    assert {name: len(found) for name, found in together.items()} == {name: len(found) for name, found in alone.items()}
    assert together == alone
    assert all(alone[name] for name in ("rpcs", "operations", "chunks", "segments", "packets", "connections", "files"))


def test_evicted_connections_are_in_the_table() -> None:
    few = Options(max_connections=2, ended=0)
    found = rows(EVERYTHING, ["connections", "rpcs", "findings"], few)
    whole = rows(EVERYTHING, ["connections", "rpcs", "findings"])
    assert sorted(str(row[0]) for row in found["connections"]) == [*"1234"]
    assert len(found["rpcs"]) == len(whole["rpcs"]) == 229
    assert len(found["findings"]) == len(whole["findings"])
