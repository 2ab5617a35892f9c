"""Why the kernel's counters and the wire differ."""

from __future__ import annotations

import pytest

from playbook import Capture, Wire, call, frame_batches, nfs3, reply
from rdmascope.dissect.measure.kernel_counters import (
    INCOMPLETE,
    LATER,
    NEVER_SENT,
    NO_RDMA,
    NOT_CAPTURED,
    OUTSTANDING,
    RETRIED,
    UNEXPLAINED,
    Completeness,
    MountComparison,
    compare_mounts,
    parse_mountstats,
)
from rdmascope.dissect.measure.nfs_operations import WireOperation, WireOperations
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

DATA = bytes(100)


def seen(*calls: str) -> WireOperations:
    """The RPCs of one client, each 'null', 'read', 'failed' or 'open' (without a reply)."""
    wire = Wire()
    talk = wire.connect()
    for one in calls:
        if one == "null":
            reply(call(talk, nfs3.null()), nfs3.null_reply())
            continue
        exchange = call(talk, nfs3.read(0, len(DATA)))
        if one != "open":
            reply(exchange, nfs3.read_failed() if one == "failed" else nfs3.read_reply(DATA))
    analyzer = Analyzer()
    found = WireOperations()
    for batch in frame_batches(Capture(wire).frames, []):
        found.add(RpcTable(analyzer.feed(batch)))
    found.add(RpcTable(analyzer.finish()))
    return found


NULL = (40, 24)
READ = seen("read").callers.popitem()[1].operations["READ"]
"""As the wire has it."""


def mountstats(null: int, reads: str, sends: int, kind: str = "rdma", device: str = "server:/export") -> str:
    return (
        f"device {device} mounted on /mnt with fstype nfs statvers=1.1\n\topts:\trw,vers=3\n\tage:\t9\n"
        f"\tRPC iostats version: 1.1  p/v: 100003/3 (nfs)\n"
        f"\txprt:\t{kind} 0 0 1 0 0 {sends} {sends} 0 0 0 {'0 ' * 17}\n\tper-op statistics\n"
        f"\t        NULL: {null} {null} 0 {40 * null} {24 * null} 0 0 0 0\n\t        READ: {reads}\n"
    )


def reads(calls: int, transmissions: int | None = None, errors: int = 0, sent: int | None = None) -> str:
    bytes = calls * READ.sent if sent is None else sent
    count = calls if transmissions is None else transmissions
    return f"{calls} {count} 0 {bytes} {calls * READ.received} 1 2 3 {errors}"


def compared(wire: WireOperations, text: str, complete: Completeness | None = None) -> MountComparison:
    (found,) = compare_mounts(parse_mountstats(text), wire, complete or Completeness())
    return found


def reasons(found: MountComparison) -> dict[str, tuple[str, ...]]:
    return {one.operation: one.reasons for one in found.operations}


def test_nothing_differs() -> None:
    found = compared(seen("null", "read", "read"), mountstats(1, reads(2), 3))
    assert reasons(found) == {"NULL": (), "READ": ()} and found.explained
    assert found.clients and found.transport["sends"] == 3


@pytest.mark.parametrize(
    "complete, why",
    [
        (Completeness(), UNEXPLAINED),
        (Completeness(lossy=True), NOT_CAPTURED),
        (Completeness(frozenset({(0, 1)})), NOT_CAPTURED),
        (Completeness(truncated=True), INCOMPLETE),
    ],
)
def test_what_was_counted_and_not_seen(complete: Completeness, why: str) -> None:
    found = compared(seen("null", "read"), mountstats(1, reads(3), 4), complete)
    assert reasons(found)["READ"] == (why,) and found.explained == (why != UNEXPLAINED)
    assert found.operations[1].missing == 2


