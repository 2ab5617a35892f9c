"""RPCs by procedure, client, file and connection, over time."""

from __future__ import annotations

import numpy as np

from playbook import Wire, call, frame_batch, nfs3, reply
from rdmascope.dissect.diagnosis.breakdown import OTHERS, Breakdown, Groups
from rdmascope.dissect.diagnosis.facts import Gathered, label
from rdmascope.dissect.measure.file_names import PathLearner
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable


def broken_down(wire: Wire, keep: int | None = None) -> tuple[Breakdown, Gathered]:
    """Of all RPCs, or of every ``keep``-th."""
    breakdown, gathered, analyzer = Breakdown(PathLearner()), Gathered(), Analyzer()
    gathered.rpcs.watch = breakdown.watch
    table = analyzer.feed_table(analyzer.decoder.take(frame_batch(wire.frames())))
    for one in (table, RpcTable(analyzer.finish())):
        mask = None if keep is None else np.arange(len(one)) % keep == 0
        breakdown.add_table(one, mask)
        gathered.add_table(one if mask is None else one.selected(mask))
    gathered.facts(analyzer).rpcs.at_limit()
    breakdown.finish()
    return breakdown, gathered


def conversation() -> Wire:
    """Two clients; one of them keeps three calls outstanding, and reads two files."""
    wire = Wire()
    first, second = wire.connect("10.0.0.2"), wire.connect("10.0.0.3")
    for handle in (b"a" * 32, b"b" * 32):
        calls = [call(first, nfs3.getattr_(handle), credits=32) for _ in range(3)]
        for one in calls:
            reply(one, nfs3.getattr_reply(), credits=16)
    reply(call(second, nfs3.readlink()), nfs3.read_failed())
    reply(call(second, nfs3.null()), nfs3.null_reply())
    return wire


def calls(groups: Groups, name: object) -> int:  # type: ignore[type-arg]
    cells = groups.cells.rows
    return int(cells[cells[:, 0] == groups.codes[name], 3].sum())


def test_every_rpc_is_counted_in_each_table() -> None:
    breakdown, gathered = broken_down(conversation())
    for groups in (breakdown.procedures, breakdown.clients, breakdown.files, breakdown.connections):
        cells = groups.cells.rows
        assert cells[:, 3].sum() == gathered.statistics.calls == 8
        assert cells[:, 4].sum() == 1
        assert cells[:, 7].sum() == sum(one.waited for one in gathered.statistics.procedures())
    assert breakdown.total.rows[:, 3].sum() == 8
    assert {label(key): calls(breakdown.procedures, key) for key in breakdown.procedures.codes} == {
        "NFSv3 GETATTR": 6,
        "NFSv3 READLINK": 1,
        "NFSv3 NULL": 1,
    }
    assert {key: calls(breakdown.clients, key) for key in breakdown.clients.codes} == {"10.0.0.2": 6, "10.0.0.3": 2}
    files = {key if key is None else breakdown.path(key): calls(breakdown.files, key) for key in breakdown.files.codes}
    assert files == {
        f"file handle {b'a'.hex() * 16}": 3,
        f"file handle {b'b'.hex() * 16}": 3,
        f"file handle {nfs3.FH.hex()[:32]}": 1,
        None: 1,
    }
    assert sorted((one.number, one.client, one.port) for one in breakdown.connections.codes) == [
        (1, "10.0.0.2", 20049),
        (2, "10.0.0.3", 20049),
    ]


def test_calls_outstanding_and_credits_are_those_of_the_busiest_connection() -> None:
    breakdown, _ = broken_down(conversation())
    assert breakdown.outstanding is not None
    assert breakdown.outstanding.rows[:, 1].max() == 3
    assert breakdown.outstanding.rows[:, 2].min() == 16
    assert breakdown.slots is None and breakdown.highest_slot is None


def test_only_chosen_rpcs_count() -> None:
    breakdown, gathered = broken_down(conversation(), 2)
    assert breakdown.total.rows[:, 3].sum() == gathered.statistics.calls == 4


def test_groups_that_are_too_many_are_counted_together() -> None:
    groups: Groups[int] = Groups(max_groups=10)
    for key in range(30):
        count = 100 - key
        columns = [np.full(count, groups.code(key)), np.full(count, 10**18), *np.zeros((4, count), np.int64)]
        groups.cells.add(*columns)
    groups.merge_smallest()
    assert sorted(groups.codes) == list(range(5)) and groups.merged == 25
    cells = groups.cells.rows
    assert cells[cells[:, 0] == OTHERS, 3].sum() == sum(100 - key for key in range(5, 30))
    assert groups.code(29) not in groups.cells.rows[:, 0]
