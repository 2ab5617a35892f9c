"""What NFS cost in two runs, over RDMA and without it: where the time went."""

from __future__ import annotations

import numpy as np
from numpy.ma import MaskedArray

from rdmascope.dissect.measure.comparison import COLUMNS, Costs, costs
from rdmascope.dissect.records.rpc_columns import masked

NFS, MOUNT = 100003, 100005
TEXTS = {"procedure", "client", "server", "direction"}


def columns(rpcs: list[dict[str, int | str]]) -> dict[str, MaskedArray]:
    """Of RPCs one after the other, 10 ms from start to start; what is not named is 0, and text READ."""
    found: dict[str, MaskedArray] = {}
    for name in COLUMNS:
        if name == "operations":
            empty = np.empty(len(rpcs), object)
            empty[:] = [()] * len(rpcs)
            found[name] = masked(empty)
        elif name in TEXTS:
            found[name] = masked(np.array([one.get(name, "READ") for one in rpcs], object))
        else:
            found[name] = masked(np.array([one.get(name, 0) for one in rpcs], np.int64))
            if name.startswith("client_"):
                found[name] = masked(found[name].data, np.array([name not in one for one in rpcs]))
    return found


def rpc(number: int, latency: int, server: int, **others: int | str) -> dict[str, int | str]:
    return {
        "number": number, "time_ns": number * 10_000, "end_time_ns": number * 10_000 + latency, "latency_ns": latency,
        "server_ns": server, "program_number": NFS, "version": 3, "call_bytes": 100, "reply_bytes": 900, **others,
    }  # fmt: skip


def both(ways: tuple[int | None, int | None] = (100, 400)) -> tuple[Costs, Costs]:
    before = columns([rpc(at, 1000, 700) for at in range(4)])
    after = columns(
        [rpc(at, 2000, 1000, retransmitted_packets=at == 1, retransmission_delay_ns=400) for at in range(4)]
    )
    found = costs((before, after), ways)
    assert found is not None
    return found


def test_the_way_to_the_server_is_none_of_its_time() -> None:
    before, after = both()
    assert (before.waited, before.server, before.network, before.retransmissions) == (1000, 600, 400, 0)
    assert (after.waited, after.server, after.network, after.retransmissions) == (2000, 600, 1000, 400)
    assert (before.retransmitted, after.retransmitted) == (0, 1)


def test_a_way_that_is_not_known_is_with_the_server() -> None:
    before, after = both((100, None))
    assert before.network == 400 and (after.server, after.network) == (1000, None)


def test_idle_time_does_not_count_in_throughput() -> None:
    before, after = both()
    assert (before.throughput, after.throughput) == (4000 * 1e9 / 4000, 4000 * 1e9 / 8000)
    overlapping = columns(
        [{**rpc(at, 1000, 700), "time_ns": at * 500, "end_time_ns": at * 500 + 1000} for at in range(3)]
    )
    found = costs((overlapping, overlapping), (0, 0))
    assert found is not None and found[0].throughput == 3000 * 1e9 / 2000


def test_procedures_count_alike_in_both_runs() -> None:
    before = columns([rpc(0, 1000, 1000), rpc(1, 9000, 9000, procedure="WRITE")])
    after = columns([*(rpc(at, 1000, 1000) for at in range(9)), rpc(9, 9000, 9000, procedure="WRITE"),
                     rpc(10, 5, 5, procedure="FSINFO"), rpc(11, 7, 7, program_number=MOUNT)])  # fmt: skip
    found = costs((before, after), (0, 0))
    assert found is not None and found[0].waited == found[1].waited == 5000


def test_what_a_client_did_itself_is_of_traces() -> None:
    assert [one.kernel for one in both()] == [None, None]
    parts = {
        f"client_{part}_ns": 10 for part in ("encoded", "registered", "posted", "completed", "invalidated", "decoded")
    }
    traced = columns([rpc(0, 1000, 700, **parts)])
    found = costs((traced, traced), (0, 0))
    assert found is not None and found[0].kernel == 60


def test_runs_without_a_procedure_in_common() -> None:
    assert costs((columns([rpc(0, 1, 1)]), columns([rpc(0, 1, 1, procedure="WRITE")])), (0, 0)) is None