def test_what_was_never_sent() -> None:
    """The transport sent one call fewer than ended; and calls without any bytes were not sent either."""
    assert reasons(compared(seen("null", "read"), mountstats(1, reads(2), 2)))["READ"] == (NEVER_SENT,)
    assert reasons(compared(seen("null"), mountstats(1, reads(2, errors=2, sent=0), 3)))["READ"] == (NEVER_SENT,)


def test_what_was_retransmitted_is_seen_again() -> None:
    found = compared(seen("null", "read", "read", "read"), mountstats(1, reads(2, 3), 4))
    assert found.operations[1].missing == 0


def test_what_the_kernel_will_count_later() -> None:
    assert reasons(compared(seen("null", "read", "open"), mountstats(1, reads(1), 3)))["READ"] == (OUTSTANDING,)
    found = compared(seen("null", "read", "read", "null"), mountstats(1, reads(1), 2))
    assert reasons(found) == {"NULL": (LATER,), "READ": (LATER,)}
    found = compared(seen("read", "read", "null"), mountstats(1, reads(1), 2))
    assert reasons(found)["READ"] == (UNEXPLAINED,)  # The last one was counted.


def test_another_transport() -> None:
    assert reasons(compared(seen("null"), mountstats(1, reads(3), 4, "tcp")))["READ"] == (NO_RDMA,)


def test_another_server_or_none_that_can_be_read() -> None:
    found = compared(seen("null"), mountstats(1, reads(0), 1, device="192.0.2.99:/export"))
    assert not found.clients and reasons(found)["NULL"] == (NOT_CAPTURED,)
    (rdma,) = compare_mounts(parse_mountstats(mountstats(1, reads(0), 1)), WireOperations(), Completeness())
    assert reasons(rdma)["NULL"] == (NOT_CAPTURED,)
    truncated = Completeness(truncated=True)
    (rdma,) = compare_mounts(parse_mountstats(mountstats(1, reads(0), 1)), WireOperations(), truncated)
    assert reasons(rdma)["NULL"] == (INCOMPLETE,)


def test_errors_and_bytes() -> None:
    wire = seen("null", "read", "failed")
    operation = wire.callers[next(iter(wire.callers))].operations["READ"]
    exact = f"2 2 0 {operation.sent} {operation.received} 0 0 0 "
    assert reasons(compared(wire, mountstats(1, exact + "1", 3)))["READ"] == ()
    assert reasons(compared(wire, mountstats(1, exact + "0", 3)))["READ"] == (UNEXPLAINED,)
    operation.statuses = type(operation.statuses)({"NFS3ERR_JUKEBOX": 1})
    assert reasons(compared(wire, mountstats(1, exact + "0", 3)))["READ"] == (RETRIED,)
    operation.received -= 4
    assert reasons(compared(wire, mountstats(1, exact + "1", 3)))["READ"] == (UNEXPLAINED,)
    operation.incomplete = 1
    assert reasons(compared(wire, mountstats(1, exact + "1", 3)))["READ"] == (INCOMPLETE,)


def test_mounts_that_share_their_connections_are_one() -> None:
    first = mountstats(1, reads(1), 3)
    text = first + first.replace("/mnt ", "/other ").replace(":/export", ":/more")
    found = compared(seen("null", "read", "read"), text)
    assert [mount.path for mount in found.mounts] == ["/mnt", "/other"]
    assert reasons(found) == {"NULL": (), "READ": ()}  # NULL is the client's: both count the same one.
    assert found.transport["sends"] == 3


def test_only_what_ended_between_two_times() -> None:
    wire = seen("null")
    wire.end = 0
    other = seen("read")
    assert isinstance(other.callers[next(iter(other.callers))].operations["READ"], WireOperation)
    narrow = WireOperations()
    narrow.end = 0
    analyzer = Analyzer()
    made = Wire()
    reply(call(made.connect(), nfs3.null()), nfs3.null_reply())
    for batch in frame_batches(Capture(made).frames, []):
        narrow.add(RpcTable(analyzer.feed(batch)))
    narrow.add(RpcTable(analyzer.finish()))
    assert not narrow.callers
