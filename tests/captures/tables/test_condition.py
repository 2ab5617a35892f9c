"""Conditions on RPCs: what passes, what is refused, and that tables of the rest are as if nothing else had been."""

from __future__ import annotations

import json
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
from rdmascope.captures.tables.condition import Condition, Sugar
from rdmascope.cli.main import main
from rdmascope.dissect.measure.statistics import Statistics
from rdmascope.dissect.measure.time_options import parse_moment
from rdmascope.dissect.onc.names import program_label
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


def passed(*conditions: str, sugar: Sugar | None = None, name: str = NAME) -> set[int]:
    """Numbers of the RPCs that pass."""
    with closing(Condition(conditions, sugar)) as condition:
        return {rpc.number for table, session in tables(name) for rpc in condition.selected(table, session)}


def meant(wanted: Callable[[Rpc], bool], name: str = NAME) -> set[int]:
    return {rpc.number for table, _ in tables(name) for rpc in table if wanted(rpc)}


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("latency_ms > 100", lambda rpc: rpc.latency is not None and rpc.latency.total > 100_000_000),
        ("status = 'NFS4ERR_GRACE'", lambda rpc: rpc.status == "NFS4ERR_GRACE"),
        ("rpcs.connection = 2 AND reply_bytes > 99", lambda rpc: rpc.connection.number == 2 and rpc.reply_bytes > 99),
        ("operations LIKE '%latency_ms%'", lambda rpc: False),
        ("call_place_frame > 100 AND call_place_file LIKE '%rxe%'", lambda rpc: rpc.call_frame > 100),
        ("true", lambda rpc: True),
    ],
)  # fmt: skip
def test_a_condition_in_sql(condition: str, wanted: Callable[[Rpc], bool]) -> None:
    assert passed(condition) == meant(wanted)


@pytest.mark.parametrize(
    ("sugar", "wanted"),
    [
        (Sugar(procedures=("READ",)), lambda rpc: is_procedure(rpc, "READ")),
        (Sugar(procedures=("open*", "NFSv3.LOOKUP")), lambda rpc: is_procedure(rpc, "OPEN*") or (
            is_procedure(rpc, "NFSv3.LOOKUP"))),
        (Sugar(procedures=("NFSv4.1.READ",)), lambda rpc: is_procedure(rpc, "NFSv4.1.READ")),
        (Sugar(connections=(1, 3)), lambda rpc: rpc.connection.number in (1, 3)),
        (Sugar(clients=("10.77.0.2",)), lambda rpc: True),
        (Sugar(servers=("10.77.0.2",)), lambda rpc: False),
        (Sugar(slower_than=100_000_000), lambda rpc: rpc.latency is not None and rpc.latency.total > 100_000_000),
        (Sugar(errors=True), lambda rpc: rpc.state != "complete"),
    ],
)  # fmt: skip
def test_options_mean_what_the_filters_of_rpcs_do(sugar: Sugar, wanted: Callable[[Rpc], bool]) -> None:
    assert passed(sugar=sugar) == meant(wanted)


def test_spans_of_time_add_up() -> None:
    since, until = parse_moment("10"), parse_moment("20")
    first = Session(str(SAMPLES / f"{NAME}.pcap.zst"))
    next(first.tables())
    begin = first.first_time

    def wanted(rpc: Rpc) -> bool:
        assert rpc.call is not None
        return begin + 10_000_000_000 <= rpc.call.operation.first_time < begin + 20_000_000_000

    assert passed(sugar=Sugar(since=since, until=until)) == meant(wanted) != set()


def test_paths() -> None:
    below, exact = passed(sugar=Sugar(paths=("/",))), passed(sugar=Sugar(paths=("/*r1m",)))
    assert exact and exact < below < meant(lambda rpc: True)


@pytest.mark.parametrize(
    "condition",
    ["nothing > 1", "latency_us >", "number IN (SELECT rpc FROM chunks)", "true; DROP TABLE rpcs", "count(*) > 1",
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
                one_by_one.add(rpc)
    assert of_tables.transfers == one_by_one.transfers and of_tables.connections == one_by_one.connections
    assert [summed(one) for one in of_tables.procedures()] == [summed(one) for one in one_by_one.procedures()]
    assert of_tables.slowest() == one_by_one.slowest()


def summed(one: object) -> Sequence[object]:
    return [
        getattr(one, name) for name in ("key", "calls", "failed", "call_bytes", "reply_bytes", "waited", "statuses")
    ]


def test_a_filter_that_nothing_passes_says_so() -> None:
    with closing(Condition(sugar=Sugar(users=("nobody",)))) as condition:
        for table, session in tables():
            condition.selected(table, session)
        assert condition.problem(session) == "no RPC has the user 'nobody'; there is 0"
    with closing(Condition(sugar=Sugar(procedures=("RAED",)))) as condition:
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
    found = [rpc.number for rpc in capture.where("latency_ms > 100", "connection = 2")]
    assert (
        {*found}
        == meant(lambda rpc: rpc.latency is not None and rpc.latency.total > 100_000_000 and rpc.connection.number == 2)
        != set()
    )
    with pytest.raises(CaptureError, match="no column 'latencies' in the table rpcs; did you mean latency"):
        next(capture.where("latencies > 1"))
