"""One pass that fills several tables says what a pass for each of them says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from playbook.commands import BOTH_WAYS, EVERYTHING, LOSS
from rdmascope import Place
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables import table_pass
from rdmascope.captures.tables.browsed_tables import first_columns
from rdmascope.captures.tables.table_pass import table_batches
from rdmascope.dissect.records.tables import TABLES
from rdmascope.dissect.rpcrdma.analyzer import Options

IWARP = EVERYTHING.replace("rxe", "siw")


def rows(path: str, names: list[str], options: Options | None = None) -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
    for name, columns in table_batches(Session(path, options), dict.fromkeys(names)):
        found[name] += zip(*(values.tolist() for values in columns.values()), strict=True)
    return found


@pytest.mark.parametrize("path", [BOTH_WAYS, IWARP])
def test_all_tables_in_one_pass(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = {name: rows(path, [name])[name] for name in TABLES}
    monkeypatch.setattr(table_pass, "ROWS", 7)
    together = rows(path, list(TABLES))
    assert {name: len(found) for name, found in together.items()} == {name: len(found) for name, found in alone.items()}
    for found in (together, alone):
        found["findings"].sort(key=str)  # A connection that is over is judged behind a batch: they are not the same.
    assert together == alone
    assert all(alone[name] for name in ("rpcs", "operations", "chunks", "segments", "packets", "connections", "files"))


def test_evicted_connections_are_in_the_table() -> None:
    few = Options(max_connections=2, ended=0)
    found = rows(EVERYTHING, ["connections", "rpcs", "findings"], few)
    whole = rows(EVERYTHING, ["connections", "rpcs", "findings"])
    assert sorted(int(str(row[0])) for row in found["connections"]) == [*range(1, 12)]
    assert len(found["rpcs"]) == len(whole["rpcs"]) == 237
    assert len(found["findings"]) == len(whole["findings"])


def test_frames_are_placed_in_their_files() -> None:
    paths = [LOSS, LOSS.replace("loss", "nconnect")]
    wanted = {
        "rpcs": ("call_frame", "call_place_file", "call_place_frame", "reply_place_frame"),
        "findings": ("place_file", "place_frame"),
        "connections": ("last_place_file", "last_place_frame", "last_frame"),
        "places": None,
    }
    session = Session(paths)
    found = dict(table_batches(session, wanted))
    rpcs = found["rpcs"]
    places = [session.place(frame or 0) for frame in rpcs["call_frame"].tolist()]
    assert rpcs["call_place_file"].tolist() == [place and place.file for place in places]
    assert rpcs["call_place_frame"].tolist() == [place and place.frame for place in places]
    assert {*rpcs["call_place_file"].tolist()} == {*paths}
    assert "reply_frame" in rpcs  # Its place is made of it.
    ends = zip(*(found["connections"][name].tolist() for name in wanted["connections"] or ()), strict=True)
    assert [Place(file, number) for file, number, _ in ends] == [
        session.place(frame) for frame in found["connections"]["last_frame"].tolist()
    ]
    runs = list(zip(*(values.tolist() for values in found["places"].values()), strict=True))
    assert sum(last - first + 1 for first, last, *_ in runs) == session.analyzer.frames
    assert all(session.place(first) == (file, frame) for first, _, file, frame in runs)
    alone = next(columns for _, columns in table_batches(Session(LOSS), {"findings": ("frame", "place_frame")}))
    assert alone["place_frame"].tolist() == alone["frame"].tolist() != []


@pytest.mark.parametrize("path", [BOTH_WAYS, EVERYTHING, IWARP])
def test_rpcs_with_chunks_are_the_same_as_rows_and_as_objects(path: str) -> None:
    columns = first_columns("rpcs")
    as_rows = dict(table_batches(Session(path), {"rpcs": columns}))
    as_objects = dict(table_batches(Session(path), {"rpcs": columns, "chunks": None}))
    assert {name: values.tolist() for name, values in as_rows["rpcs"].items()} == {
        name: values.tolist() for name, values in as_objects["rpcs"].items()
    }


def test_there_are_rows_with_chunks_and_some_whose_reply_came_by_one() -> None:
    with_chunks = long = 0
    for table in Session(EVERYTHING).tables(chunk_rows=True):
        with_chunks += int(np.count_nonzero(table.only_rows["chunks"] >= 0))
        long += len(table.long_rows)
    assert with_chunks > long > 0
