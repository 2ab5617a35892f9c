"""Retransmissions, congestion and damage: each detector where it speaks, and where it does not."""

from __future__ import annotations

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
    retransmitted,
    rpc,
    silent,
    speaks,
)
from rdmascope.dissect.diagnosis.facts import Severity
from rdmascope.dissect.transport.health import NegativeAcknowledgement, TransportHealth
from rdmascope.dissect.transport.retransmissions import InferredLoss, Tally

WAITED = [*many(90), *(rpc(number, delay=5 * MILLISECOND, takes=6 * MILLISECOND) for number in range(91, 101))]


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ("NAK sequence error", "packets-lost"),
        ("implied NAK", "packets-lost"),
        ("fast retransmit", "packets-lost"),
        ("timeout", "retransmission-timeouts"),
        ("unknown", "retransmissions-unexplained"),
    ],
)
@speaks("packets-lost", "retransmission-timeouts", "retransmissions-unexplained")
def test_retransmissions_by_cause(cause: str, kind: str) -> None:
    (said,) = found(facts(WAITED, [retransmitted(cause, 5, 10 * MILLISECOND)]))
    assert said.kind == kind and said.cause.count == 5 and said.cause.connections == (1,)
    assert "50 packets retransmitted" in said.cause.text and "RPCs delayed 50.0 ms" in said.cause.text
    assert said.cause.share == pytest.approx(50 / 150, abs=1e-6)
    assert said.cause.share_of == "the time that all RPCs waited"
    assert set(said.cause.rpcs) <= set(range(91, 101)) and said.cause.since == START


@pytest.mark.parametrize(
    ("lost", "line"),
    [
        ([("request", True)] * 2, "2 lost toward the server"),
        ([("response", False)] * 3, "3 lost toward the client (or missed by the capture)"),
        (
            [("request", True), ("segment", False), ("acknowledgement", False), ("unknown", True)],
            "2 lost toward the server, 1 toward the client, 1 in an unknown direction"
            " (2 of them perhaps missed by the capture)",
        ),
    ],
)
def test_where_packets_were_lost(lost: list[tuple[str, bool]], line: str) -> None:
    given = retransmitted("timeout", len(lost), 10 * MILLISECOND)
    listed = [
        one._replace(lost=what, lost_packet_captured=seen)
        for one, (what, seen) in zip(given.retransmissions, lost, strict=True)
    ]
    (said,) = found(facts(WAITED, [given._replace(retransmissions=tuple(listed))]))
    assert line in said.cause.evidence


def test_what_a_hung_call_waited_for_retransmissions_is_counted_there_and_only_there() -> None:
    hung = rpc(101, at=2 * SECOND, answered=False, delay=50 * MILLISECOND)
    first, second = found(facts([*WAITED, hung], [retransmitted("NAK sequence error", 5, 10 * MILLISECOND)]))
    assert (first.kind, second.kind) == ("calls-hung", "packets-lost")
    assert "RPCs delayed 100 ms" in second.cause.text and second.cause.lost == 100 * MILLISECOND
    assert second.cause.rpcs[0] == 101
    assert (first.cause.lost or 0) + (second.cause.lost or 0) == 98 * SECOND + 50 * MILLISECOND


def test_what_a_hung_call_waited_for_a_host_that_is_gone_is_no_retransmission_to_it() -> None:
    hung = rpc(101, at=50 * SECOND, answered=False, delay=40 * SECOND)
    gone = retransmitted("timeout", 5, 10 * MILLISECOND)
    client = gone.directions[0]._replace(last_time=START + 99 * SECOND, waiting_since=START + 50 * SECOND)
    spoke = direction(last_time=START + 50 * SECOND)
    said = {
        one.kind: one.cause.lost for one in found(facts([*WAITED, hung], [gone._replace(directions=(client, spoke))]))
    }
    assert said["host-silent"] == 50 * SECOND and said["retransmission-timeouts"] == 50 * MILLISECOND


def test_retransmissions_that_no_rpc_waited_for_are_a_warning() -> None:
    (said,) = found(facts(many(100), [retransmitted("timeout", 5)]))
    assert said.severity is Severity.WARNING and "no RPC known to be delayed" in said.cause.text


def test_whether_a_timer_expired_is_not_known_where_acknowledgements_are_not_captured() -> None:
    half = connection(1, paired_by="one direction only")
    (said,) = found(facts(many(100, on=half), [retransmitted("timeout", 5)], (half,)), "retransmission-timeouts")
    assert said.title.endswith("lacks the acknowledgements") and said.cause.confidence <= 0.5
    assert "timeout" not in said.cause.text and not any("lost" in line for line in said.cause.evidence)


@pytest.mark.parametrize("cause", ["timeout", "implied NAK", "unknown", "duplicate"])
@silent("packets-lost", "retransmission-timeouts", "retransmissions-unexplained")
def test_a_single_cheap_retransmission_is_nothing(cause: str) -> None:
    assert kinds(facts(many(1000), [retransmitted(cause, 1)])) <= {"packets-duplicated"}


