"""Where the time went: each detector where it speaks, and where it does not."""

from __future__ import annotations

from typing import Any

import pytest

from playbook.facts import (
    MILLISECOND,
    SECOND,
    START,
    connection,
    direction,
    facts,
    found,
    health,
    kinds,
    many,
    rpc,
    silent,
    speaks,
)
from rdmascope.dissect.diagnosis.detectors import latency
from rdmascope.dissect.diagnosis.facts import Severity
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.connection import Endpoint

FIRST, SECOND_CONNECTION, THIRD = connection(1), connection(2), connection(3)


@speaks("server-time")
def test_a_slow_server() -> None:
    (said,) = found(facts([*many(40, "WRITE", takes=30 * MILLISECOND), *many(100, "GETATTR", 41)]))
    assert said.kind == "server-time" and said.cause.count == 40 and said.cause.rpcs == (1, 2, 3, 4, 5)
    assert said.cause.text.startswith("NFSv3 WRITE: 1.20 s of server time, median 30.0 ms")
    assert said.cause.share == pytest.approx(0.923, abs=0.001)


def test_calls_without_a_reply_are_no_example_of_a_slow_server() -> None:
    hung = [rpc(number, "WRITE", answered=False) for number in range(41, 61)]
    (said,) = found(facts([*many(40, "WRITE", takes=30 * MILLISECOND), *hung]), "server-time")
    assert said.cause.rpcs == (1, 2, 3, 4, 5)


@pytest.mark.parametrize("rpcs", [many(19, takes=30 * MILLISECOND), many(200, takes=19 * MILLISECOND)])
@silent("server-time")
def test_few_or_quick_rpcs_are_nothing(rpcs: list[Rpc]) -> None:
    assert not kinds(facts(rpcs))


@speaks("slower-since")
def test_a_server_that_became_slower() -> None:
    quick = many(400, "READ", takes=MILLISECOND)
    slow = [rpc(401 + at, "READ", at=60 * SECOND + at * 50 * MILLISECOND, takes=9 * MILLISECOND) for at in range(400)]
    (said,) = found(facts([*quick, *slow]))
    assert (
        said.kind == "slower-since" and said.cause.text == "NFSv3 READ: mean server time rose from 1.00 ms to 9.00 ms"
    )
    assert said.cause.since is not None and abs(said.cause.since - START - 60 * SECOND) < 3 * SECOND
    assert said.cause.count == 400


@silent("slower-since")
def test_a_server_that_is_slow_all_the_time_or_now_and_then_did_not_become_slower() -> None:
    mixed = [rpc(number, "READ", takes=(9 if number % 2 else 1) * MILLISECOND) for number in range(1, 801)]
    assert not kinds(facts(mixed))
    assert not kinds(facts(many(800, "READ", takes=9 * MILLISECOND)))


@pytest.mark.parametrize(("kind", "parts"), [("read-phase", (40, 0)), ("write-phase", (0, 40))])
@speaks("read-phase", "write-phase")
def test_slow_transfers(kind: str, parts: tuple[int, int]) -> None:
    reads, writes = (part * MILLISECOND for part in parts)
    (said,) = found(facts(many(50, "WRITE", takes=50 * MILLISECOND, parts=(reads, writes))))
    assert said.kind == kind and said.cause.share == pytest.approx(0.8) and "median 40.0 ms" in said.cause.text


def test_one_read_at_a_time_and_small_packets_are_named() -> None:
    given = many(50, "WRITE", takes=50 * MILLISECOND, parts=(40 * MILLISECOND, 0))
    one = health(1, server=direction(read_depth=1), path_mtu=1024)
    (said,) = found(facts(given, [one]))
    assert any("one RDMA Read at a time" in line for line in said.cause.evidence)
    assert any("path MTU 1024" in line for line in said.cause.evidence)


@silent("read-phase", "write-phase")
def test_quick_transfers_are_nothing() -> None:
    assert not kinds(facts(many(50, "WRITE", takes=5 * MILLISECOND, parts=(4 * MILLISECOND, 0))))


def three(slow: int) -> list[Rpc]:
    """Calls on three connections in turn; those on the third take so many milliseconds, the others one."""
    return [
        rpc(number, on=(THIRD, FIRST, SECOND_CONNECTION)[number % 3], takes=(1 if number % 3 else slow) * MILLISECOND)
        for number in range(1, 601)
    ]


ALL = (FIRST, SECOND_CONNECTION, THIRD)


@speaks("slow-connection")
def test_one_slow_connection_among_three() -> None:
    (said,) = found(facts(three(8), conversations=ALL))
    assert said.kind == "slow-connection" and said.cause.connections == (3,)
    assert "8.0 times that of the 2 others" in said.cause.text


