"""The comparison with Wireshark: whatever is altered is found, and only what is known to be a weak spot is excused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from playbook import Capture
from playbook.opinions import compare, conversation, echo, ours
from rdmascope.dissect.verify.frame_fields import (
    ASKED,
    FPDU_FIELDS,
    HEADER_FIELDS,
    MPA_FIELDS,
    PACKET_NAMES,
    Fields,
    tshark_fields,
)
from rdmascope.dissect.verify.second_opinion import messages

MINE = ours(Capture(conversation()))
THEIRS = echo(MINE)
VALUES = [(frame, name) for frame, fields in THEIRS.items() for name in fields if name != "rpc.msgtyp"]


def test_whoever_shows_the_same_agrees() -> None:
    comparison, found = compare(MINE, THEIRS)
    assert found == []
    counted = {what: tally.compared for what, tally in comparison.tallies.items()}
    assert counted == {"packet": len(THEIRS), "transport header": 8, "call": 4, "reply": 4}
    assert all(tally.equal == tally.compared for tally in comparison.tallies.values())


def test_every_field_is_compared() -> None:
    names = {name for _, name in VALUES}
    absent = {
        "infiniband.atomiceth.swapdt", "infiniband.atomiceth.cmpdt", "infiniband.atomicacketh.origremdt",
        "infiniband.immdt", "rpcordma.errcode",
        "rpcordma.vers_low", "rpcordma.vers_high", *MPA_FIELDS, *FPDU_FIELDS,
    }  # fmt: skip
    assert names >= {*PACKET_NAMES, *HEADER_FIELDS} - absent


@given(st.sampled_from(VALUES), st.integers(1, 255), st.data())
def test_any_value_that_is_altered_is_found(place: tuple[int, str], change: int, data: st.DataObject) -> None:
    frame, name = place
    values = THEIRS[frame][name]
    at = data.draw(st.integers(0, len(values) - 1))
    altered = (*values[:at], values[at] ^ change, *values[at + 1 :])
    comparison, found = compare(MINE, {**THEIRS, frame: {**THEIRS[frame], name: altered}})
    assert found
    assert not any(difference.explained for difference in found)
    assert sum(tally.unexplained for tally in comparison.tallies.values()) in (1, 2)
    if name == "rpc.xid":  # then it is another RPC, and ours was not found
        assert {(one.frame, one.field) for one in found} == {(frame, "rpc")}
        assert [one.ours is None for one in found] == [False, True]
    else:
        (difference,) = found
        assert (difference.frame, difference.field) == (frame, name)
        assert difference.theirs == altered
        assert difference.ours == values


@settings(max_examples=30)
@given(st.sampled_from(VALUES))
def test_any_value_that_is_left_out_is_found(place: tuple[int, str]) -> None:
    frame, name = place
    fields = {key: values for key, values in THEIRS[frame].items() if key != name}
    _, found = compare(MINE, {**THEIRS, frame: fields})
    assert found
    assert not any(difference.explained for difference in found)


@pytest.mark.parametrize("frame", sorted(THEIRS))
def test_a_frame_that_one_of_the_two_does_not_see_is_found(frame: int) -> None:
    fewer = {number: fields for number, fields in THEIRS.items() if number != frame}
    _, found = compare(MINE, fewer)
    assert ("packet", frame, "packet") in {(one.what, one.frame, one.field) for one in found}
    assert all(one.theirs is None and not one.explained for one in found)


def test_packets_and_messages_that_only_wireshark_shows() -> None:
    last = max(THEIRS)
    stranger = {name: THEIRS[last][name] for name in PACKET_NAMES if name in THEIRS[last]}
    message = {"rpcordma.xid": (7,), "rpc.xid": (7,), "rpc.msgtyp": (0,)}
    _, found = compare(MINE, {**THEIRS, last + 1: {**stranger, **message}})
    assert {(one.what, one.frame, one.field, one.ours) for one in found} == {
        ("packet", last + 1, "packet", None),
        ("transport header", last + 1, "rpcordma", None),
        ("call", last + 1, "rpc", None),
    }
    assert not any(one.explained for one in found)


def with_a_read_chunk() -> tuple[int, int, int]:
    """Frames of the WRITE's call, of the last Read response, and of its reply."""
    (call_half,) = (one for one in MINE.messages if one.complete != one.call_frame and not one.message.is_reply)
    (reply_half,) = (one for one in MINE.messages if one.complete != one.call_frame and one.message.is_reply)
    return call_half.message.frame, call_half.complete, reply_half.message.frame


