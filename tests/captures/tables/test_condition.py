"""Conditions on RPCs: what passes, what is refused, and that tables of the rest are as if nothing else had been."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from click.testing import CliRunner

import rdmascope
from playbook.samples import SAMPLES
from rdmascope.captures.errors import CaptureError
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import Condition, Filters
from rdmascope.captures.tables.typed_sql import typed
from rdmascope.cli.main import main
from rdmascope.dissect.measure.statistics import Statistics
from rdmascope.dissect.measure.time_options import parse_moment
from rdmascope.dissect.onc.rpc_header import program_label
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import Rpc

NAME = "rxe-nfs-all"


def is_procedure(rpc: Rpc, name: str) -> bool:
    """Whether ``name`` is what is called: the procedure, an operation of the COMPOUND, or either after a program."""
    program, _, procedure = name.upper().rpartition(".")
    versions = ((), (rpc.version,), (rpc.version, rpc.minor_version))
    labels = [program_label(rpc.program, *(one or (None,))).upper() for one in versions]
    called = (rpc.name.upper(), *rpc.operations)
    return (not program or program in labels) and any(fnmatchcase(one, procedure) for one in called)


def tables(name: str = NAME) -> Iterator[tuple[RpcTable, Session]]:
    session = Session(str(SAMPLES / f"{name}.pcap.zst"))
    for table in session.tables():
        yield table, session


def passed(*conditions: str, filters: Filters | None = None, name: str = NAME) -> set[int]:
    """Numbers of the RPCs that pass."""
    with closing(Condition(conditions, filters)) as condition:
        return {rpc.number for table, session in tables(name) for rpc in condition.selected(table, session)}


def meant(wanted: Callable[[Rpc], bool], name: str = NAME) -> set[int]:
    return {rpc.number for table, _ in tables(name) for rpc in table if wanted(rpc)}


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("latency_ns > 100ms", lambda rpc: rpc.latency is not None and rpc.latency.total > 100_000_000),
        ("status = 'NFS4ERR_GRACE'", lambda rpc: rpc.status == "NFS4ERR_GRACE"),
        ("rpcs.connection = 7 AND reply_bytes > 99", lambda rpc: rpc.connection.number == 7 and rpc.reply_bytes > 99),
        ("operations LIKE '%latency_ns%'", lambda rpc: False),
        ("call_place_frame > 100 AND call_place_file LIKE '%rxe%'", lambda rpc: rpc.call_frame > 100),
        ("true", lambda rpc: True),
    ],
)  # fmt: skip
def test_a_condition_in_sql(condition: str, wanted: Callable[[Rpc], bool]) -> None:
    assert passed(condition) == meant(wanted)


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (Filters(procedures=("READ",)), lambda rpc: is_procedure(rpc, "READ")),
        (Filters(procedures=("open*", "NFSv3.LOOKUP")), lambda rpc: is_procedure(rpc, "OPEN*") or (
            is_procedure(rpc, "NFSv3.LOOKUP"))),
        (Filters(procedures=("NFSv4.1.READ",)), lambda rpc: is_procedure(rpc, "NFSv4.1.READ")),
        (Filters(connections=(3, 10)), lambda rpc: rpc.connection.number in (3, 10)),
        (Filters(clients=("10.77.0.2",)), lambda rpc: rpc.connection.endpoints[0].address == "10.77.0.2"),
        (Filters(servers=("10.77.0.2",)), lambda rpc: rpc.connection.endpoints[1].address == "10.77.0.2"),
        (Filters(slower_than=100_000_000), lambda rpc: rpc.latency is not None and rpc.latency.total > 100_000_000),
        (Filters(errors=True), lambda rpc: rpc.state != "complete"),
    ],
)  # fmt: skip
def test_options_mean_what_the_filters_of_rpcs_do(filters: Filters, wanted: Callable[[Rpc], bool]) -> None:
    assert passed(filters=filters) == meant(wanted)


@pytest.mark.parametrize("name", [NAME, "meta-rxe", "loss-siw"])
@pytest.mark.parametrize(
    "filters",
    [
        Filters(procedures=("*A*", "NFSv3.WRITE", "nope")),
        Filters(clients=("10.77.0.2", "10.0.0.1"), connections=(1, 2)),
        Filters(servers=("10.77.0.1",), slower_than=50_000_000),
        Filters(paths=("/export", "/*1*"), errors=True),
        Filters(users=("0", "1000"), since=parse_moment("5s"), until=parse_moment("60s")),
    ],
)
def test_options_in_numpy_are_those_in_sql(filters: Filters, name: str) -> None:
    assert passed(filters=filters, name=name) == passed(*filters.conditions(first_time(name)), name=name)


def first_time(name: str) -> int:
    session = Session(str(SAMPLES / f"{name}.pcap.zst"))
    next(session.tables())
    return session.first_time


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("count > 65536", "count_bytes > 65536"),
        ("count > 64KiB AND offset = 0", "count_bytes > 65536 AND offset_bytes = 0"),
        ("xid = 0x9bc24159", "xid = 2613199193"),
        ("latency > 100ms", "waiting_ns > 100000000"),
        ("conn = 2 AND rpc < 127", "connection = 2 AND number < 127"),
        ("procedure = 'READ'", "upper(procedure) = 'READ' OR list_contains(operations, 'READ')"),
        ("procedure IN ('READ', 'WRITE') and latency_ns > 1.5ms",
         "latency_ns > 1500000 AND (list_has_any(operations, ['READ', 'WRITE']) OR"
         " upper(procedure) IN ('READ', 'WRITE'))"),
        ("procedure != 'READ'", "NOT coalesce(list_contains(operations, 'READ') OR upper(procedure) = 'READ', false)"),
        ("operations LIKE '%PUTFH READ%'", "array_to_string(operations, ' ') LIKE '%PUTFH READ%'"),
        ("user = '0' and to_client > 1k", "\"user\" = '0' AND reply_bytes > 1000"),
    ],
)  # fmt: skip
def test_what_is_on_the_screen_is_understood(written: str, same: str) -> None:
    assert passed(written) == passed(same) != set()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("count > 10ms", "10ms: count_bytes is not in ns"),
        ("latency > 4KiB", "4KiB: waiting_ns is not in bytes"),
        ("latency_ms > 10", "no column 'latency_ms' in the table rpcs; did you mean latency"),
        ("frames = 27", "no column 'frames' in the table rpcs: it is made of call_frame and reply_frame"),
        ("conns = 1", "no column 'conns' in the table rpcs; did you mean conn"),
        ("procedure = READ", "lists them; a text stands in single quotes: 'READ'"),
        ('procedure = "READ"', "lists them; a text stands in single quotes: 'READ'"),
    ],
)
def test_an_error_names_the_column(written: str, words: str) -> None:
    with pytest.raises(CaptureError, match=re.escape(words)):
        Condition([written])


@pytest.mark.parametrize(
    "query, said",
    [
        ("SELECT count(*) FROM rpcs WHERE procedure = 'WRITE'", True),
        ("SELECT count(*) FROM rpcs WHERE procedure = 'COMPOUND'", False),
        ("SELECT count(*) FROM rpcs WHERE procedure = 'WRITE' OR list_contains(operations, 'WRITE')", False),
    ],
)
def test_a_query_for_an_operation_says_that_compounds_have_it(query: str, said: bool) -> None:
    found = typed(query, condition=False)
    assert found.sql == query
    assert ["list_contains(operations, 'WRITE')" in one for one in found.remarks] == [True] * said


def test_spans_of_time_add_up() -> None:
    since, until = parse_moment("10"), parse_moment("20")
    first = Session(str(SAMPLES / f"{NAME}.pcap.zst"))
    next(first.tables())
    begin = first.first_time

    def wanted(rpc: Rpc) -> bool:
        assert rpc.call is not None
        return begin + 10_000_000_000 <= rpc.call.operation.first_time < begin + 20_000_000_000

    assert passed(filters=Filters(since=since, until=until)) == meant(wanted) != set()


def test_paths() -> None:
    below, exact = passed(filters=Filters(paths=("/",))), passed(filters=Filters(paths=("/*r1m",)))
    assert exact and exact < below < meant(lambda rpc: True)


@pytest.mark.parametrize(
    "condition",
    ["nothing > 1", "latency_ns >", "number IN (SELECT rpc FROM chunks)", "true; DROP TABLE rpcs", "count(*) > 1",
     "number = (FROM rpcs)"],
)  # fmt: skip
def test_what_is_no_condition_is_refused(condition: str) -> None:
    with pytest.raises(CaptureError, match="--where"):
        Condition([condition])


@pytest.mark.parametrize(
    "condition",
    ["getenv('HOME') IS NOT NULL", "CAST(status AS INTEGER) > 1", "number > (TABLE connections)",
     "len((VALUES (1))) > 0 AND read_text('x') <> ''"],
)  # fmt: skip
def test_what_cannot_be_judged_is_one_clear_error(condition: str) -> None:
    with pytest.raises(CaptureError):
        passed(condition)


@pytest.mark.parametrize("name", ["meta-rxe", "longcall-rxe", NAME])
def test_statistics_of_a_selection_are_those_of_its_rpcs(name: str) -> None:
    """Rows that stay in columns, RPCs that are objects, and long replies of either."""
    of_tables, one_by_one = Statistics(), Statistics()
    with closing(Condition(["number % 3 = 1"])) as condition:
        for table, session in tables(name):
            chosen = condition.selected(table, session)
            of_tables.add_table(chosen)
            for rpc in chosen:
                one_by_one.add_table(RpcTable([rpc]))
    assert of_tables.transfers == one_by_one.transfers and of_tables.connections == one_by_one.connections
    assert [summed(one) for one in of_tables.procedures()] == [summed(one) for one in one_by_one.procedures()]
    assert of_tables.slowest() == one_by_one.slowest()


def summed(one: object) -> Sequence[object]:
    return [
        getattr(one, name) for name in ("key", "calls", "failed", "call_bytes", "reply_bytes", "waited", "statuses")
    ]


def test_a_filter_that_nothing_passes_says_so() -> None:
    with closing(Condition(filters=Filters(users=("nobody",)))) as condition:
        for table, session in tables():
            condition.selected(table, session)
        assert condition.problem(session) == "no RPC has the user 'nobody'; there is 0"
    with closing(Condition(filters=Filters(procedures=("RAED",)))) as condition:
        for table, session in tables():
            condition.selected(table, session)
        assert condition.problem(session).startswith("no procedure or operation 'RAED'; did you mean READ")


def test_export_of_what_passes(tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    done = CliRunner().invoke(
        main, ["export", str(SAMPLES / f"{NAME}.pcap.zst"), "-o", str(out), "--procedure", "READ", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["messages"] == 2 * len(meant(lambda rpc: is_procedure(rpc, "READ")))


def test_the_library_has_conditions_too() -> None:
    capture = rdmascope.read(SAMPLES / f"{NAME}.pcap.zst")
    found = [rpc.number for rpc in capture.where("latency_ns > 100ms", "connection = 7")]
    assert (
        {*found}
        == meant(lambda rpc: rpc.latency is not None and rpc.latency.total > 100_000_000 and rpc.connection.number == 7)
        != set()
    )
    with pytest.raises(CaptureError, match="no column 'latencies' in the table rpcs; did you mean latency"):
        next(capture.where("latencies > 1"))
