"""Credits, calls without a reply, ends of connections, inline thresholds: where detectors speak, and where not."""

from __future__ import annotations

import pytest

from playbook.facts import (
    MICROSECOND,
    MILLISECOND,
    SECOND,
    START,
    chunk,
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
from rdmascope.dissect.diagnosis.detectors.connections import DAMAGE_UNKNOWN
from rdmascope.dissect.diagnosis.facts import Severity
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.transport.connection import Endpoint, Gap, ReusedPsn
from rdmascope.dissect.transport.health import NegativeAcknowledgement
from rdmascope.dissect.transport.rc.health import NOT_RETRANSMITTED
from rdmascope.dissect.transport.retransmissions import Tally


def at_the_limit(credits: int, pause: int = 10 * MICROSECOND, count: int = 200) -> list[Rpc]:
    """Always as many calls outstanding as there are credits; the next call comes ``pause`` ns after a reply."""
    takes = MILLISECOND
    return [
        rpc(at + 1, at=at // credits * (takes + pause) + at % credits, takes=takes, credits=(64, credits))
        for at in range(count)
    ]


@speaks("credits-exhausted")
def test_calls_that_wait_for_credits() -> None:
    (said,) = found(facts(at_the_limit(4)))
    assert said.kind == "credits-exhausted" and "all 4 credits of the client in use" in said.cause.text
    assert said.cause.share is not None and said.cause.share > 0.9 and said.cause.connections == (1,)
    assert said.cause.confidence > 0.5


def test_a_single_credit_may_be_a_program_that_waits() -> None:
    (said,) = found(facts(at_the_limit(1)))
    assert "the client's only credit " in said.cause.text and said.cause.confidence == 0.5 and said.cause.weakened_by


@silent("credits-exhausted")
def test_calls_that_take_their_time_did_not_wait_for_credits() -> None:
    assert not kinds(facts(at_the_limit(4, pause=MILLISECOND)))


@silent("credits-exhausted")
def test_enough_credits() -> None:
    assert not kinds(facts([rpc(at + 1, at=at // 4 * MILLISECOND, takes=MILLISECOND) for at in range(200)]))


@speaks("calls-hung")
def test_hung_calls() -> None:
    hung = rpc(21, "WRITE", answered=False, chunks=[chunk("read", 8192, transferred=False)])
    (said,) = found(facts([*many(20), hung], seconds=60))
    assert said.kind == "calls-hung" and said.cause.rpcs == (21,) and said.cause.since == START + 210 * MILLISECOND
    assert said.cause.text.startswith("WRITE (RPC 21) has hung for 59.8 s")
    assert "1 NFSv3 WRITE; Read chunks never read" in said.cause.evidence[0]


def test_calls_whose_connection_ended_hung_until_then() -> None:
    ended = connection(1, ended_by="DREQ from the server", ended_time=START + 2 * SECOND)
    hung = rpc(21, "WRITE", at=SECOND, answered=False, on=ended)
    (said,) = found(facts([*many(20, on=ended), hung], [health(1, ended="DREQ from the server")], (ended,), seconds=60))
    assert said.cause.text.startswith("WRITE (RPC 21) hung 1.00 s until the server closed the connection")


@pytest.mark.parametrize(("later", "to"), [(0, ""), (50, " to 10.0.0.2")])
def test_a_server_that_speaks_to_others_only(later: int, to: str) -> None:
    mine, ends = connection(1), (Endpoint("10.0.0.3", 18), Endpoint("10.0.0.1", 34))
    other = connection(2, endpoints=ends)
    spoke = [direction(last_time=START + seconds * SECOND) for seconds in (10, 10 + later)]
    healths = [health(number, server=server) for number, server in enumerate(spoke, 1)]
    hung = rpc(21, "WRITE", answered=False, on=mine)
    (said,) = found(facts([*many(20, on=mine), hung], healths, (mine, other)), "calls-hung")
    assert said.cause.text.endswith(f"the server last spoke{to} at 22:13:30 UTC")


def test_calls_whose_replies_the_capture_may_lack_are_not_said_to_hang() -> None:
    lossy = connection(1, unread_packets=(0, 1))
    (said,) = found(
        facts([*many(20, on=lossy), rpc(21, "WRITE", answered=False, on=lossy)], (), (lossy,)), "calls-hung"
    )
    assert said.cause.text == "1 call without a reply, which the capture may have missed"
    assert (said.severity, said.title, said.cause.confidence) == (Severity.WARNING, "Calls without a reply", 0.5)


@pytest.mark.parametrize("retransmitted", [0, 1])
def test_a_call_that_was_neither_acknowledged_nor_retransmitted_may_have_its_reply(retransmitted: int) -> None:
    client = direction(waiting_since=START, retransmitted=Tally(retransmitted, 100 * retransmitted))
    (said,) = found(facts([*many(20), rpc(21, answered=False)], [health(1, client)], seconds=60), "calls-hung")
    assert (said.severity is Severity.PROBLEM) == bool(retransmitted)


@pytest.mark.parametrize("opened", [True, False])
def test_what_comes_before_a_connection_that_begins_in_a_hole_of_the_capture(opened: bool) -> None:
    last = START + 10 * SECOND
    mine, later = connection(1, last_time=last), connection(2, opened=opened, first_time=START + 20 * SECOND)
    waits = direction(last_time=last, waiting_since=last, unanswered=3)
    silence = health(1, waits, ended=f"silence: 3 requests of the client unanswered for 90 s{NOT_RETRANSMITTED}")
    rpcs = [*many(20, on=mine), rpc(21, "WRITE", answered=False, on=mine)]
    (said,) = found(facts(rpcs, [silence, health(2)], (mine, later)))
    assert (said.kind, said.severity is Severity.PROBLEM) == ("calls-hung", opened)
    assert opened == any("Connection lost" in line for line in said.cause.evidence)


@silent("calls-hung")
def test_no_call_hangs_of_which_the_other_direction_was_not_captured() -> None:
    half = connection(1, paired_by="one direction only")
    calls = [rpc(number, "WRITE", answered=False, on=half) for number in range(1, 22)]
    assert found(facts(calls, (), (half,)), "calls-hung") == []


def test_a_server_that_is_gone_refuses() -> None:
    served = connection(1, ended_by="DREQ from the server", ended_time=START + 2 * SECOND)
    refused = connection(2, first_time=START + 3 * SECOND, bytes=(0, 0), ended_by="REJ (Invalid Service ID)")
    healths = [health(1, ended="DREQ from the server"), health(2)]
    (said,) = found(facts(many(20, on=served), healths, (served, refused)), "connections-refused")
    assert said.cause.evidence[0] == (
        "the server stopped listening 1.00 s after connection 1 ended (DREQ from the server)"
    )
    unanswered = rpc(21, "READDIRPLUS", at=2940 * MILLISECOND, answered=False, on=served)
    (said,) = found(facts([*many(20, on=served), unanswered], healths, (served, refused)), "connections-refused")
    assert said.cause.evidence[0] == "the server stopped listening 60.0 ms after RPC 21 (READDIRPLUS) went unanswered"
    open_still = connection(1)
    (said,) = found(facts(many(20, on=open_still), healths, (open_still, refused)), "connections-refused")
    assert len(said.cause.evidence) == 1 and said.cause.evidence[0].endswith("REJ (Invalid Service ID)")


@silent("calls-hung")
def test_calls_that_the_end_of_the_capture_interrupts_are_nothing() -> None:
    assert not kinds(facts([*many(20), rpc(21, at=99_500 * MILLISECOND, answered=False)]))
    slow = [*many(20, takes=SECOND), rpc(21, at=98 * SECOND, answered=False)]
    assert not kinds(facts(slow[-2:]))


@speaks("connection-lost")
def test_a_broken_connection() -> None:
    nak = NegativeAcknowledgement(44, START, 9, "NAK, Remote Access Error")
    old, new = connection(1, last_time=START + SECOND), connection(2, first_time=START + 2 * SECOND)
    ended = health(1, direction(), server=direction(fatal_naks=(nak,)), ended="fatal NAK, Remote Access Error")
    (said,) = found(facts(many(20, on=old), [ended], (old, new)))
    assert said.kind == "connection-lost" and said.cause.text == "1 connection lost and re-established"
    assert said.cause.evidence[0].endswith("fatal NAK, Remote Access Error; then connection 2")


@pytest.mark.parametrize(
    ("missing", "tried", "lost"),
    [(9, NOT_RETRANSMITTED, False), (2, NOT_RETRANSMITTED, True), (9, "; 3 retransmissions", True)],
)
def test_requests_that_were_not_retransmitted_were_answered_where_packets_behind_them_are_missing(
    missing: int, tried: str, lost: bool
) -> None:
    """One of 5 s went unanswered; another packet was missing at so many."""
    old = connection(1, gaps=((Gap(1, 2, 44, START + missing * SECOND),), ()))
    ended = f"silence: 5 requests of the client unanswered for 7.86 s{tried}"
    said = kinds(facts(many(20, on=old), [health(1, direction(waiting_since=START + 5 * SECOND), ended=ended)], (old,)))
    assert ("connection-lost" in said) == lost


@silent("connection-lost", "connections-refused")
def test_connections_that_are_closed_are_nothing() -> None:
    old = connection(1, last_time=START + SECOND, ended_by="DREQ from the client")
    new = connection(2, first_time=START + 2 * SECOND)
    assert not kinds(facts(many(20, on=old), [health(1, ended="DREQ from the client")], (old, new)))


@speaks("connections-refused")
def test_refused_connections() -> None:
    refused = connection(2, ended_by="REJ (Invalid Service ID)", bytes=[0, 0], first_frame=9)
    (said,) = found(facts(many(20), (), (connection(1), refused)))
    assert said.kind == "connections-refused" and said.cause.frames == (9,) and said.cause.connections == (2,)


def test_refusals_count_for_as_long_as_a_client_asked_in_vain() -> None:
    refused = [
        connection(number, ended_by="REJ (Invalid Service ID)", bytes=[0, 0], first_time=begun, last_time=begun + 1)
        for number, begun in ((2, START), (3, START + 7 * SECOND))
    ]
    (said,) = found(facts(many(20), (), (connection(1, last_time=START), *refused)), "connections-refused")
    assert said.cause.lost == 7 * SECOND + 1
    for begun, ended, lost in ((2, 3, 2), (-5, 9, 0), (-5, 4, 3 * SECOND + 1)):
        served = connection(4, first_time=START + begun * SECOND, last_time=START + ended * SECOND)
        (said,) = found(facts(many(20, on=served), (), (*refused, served)), "connections-refused")
        assert said.cause.lost == lost


@speaks("connections-unanswered")
def test_requests_that_nothing_answers() -> None:
    last = START + 7 * SECOND
    asked = [
        connection(number, ended_by="no answer to 4 REQs", bytes=[0, 0], first_frame=number, last_time=last)
        for number in (2, 3)
    ]
    (said,) = found(facts(many(20), (), (connection(1, last_time=START), *asked)))
    assert said.kind == "connections-unanswered" and said.cause.count == 8 and said.cause.connections == (2, 3)
    assert "for 2 connections: no answer to 8 REQs in 7.00 s" in said.cause.text
    assert said.cause.lost == 7 * SECOND


def test_requests_of_many_clients_to_one_server_are_one_statement() -> None:
    for clients, statements in ((3, 3), (4, 1)):
        asked = [
            connection(
                number,
                endpoints=(Endpoint(f"10.1.0.{number}", 0), Endpoint("10.0.0.1", 0)),
                ended_by="no answer to 2 SYNs",
                bytes=[0, 0],
            )
            for number in range(1, clients + 1)
        ]
        said = found(facts(many(20), (), (connection(9), *asked)), "connections-unanswered")
        assert len(said) == statements and sum(one.cause.count for one in said) == 2 * clients
    assert said[0].cause.text.startswith("4 clients asked") and said[0].cause.connections == (1, 2, 3, 4)


def test_a_server_that_never_answered_did_not_stop_listening() -> None:
    asked = connection(1, ended_by="no answer to 3 SYNs", bytes=[0, 0], ended_time=START + SECOND)
    refused = connection(2, first_time=START + 8 * SECOND, bytes=[0, 0], ended_by="RST in answer to the SYN")
    (said,) = found(facts(many(20), [health(1), health(2)], (asked, refused)), "connections-refused")
    assert len(said.cause.evidence) == 1


@silent("connections-unanswered")
def test_who_asks_but_once_or_is_refused_got_an_answer() -> None:
    refused = connection(2, ended_by="REJ (Invalid Service ID)", bytes=[0, 0], first_frame=9)
    assert "connections-unanswered" not in kinds(facts(many(20), (), (connection(1), refused)))


@speaks("inline-threshold")
def test_a_small_inline_threshold() -> None:
    """1024 bytes without private data; READs of 1500 bytes would fit into 2048."""
    seen = connection(1)
    for end in seen.connection.endpoints:
        end.private_data_frame = 1
    given = many(100, "READ", chunks=[chunk("write", 1500)], parts=(0, 100 * MICROSECOND), on=seen)
    (said,) = found(facts(given, (), (seen,)))
    assert said.kind == "inline-threshold" and said.cause.count == 100
    assert "10.0 ms saved" in said.cause.text and "threshold 1.00 KiB" in said.cause.evidence[0]


@silent("inline-threshold")
def test_an_inline_threshold_that_is_not_known_is_not_small() -> None:
    joined = connection(1)
    joined.connection.endpoints[1].private_data_frame = 0
    given = many(100, "READ", chunks=[chunk("write", 1500)], parts=(0, 100 * MICROSECOND), on=joined)
    assert not joined.private_data_seen and not found(facts(given, (), (joined,)))


@silent("inline-threshold")
def test_chunks_that_would_not_fit_anyway_or_hold_nothing() -> None:
    large = many(100, "READ", chunks=[chunk("write", 8192)], parts=(0, 100 * MICROSECOND))
    unused = many(100, "READ", chunks=[chunk("reply", 1500, transferred=False)])
    assert not kinds(facts(large)) and not kinds(facts(unused))


@speaks("psn-reused")
def test_a_new_request_with_the_psn_of_an_earlier_one() -> None:
    wrong = connection(1, reused_psns=(ReusedPsn(7, 1, 202, "Send", 3, "RDMA Read"),))
    (said,) = found(facts(many(20, on=wrong), (), (wrong,)))
    assert said.kind == "psn-reused" and said.cause.text == "1 new request sent with the PSN of an earlier one"
    assert "the server's Send in frame 7 has PSN 202, as its RDMA Read in frame 3" in said.cause.evidence[0]
    assert said.cause.frames == (7,) and said.cause.connections == (1,)


@pytest.mark.parametrize(
    ("verb", "truncated", "doubtful"), [("Send", 0, False), ("Send", 9, True), ("RDMA Read", 9, False)]
)
def test_of_truncated_frames_no_icrc_shows_that_a_request_with_the_same_psn_is_not_a_damaged_one(
    verb: str, truncated: int, doubtful: bool
) -> None:
    wrong = connection(1, reused_psns=(ReusedPsn(7, 1, 202, "Send", 3, verb),))
    (said,) = found(facts(many(20, on=wrong), (), (wrong,), truncated_frames=truncated), "psn-reused")
    assert said.severity == (Severity.WARNING if doubtful else Severity.PROBLEM)
    assert (DAMAGE_UNKNOWN in said.cause.weakened_by) == doubtful


@silent("psn-reused")
def test_a_retransmitted_request_has_its_own_psn() -> None:
    assert "psn-reused" not in kinds(facts(many(20), [retransmitted("timeout", 5, 10 * MILLISECOND)]))