def late(shift: int) -> dict[int, Fields]:
    """The WRITE shown where Wireshark shows it, its time off by ``shift``."""
    called, complete, replied = with_a_read_chunk()
    rpc = {name: values for name, values in THEIRS[called].items() if name.startswith("rpc.")}
    since = next(one.since_complete for one in MINE.messages if one.message.frame == replied)
    assert since is not None
    return {
        **THEIRS,
        called: {name: values for name, values in THEIRS[called].items() if name not in rpc},
        complete: {**THEIRS[complete], **rpc},
        replied: {**THEIRS[replied], "rpc.repframe": (complete,), "rpc.time": (since + shift,)},
    }


def test_a_call_shown_where_its_read_chunk_is_complete() -> None:
    comparison, found = compare(MINE, late(0))
    assert {(one.field, one.right) for one in found} == {
        (name, "both") for name in ("frame.number", "rpc.repframe", "rpc.time")
    }
    assert comparison.tallies["call"].explained == comparison.tallies["reply"].explained == 1


def test_a_time_that_no_convention_gives_is_not_excused() -> None:
    _, found = compare(MINE, late(1))
    assert [one.field for one in found if not one.explained] == ["rpc.time"]


# What tshark prints


def line(**values: str) -> list[str]:
    given = {"frame.number": "12", **{name.replace("__", "."): text for name, text in values.items()}}
    return [given.get(name, "") for name in ASKED]


def test_values_as_tshark_prints_them() -> None:
    found = tshark_fields(
        line(
            infiniband__bth__opcode="23",
            infiniband__bth__destqp="0x000011",
            infiniband__bth__se="True",
            infiniband__bth__a="0",
            infiniband__ieth="00000c7f,00000c7f",
            rpcordma__rdma_handle="0x00000c7f,0x00000c80",
            rpc__time="0.005607000",
        )
    )
    assert found.frame == 12
    assert found.fields == {
        "infiniband.bth.opcode": (23,),
        "infiniband.bth.destqp": (0x11,),
        "infiniband.bth.se": (1,),
        "infiniband.bth.a": (0,),
        "infiniband.ieth": (0xC7F,),
        "rpcordma.rdma_handle": (0xC7F, 0xC80),
        "rpc.time": (5_607_000,),
    }


Shown = list[tuple[int, bool, int | None, int | None]]


def cases() -> Iterator[tuple[list[str], Shown]]:
    one = line(rpc__xid="0x07", rpc__msgtyp="0", rpc__programversion="3,3", rpc__reqframe="14")
    yield one, [(7, False, 3, 14)]
    two = line(rpc__xid="7,8", rpc__msgtyp="1,0", rpc__programversion="3,3,4,4", rpc__reqframe="20", rpc__repframe="5")
    yield two, [(7, True, 3, 5), (8, False, 4, 20)]
    uneven = line(rpc__xid="7,8", rpc__msgtyp="1,0", rpc__programversion="3,4,4")
    yield uneven, [(7, True, None, None), (8, False, None, None)]


@pytest.mark.parametrize(("values", "expected"), list(cases()))
def test_messages_of_one_frame(values: list[str], expected: Shown) -> None:
    found = messages(tshark_fields(values))
    assert [(message.xid, message.is_reply, message.version, message.other) for message in found] == expected


@pytest.mark.parametrize("values", [[], ["12"], ["x"] * len(ASKED), line(rpc__xid="what?")])
def test_what_tshark_never_prints(values: list[str]) -> None:
    with pytest.raises(ValueError):
        tshark_fields(values)