@silent("slow-connection")
def test_connections_that_are_alike_are_nothing() -> None:
    assert not kinds(facts(three(2), conversations=ALL))


@silent("slow-connection")
def test_a_connection_with_other_procedures_is_not_compared() -> None:
    given = [*many(200, on=FIRST), *many(200, "WRITE", 201, on=SECOND_CONNECTION, takes=9 * MILLISECOND)]
    assert not kinds(facts(given, conversations=(FIRST, SECOND_CONNECTION)))


def two(count: int = 200, **slow: Any) -> list[Rpc]:
    """Calls on the first and the second connection at the same time; the second takes eight times as long."""
    given = [rpc(2 * number, at=number * MILLISECOND) for number in range(1, 201)]
    slow = {"takes": 8 * MILLISECOND, **slow}
    return given + [
        rpc(2 * number + 1, on=SECOND_CONNECTION, at=number * MILLISECOND, **slow) for number in range(1, count + 1)
    ]


@speaks("slow-connection")
def test_one_slow_connection_of_two() -> None:
    (said,) = found(facts(two(), conversations=ALL[:2]), "slow-connection")
    assert "8.0 times that of the other" in said.cause.text


@silent("slow-connection")
@pytest.mark.parametrize(
    "given",
    [two(20), two(inline=(100, 4000)), two(operations=("READ",)), [*two(), rpc(999, on=FIRST, operations=("READ",))]],
    ids=["few calls", "longer replies", "another version", "two versions on one"],
)
def test_connections_of_other_loads_are_not_compared(given: list[Rpc]) -> None:
    assert not found(facts(given, conversations=ALL[:2]), "slow-connection")


@silent("slow-connection")
def test_connections_that_were_busy_at_different_times_are_not_compared() -> None:
    given = [*many(200, on=FIRST), *many(200, first=4001, on=SECOND_CONNECTION, takes=9 * MILLISECOND)]
    assert not found(facts(given, conversations=ALL[:2]), "slow-connection")


@silent("slow-connection")
@pytest.mark.parametrize(
    "other",
    [
        connection(2, first_time=START + 2 * SECOND),
        connection(2, service_port=20050),
        connection(2, endpoints=(Endpoint("10.0.0.2", 18), Endpoint("10.0.0.1", 34))),
    ],
    ids=["opened later", "another port", "began before the capture"],
)
def test_connections_that_are_not_known_to_be_of_one_mount_are_not_compared(other: Conversation) -> None:
    assert not found(facts(two(), conversations=(FIRST, other)), "slow-connection")


OTHER_CLIENT = connection(
    2, endpoints=(Endpoint("10.0.0.3", 18, private_data_frame=1), Endpoint("10.0.0.1", 34, private_data_frame=2))
)


@speaks("slow-connection")
def test_one_of_two_clients_is_slower() -> None:
    (said,) = found(facts(two(takes=20 * MILLISECOND), conversations=(FIRST, OTHER_CLIENT)), "slow-connection")
    assert (said.severity, said.title) == (Severity.WARNING, "One client slower than the others of its server")
    assert said.cause.connections == (2,) and "20.0 times that of the other" in said.cause.text


@silent("slow-connection")
@pytest.mark.parametrize(
    "given",
    [two(), two(20, takes=20 * MILLISECOND), two(takes=20 * MILLISECOND, operations=("READ",))],
    ids=["eight times as long", "few calls", "another version"],
)
def test_clients_are_compared_only_where_they_do_the_same(given: list[Rpc]) -> None:
    assert not found(facts(given, conversations=(FIRST, OTHER_CLIENT)), "slow-connection")


def test_the_busiest_clients_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "MAX_CLIENTS", 2)
    ends = [(Endpoint(f"10.0.0.{client}", 0), Endpoint("10.0.0.1", 0)) for client in (2, 3, 4, 2)]
    four = [connection(number, endpoints=each) for number, each in enumerate(ends, 1)]
    calls = [each for number, one in enumerate(four) for each in many(10 + number, first=100 * number + 1, on=one)]
    assert [*latency._clients(facts(calls, conversations=four))] == [{"10.0.0.4": 3, "10.0.0.2": 4}]


@speaks("unequal-connections")
@silent("unequal-connections")
def test_connections_that_carry_nothing() -> None:
    (said,) = found(facts([*many(1190, on=FIRST), *many(10, first=1191, on=SECOND_CONNECTION)], conversations=ALL[:2]))
    assert said.kind == "unequal-connections" and said.cause.connections == (1, 2) and said.cause.count == 1190
    even = [*many(600, on=FIRST), *many(600, first=601, on=SECOND_CONNECTION)]
    assert not kinds(facts(even, conversations=ALL[:2]))