def test_a_single_dear_timeout_is() -> None:
    given = [*many(10), rpc(11, delay=400 * MILLISECOND, takes=400 * MILLISECOND)]
    assert kinds(facts(given, [retransmitted("timeout", 1, 400 * MILLISECOND)])) == {"retransmission-timeouts"}


@speaks("receiver-not-ready")
def test_receivers_without_buffers() -> None:
    nak = NegativeAcknowledgement(40, START, 7, "RNR NAK, 655 ms", 655 * MILLISECOND)
    (said,) = found(facts(many(100), [health(1, server=direction(rnr_naks=(nak,) * 4, rnr_count=4))]))
    assert said.kind == "receiver-not-ready" and said.cause.count == 4 and said.cause.frames == (40,) * 4
    assert "2.62 s" in said.cause.text and "from the server with a timer of 655 ms" in said.cause.evidence[0]


@silent("receiver-not-ready")
def test_one_rnr_nak_is_nothing() -> None:
    nak = NegativeAcknowledgement(40, START, 7, "RNR NAK, 0.64 ms", 640_000)
    assert not found(facts(many(100), [health(1, server=direction(rnr_naks=(nak,), rnr_count=1))]))


@speaks("congestion")
def test_congestion() -> None:
    (said,) = found(facts(many(100), [health(1, direction(ecn_marked=200), server=direction(cnps=30))]))
    assert said.kind == "congestion" and said.severity is Severity.WARNING and said.cause.count == 230
    assert said.cause.evidence == (
        "connection 1, 10.0.0.2 to 10.0.0.1:20049, sent by the client: 200 marked, 0 notifications, 0 echoes",
        "connection 1, 10.0.0.2 to 10.0.0.1:20049, sent by the server: 0 marked, 30 notifications, 0 echoes",
    )


@silent("congestion")
def test_a_few_marks_are_nothing() -> None:
    assert not found(facts(many(100), [health(1, direction(ecn_marked=9))]))
    assert not found(facts(many(100), [health(1, direction(ecn_marked=15, packets=100_000))]))


@speaks("packets-damaged")
@silent("packets-damaged")
def test_damaged_packets() -> None:
    (said,) = found(facts(many(100), [health(1, direction(icrc_failures=(12,), icrc_failure_count=1))]))
    assert said.kind == "packets-damaged" and said.cause.frames == (12,)
    assert not found(facts(many(100), [health(1)]))


def test_wrong_markers_are_no_wrong_checksums() -> None:
    (said,) = found(facts(many(100), [health(1, direction(marker_failures=3), server=direction(icrc_failure_count=1))]))
    assert "4 packets: 1 with a wrong checksum, 3 with a wrong marker" in said.cause.text
    assert said.cause.evidence[0].endswith("sent by the client: 3 with a wrong marker")


def needless(cause: str, times: int) -> TransportHealth:
    """Retransmitted, although it had arrived."""
    given = retransmitted(cause, times)
    return given._replace(retransmissions=tuple(one._replace(lost="nothing") for one in given.retransmissions))


@pytest.mark.parametrize("cause", ["timeout", "fast retransmit", "unknown"])
def test_what_had_arrived_was_not_lost(cause: str) -> None:
    (said,) = found(facts(many(100), [needless(cause, 5)]))
    assert said.kind == "retransmissions-unexplained" and "50 packets retransmitted, 5 times" in said.cause.text
    assert "5 needless: what was retransmitted had arrived" in said.cause.evidence


def test_losses_that_are_inferred_are_those_of_the_rpcs_that_waited() -> None:
    """Segments that had arrived are retransmitted late, too, and no RPC waited for them."""
    pause = InferredLoss(1, 91, 5, START, START + 30 * MILLISECOND, "nothing sent for 30 ms", 0.85)
    given = needless("timeout", 5)._replace(transport="iWARP", inferred=(pause,))
    given = given._replace(
        retransmissions=tuple(one._replace(retransmission_time=START + 60_000) for one in given.retransmissions)
    )
    said = {one.kind: one.cause for one in found(facts(WAITED, [given]))}
    assert said["retransmission-timeouts"].text == "1 timeout; RPCs delayed 30.0 ms"
    assert said["retransmission-timeouts"].evidence[0].endswith(": 1 timeout, RPCs delayed 30.0 ms")
    assert said["retransmissions-unexplained"].text.endswith("no RPC known to be delayed")


def test_what_was_lost_and_what_was_not_are_two_statements() -> None:
    lost, arrived = retransmitted("timeout", 4), needless("timeout", 3)
    both = lost._replace(
        retransmissions=(*lost.retransmissions, *arrived.retransmissions),
        causes={"timeout": 7},
        directions=(lost.directions[0]._replace(causes={"timeout": Tally(70, 70_000)}), lost.directions[1]),
    )
    said = {one.kind: one.cause for one in found(facts(many(100), [both]))}
    assert said.keys() == {"retransmission-timeouts", "retransmissions-unexplained"}
    assert said["retransmission-timeouts"].text.startswith("40 packets retransmitted, 4 timeouts")
    assert said["retransmissions-unexplained"].text.startswith("30 packets retransmitted, 3 times")
