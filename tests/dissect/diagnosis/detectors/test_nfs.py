"""Statuses of NFS and the mix of its calls: where detectors speak, and where not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from playbook.facts import MILLISECOND, SECOND, START, connection, facts, found, kinds, many, rpc, silent, speaks
from rdmascope.dissect.measure.nfs_state import HeldState, NfsClient, NfsSession, SlotTable
from rdmascope.dissect.transport.connection import ONE_DIRECTION, Gap

SEQUENCE = ("SEQUENCE", "PUTFH")


@pytest.mark.parametrize(
    "status",
    ["NFS3ERR_IO", "NFS4ERR_STALE", "NFS4ERR_BADSESSION", "AUTH_TOOWEAK", "GARBAGE_ARGS", "SYSTEM_ERR",
     "NFS4ERR_OP_ILLEGAL", "RDMA_ERR_CHUNK (RDMA_ERR_BADHEADER)", "RDMA2_ERR_BAD_HEADER"],
)  # fmt: skip
@speaks("calls-failed")
def test_errors_of_the_server_or_of_the_protocol(status: str) -> None:
    (said,) = found(facts([*many(20), rpc(21, "WRITE", status=status)]))
    assert said.kind == "calls-failed" and said.cause.text == f"1 RPC failed with {status}"
    assert said.cause.rpcs == (21,) and said.cause.evidence == ("NFSv3 WRITE: 1 time",)


@pytest.mark.parametrize(
    "status", ["NFS3ERR_NOENT", "NFS4ERR_EXIST", "NFS3ERR_ACCES", "RDMA_ERR_VERS", "PROG_MISMATCH"]
)
@silent("calls-failed")
def test_errors_of_daily_work_are_nothing(status: str) -> None:
    assert not kinds(facts([*many(20), *many(20, "LOOKUP", 21, status=status)]))


@speaks("grace-period")
def test_a_grace_period() -> None:
    waits = [rpc(20 + at, "OPEN", at=at * 5 * SECOND, status="NFS4ERR_GRACE") for at in range(1, 11)]
    (said,) = found(facts([*many(20), *waits]))
    assert said.kind == "grace-period" and said.cause.count == 10
    assert said.cause.text == "10 RPCs refused for the grace period over 45.0 s"
    assert said.cause.since == START + 5 * SECOND + MILLISECOND


@silent("grace-period")
def test_the_end_of_a_grace_period_is_nothing_to_who_never_asked_in_it() -> None:
    """A reclaim that comes too late fails; it does not wait."""
    assert kinds(facts([*many(20), rpc(21, "OPEN", status="NFS4ERR_NO_GRACE")])) <= {"calls-failed"}


@pytest.mark.parametrize("status", ["NFS4ERR_DELAY", "NFS3ERR_JUKEBOX"])
@speaks("calls-deferred")
@silent("calls-deferred")
def test_deferred_calls(status: str) -> None:
    (said,) = found(facts([*many(20), *many(3, "OPEN", 21, status=status)]))
    assert said.kind == "calls-deferred" and said.cause.count == 3
    assert not kinds(facts([*many(20), *many(2, "OPEN", 21, status=status)]))


RECALL, RETURN = ("CB_SEQUENCE", "CB_RECALL"), (*SEQUENCE, "DELEGRETURN")


@speaks("recall-stalls")
def test_a_recall_that_stalls() -> None:
    recall = rpc(1, operations=RECALL, backward=True, at=SECOND)
    (said,) = found(facts([recall, rpc(2, operations=RETURN, at=9 * SECOND)]))
    assert said.kind == "recall-stalls" and said.cause.rpcs == (1,)
    assert said.cause.text == "1 delegation recall, up to 8.00 s"
    assert [one.kind for one in found(facts([recall]))] == ["recall-stalls"]


@silent("recall-stalls")
def test_a_recall_whose_return_the_capture_may_lack() -> None:
    recall = rpc(1, operations=RECALL, backward=True, at=SECOND)
    given = [recall, rpc(2, at=12 * SECOND)]
    for frame, paired_by, expected in (
        (recall.call_frame - 1, "CM", {"recall-stalls"}),
        (recall.call_frame + 1, "CM", set()),
        (recall.call_frame - 1, ONE_DIRECTION, set()),
    ):
        lacking = connection(1)
        lacking.connection.packets, lacking.connection.paired_by = (9, 9), paired_by
        lacking.connection.gaps = [Gap(1, 2, frame, START)], []
        assert kinds(facts(given, conversations=(lacking,))) & {"recall-stalls"} == expected


def test_another_delegation_that_is_returned_at_once_does_not_count() -> None:
    recall = rpc(1, operations=RECALL, backward=True, at=SECOND)
    given = facts([recall, rpc(2, operations=RETURN, at=SECOND + 5 * MILLISECOND), rpc(3, at=12 * SECOND)])
    assert not kinds(given)
    held = HeldState("read", bytes(12), None, recalled_frame=recall.call_frame, recalled_time=SECOND)
    begin = given.rpcs.recalls[0].begin
    held.returned_time = begin + 5 * SECOND
    (said,) = found(replace(given, recalled={recall.call_frame: held}))
    assert said.cause.text == "1 delegation recall, up to 5.00 s"
    assert said.cause.confidence == 0.95 and not said.cause.weakened_by


def test_another_client_that_returns_a_delegation_does_not_count() -> None:
    recall = rpc(1, operations=RECALL, backward=True, at=SECOND)
    other = connection(2)
    other.connection.endpoints = (
        replace(other.connection.endpoints[0], address="10.0.0.9"),
        other.connection.endpoints[1],
    )
    returned = rpc(2, operations=RETURN, at=SECOND + MILLISECOND, on=other)
    (said,) = found(facts([recall, returned], conversations=(connection(1), other)))
    assert said.kind == "recall-stalls" and "outstanding" in said.cause.evidence[0]


@silent("recall-stalls")
def test_a_recall_that_is_followed_at_once() -> None:
    recall = rpc(1, operations=RECALL, backward=True, at=SECOND)
    assert not kinds(facts([recall, rpc(2, operations=RETURN, at=SECOND + 5 * MILLISECOND)]))


@speaks("commit-storm")
@silent("commit-storm")
def test_a_commit_for_every_write() -> None:
    (said,) = found(facts([*many(100, "WRITE"), *many(100, "COMMIT", 101, takes=5 * MILLISECOND)]))
    assert said.kind == "commit-storm" and said.cause.text == "100 COMMITs for 100 WRITEs, 500 ms"
    assert not kinds(facts([*many(400, "WRITE"), *many(100, "COMMIT", 401, takes=5 * MILLISECOND)]))


@speaks("metadata-storm")
@silent("metadata-storm")
def test_a_storm_of_getattrs() -> None:
    asked = [*many(1500), *many(1000, first=1501, operations=(*SEQUENCE, "ACCESS", "GETATTR"))]
    (said,) = found(facts([*asked, *many(100, "READ", 3000)]))
    assert said.kind == "metadata-storm" and said.cause.text == "GETATTR and ACCESS 96% of all RPCs"
    assert not kinds(facts([*asked, *many(2000, "READ", 3000)]))
    assert not kinds(facts(many(3000, operations=(*SEQUENCE, "OPEN", "ACCESS", "GETATTR"))))


@speaks("readdir-without-plus")
@silent("readdir-without-plus")
def test_readdir_without_plus() -> None:
    lists = many(10, "READDIR")
    (said,) = found(facts([*lists, *many(600, "LOOKUP", 11)]))
    assert said.kind == "readdir-without-plus" and said.cause.count == 600
    assert not kinds(facts([*lists, *many(600, "LOOKUP", 11), *many(10, "READDIRPLUS", 700)]))
    assert not kinds(facts([*lists, *many(100, "LOOKUP", 11)]))


def session(slots: int, requests: int = 100, pause: int = 0) -> NfsSession:
    """All slots in use, but for ``pause`` ns behind each reply."""
    made = NfsSession(1, NfsClient(1, "10.0.0.1", 7, 1), b"s", 1, START)
    made.fore = SlotTable(True, agreed=slots, requests=requests, at_limit=requests * MILLISECOND)
    made.fore.at_limit_count, made.fore.refilled = requests, 0 if pause else requests - 1
    made.fore.full = (START, 5), (START + requests * MILLISECOND, 500)
    made.ended_time = START + requests * (MILLISECOND + pause)
    return made


@speaks("slots-exhausted")
def test_sessions_without_a_free_slot() -> None:
    (said,) = found(facts(many(20), sessions=[session(4)]))
    assert said.kind == "slots-exhausted" and said.cause.frames == (5, 500) and said.cause.since == START
    assert said.cause.text == "all 4 slots in use for 100% of the time" and said.cause.confidence > 0.9
    (single,) = found(facts(many(20), sessions=[session(1)]))
    assert single.cause.text.startswith("the only slot in use") and single.cause.confidence == 0.5


@silent("slots-exhausted")
def test_slots_that_were_left_free_for_a_while() -> None:
    assert not kinds(facts(many(20), sessions=[session(4, pause=MILLISECOND), session(4, requests=10)]))
    assert not kinds(facts(many(20), sessions=[]))
