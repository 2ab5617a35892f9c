"""Nouns in full as JSON, and back."""

from __future__ import annotations

import pytest

from playbook.commands import BOTH_WAYS, LOSS
from rdmascope.captures.session.session import Session
from rdmascope.dissect.records.connection import connection_record, transport_record
from rdmascope.dissect.records.details import CaptureSums, DetailError, FileDetails, from_json, to_json
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.transport.health import TransportHealth


@pytest.mark.parametrize(
    "path", [BOTH_WAYS, LOSS, LOSS.replace("rxe", "siw"), LOSS.replace("loss-rxe", "v2-characteristics")]
)
def test_connections_and_sums_come_back_as_they_were(path: str) -> None:
    session = Session(path)
    for _ in session.tables():
        pass
    analyzer = session.analyzer
    sums = CaptureSums.of(analyzer)
    assert from_json(CaptureSums, to_json(sums)) == sums
    for one in analyzer.conversations:
        health = analyzer.health(one.connection.number)
        again, healthy = from_json(Conversation, to_json(one)), from_json(TransportHealth, to_json(health))
        assert (to_json(again), healthy) == (to_json(one), health)
        assert connection_record(again) == connection_record(one)
        assert transport_record(again, healthy) == transport_record(one, health)


def test_files_come_back_with_their_gaps() -> None:
    files = Session(LOSS).files()
    for file in files:
        details = from_json(FileDetails, to_json(FileDetails.of(files, file)))
        again = details.file()
        assert (again.gaps(), again.length, again.hash) == (file.gaps(), file.length, file.hash)
        assert (details.paths, again.calls) == (files.paths(file), file.calls)
        assert (again.latency, again.reads, again.writes) == (file.latency, file.reads, file.writes)
    assert any(file.latency for file in files)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"connection": 7}', '{"frames": "many"}', "[" * 100_000])
def test_what_is_no_such_noun_is_refused(text: str) -> None:
    for kind in (Conversation, CaptureSums, TransportHealth, FileDetails):
        with pytest.raises(DetailError):
            from_json(kind, text)
