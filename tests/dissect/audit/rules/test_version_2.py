"""Version 2: the rules of version 1 hold there, too, by its own values; and what a capture may leave open."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from playbook import Wire, call, faults, nfs3
from playbook.audits import audit, broken_rules, late, play, short, total
from playbook.packets import Packet
from playbook.rpc import u32
from playbook.rpcrdma import announce, header, optional, reply, respond, update, wish, xcharspec, xcharsubset, xcharval
from playbook.violations import SCRIPTS, Broken, characteristics, hello, version2
from playbook.violations.characteristics import RBSIZ, reported
from playbook.violations.scripts import CLIENT, SERVER, big_call, by_client, create_session, listing, message, refuse
from playbook.violations.version2 import second

FIRST_ALONE = {
    "PD-INLINE": "private data do not set thresholds of version 2",
    "PD-INVALIDATE-AGREED": "nor do they allow Send With Invalidate",
    "V1-ERROR-VERSION": "its script answers version 1 in version 2",
    "V1-FIRST-1024": "4096 is the least there",
    "V1-PROC-DONE": "V2-PROC",
    "V1-PROC-MSGP": "V2-PROC",
    "V1-PROC-UNKNOWN": "V2-PROC",
    "V1-VERSION": "V2-FIRST-MESSAGE, V2-FALLBACK",
}
INSTEAD = {
    "V1-BACKWARD-CHUNKS": "XC-BRS",
    "V1-BACKWARD-PROC": "XC-BRS",
    "V1-CREDIT-FIRST": "V2-FIRST-MESSAGE",
    "V1-ERROR-CODE": "V2-ERROR-CODE",
    "V1-ERROR-PAYLOAD": "V2-ERROR-PAYLOAD",
    "V1-INLINE-EXCEEDED": "V2-INLINE-4096",
    "V1-MSG-PAYLOAD": "V2-MSG-PAYLOAD",
}
"""Which rule says in version 2 what another says in version 1."""
REPLAYED = sorted(rule for rule in SCRIPTS if rule.startswith(("V1", "PD")) and rule not in FIRST_ALONE)


@pytest.mark.parametrize("rule", REPLAYED)
def test_what_breaks_a_rule_in_version_1_breaks_it_in_version_2(rule: str) -> None:
    wire, broken = play(rule, version=2)
    auditor = audit(wire)
    expected = INSTEAD.get(rule, rule)
    assert broken_rules(auditor) == {expected} | broken.cause
    [finding] = [finding for finding in auditor.findings if finding.rule.id == expected]
    assert finding.endpoint == broken.endpoint
    assert broken.frame in finding.frames


OTHERS: dict[Callable[[Wire], Broken], str] = {
    version2.first_of_version_1: "V2-FIRST-MESSAGE",
    version2.long_first: "V2-FIRST-MESSAGE",
    version2.other_version: "V2-FALLBACK",
    version2.looped: "V2-FALLBACK",
    version2.ignored_option: "V2-INVAL-OPTION",
    version2.unknown_option_ignored: "V2-INVAL-OPTION",
    version2.response_as_call: "V2-OPTIONAL-DIRECTION",
    version2.wrong_direction_of_payload: "V2-OPTIONAL-DIRECTION",
    version2.long_message_the_wrong_way: "V2-DIRECTION",
    characteristics.callback_to_nobody: "XC-BRS",
    characteristics.long_callback: "XC-BRS",
    characteristics.changed_on_request: "XC-NOCHANGE",
    characteristics.forgotten_wish: "XC-RESPONSE-SETS",
    characteristics.invented_wish: "XC-RESPONSE-SETS",
    characteristics.init_refused_by_who_asks: "XC-SUPPORT",
    characteristics.larger_reply: "V1-REPLY-USES-REPLY-CHUNK",
    characteristics.larger_callback: "V1-BACKWARD-SIZE",
    characteristics.forged_reply_to_callback: "V1-WRITE-SEGMENT-COPY",
    characteristics.unreadable_option_ignored: "V1-ERROR-FOR-HEADER",
    characteristics.cut_in_half: "XC-TYPE",
}


@pytest.mark.parametrize("script", OTHERS, ids=lambda script: script.__name__)
def test_other_ways_to_break_a_rule(script: Callable[[Wire], Broken]) -> None:
    wire = Wire(seed=21)
    broken = script(wire)
    hello(wire.connections[-1])
    auditor = audit(wire)
    assert broken_rules(auditor) == {OTHERS[script]} | broken.cause
    finding = next(finding for finding in auditor.findings if finding.rule.id == OTHERS[script])
    assert finding.endpoint == broken.endpoint
    assert broken.frame in finding.frames


def test_a_short_reply_chunk_is_judged_by_the_receive_size_of_its_time() -> None:
    """20,000 bytes of entries and a Reply chunk of 4,096: too short until the client takes 32,768 bytes in a Send."""
    wire = Wire(seed=21)
    connection = reported(wire, client=((RBSIZ, 8192),))
    before = listing(connection, room=4096, count=20000)
    reply(before, nfs3.readdirplus_reply([b"name"]))
    wish(connection, SERVER, (RBSIZ, 32768))
    respond(connection, CLIENT, done=[0])
    after = listing(connection, room=4096, count=20000)
    reply(after, nfs3.readdirplus_reply([b"name"]))
    hello(connection)
    auditor = audit(wire)
    assert broken_rules(auditor) == {"V1-REPLY-CHUNK-SIZE"}
    [finding] = auditor.findings
    assert finding.frames == (by_client(wire, before.true.call_operation).frame,)
    assert total(auditor, "V1-REPLY-CHUNK-SIZE").passed == 1


# What a capture leaves open


def unanswered_option(wire: Wire) -> list[Packet]:
    """The capture ends behind an unknown option."""
    second(wire).send(CLIENT, optional(7, 77, b""))
    return wire.packets


def payload_cut(wire: Wire) -> list[Packet]:
    """An option with an RPC message behind it, of which the capture has the first bytes."""
    second(wire).send(CLIENT, optional(7, 77, bytes(12)) + message(create_session(), 7))
    return short(wire)


def unknown_at_the_end(wire: Wire) -> list[Packet]:
    """The capture ends behind an unknown characteristic."""
    wire.version = 2
    connection = wire.connect()
    announce(connection, CLIENT, (RBSIZ, 8192))
    announce(connection, SERVER, (9, 1))
    return wire.packets


def response_at_the_end(wire: Wire) -> list[Packet]:
    """The capture ends behind the response to a wish."""
    connection = reported(wire)
    wish(connection, CLIENT, (RBSIZ, 8192))
    respond(connection, SERVER, done=[0])
    return wire.packets


def first_after_the_start(wire: Wire) -> list[Packet]:
    """ROPT_INITXCH is the first message of a capture that began behind the connection's start."""
    wire.version = 2
    announce(wire.connect(), CLIENT, (RBSIZ, 8192))
    hello(wire.connections[0])
    return late(wire)


def update_after_the_start(wire: Wire) -> list[Packet]:
    """What ROPT_INITXCH said is not in the capture."""
    connection = reported(wire, server=((RBSIZ, 8192),), nochange=(0,))
    at = len(wire.packets)
    update(connection, SERVER, RBSIZ, 16384)
    hello(connection)
    return wire.packets[at:]


def pending_at_the_end(wire: Wire) -> list[Packet]:
    """A change is pending when the capture ends."""
    connection = reported(wire)
    wish(connection, CLIENT, (RBSIZ, 8192))
    respond(connection, SERVER, pending=[0])
    hello(connection)
    return wire.packets


def crossed(wire: Wire) -> list[Packet]:
    """A Send that may have been under way when its receiver announced a smaller buffer."""
    connection = reported(wire, server=((RBSIZ, 16384),))
    update(connection, SERVER, RBSIZ, 8192)
    big_call(connection, 9000)
    hello(connection)
    return wire.packets


def pipelined(wire: Wire) -> list[Packet]:
    """A second message, captured before the answer to the first, which was acknowledged before that."""
    wire.version = 2
    connection = wire.connect()
    announce(connection, CLIENT, (RBSIZ, 8192))
    answer = len(wire.packets)
    announce(connection, SERVER, (RBSIZ, 8192))
    asked = len(wire.packets)
    connection.send(CLIENT, optional(2, 2, xcharspec((RBSIZ, 8192))))
    respond(connection, SERVER, done=[0])
    hello(connection)
    return faults.swap(wire.packets, answer, asked - answer)


def direction_cut(wire: Wire) -> list[Packet]:
    """Frames end inside the transport header."""
    second(wire)
    return faults.snap(wire.packets, 72)


def response_behind_a_hole(wire: Wire) -> list[Packet]:
    """The request is not in the capture."""
    connection = reported(wire)
    at = len(wire.packets)
    wish(connection, CLIENT, (RBSIZ, 8192))
    end = len(wire.packets)
    respond(connection, SERVER, done=[0])
    hello(connection)
    return wire.packets[:at] + wire.packets[end:]


OPEN: dict[Callable[[Wire], list[Packet]], str] = {
    unanswered_option: "V2-INVAL-OPTION",
    payload_cut: "V2-OPTIONAL-DIRECTION",
    direction_cut: "V2-DIRECTION",
    pipelined: "V2-FIRST-MESSAGE",
    unknown_at_the_end: "XC-UNKNOWN",
    response_at_the_end: "XC-SUPPORT",
    response_behind_a_hole: "XC-RESPONSE-XID XC-RESPONSE-SETS",
    first_after_the_start: "XC-INIT-FIRST",
    update_after_the_start: "XC-NOCHANGE XC-RBSIZ-SHRINK",
    pending_at_the_end: "XC-UPDATE-PENDING",
    crossed: "XC-RBSIZ",
}


@pytest.mark.parametrize("script", OPEN, ids=lambda script: script.__name__)
def test_what_a_capture_leaves_open(script: Callable[[Wire], list[Packet]]) -> None:
    wire = Wire(seed=22)
    auditor = audit(wire, script(wire))
    allowed = {"XC-RBSIZ-SHRINK"} if script is crossed else set()
    assert broken_rules(auditor) <= allowed
    for rule in OPEN[script].split():
        tally = total(auditor, rule)
        assert tally.undecidable and not tally.violated, rule


# Whatever stands in an option

VALUES = st.tuples(st.sampled_from([1, 2, 3, 9, 4294967040]), st.one_of(st.integers(0, 9000), st.binary(max_size=9)))
SUBSETS = st.sets(st.integers(0, 70), max_size=3).map(lambda positions: xcharsubset(*positions))
INFOS = st.one_of(
    st.binary(max_size=40),
    st.lists(VALUES, max_size=4).map(lambda values: xcharspec(*values)),
    st.tuples(st.lists(VALUES, max_size=4), SUBSETS).map(lambda both: xcharspec(*both[0]) + both[1]),
    st.tuples(SUBSETS, SUBSETS, SUBSETS).map(b"".join),
    st.tuples(VALUES, st.integers(0, 2)).map(lambda both: xcharval(*both[0]) + both[1].to_bytes(4)),
)
OPTIONS = st.builds(
    lambda xid, option, info, direction, tail: optional(xid, option, info, direction=direction) + tail,
    st.integers(0, 3), st.integers(0, 5), INFOS, st.integers(0, 2),
    st.sampled_from([b"", bytes(3), message(nfs3.null(), 1)]),
)  # fmt: skip
ERRORS = st.builds(
    lambda xid, version, code, tail: u32(xid, version, 32, 4, code) + tail,
    st.integers(0, 3), st.integers(1, 3), st.integers(0, 4), st.sampled_from([b"", u32(1, 1), u32(1, 2), u32(3, 1)]),
)  # fmt: skip
SENDS = st.lists(st.tuples(st.integers(0, 1), st.one_of(OPTIONS, ERRORS)), max_size=12)


@given(SENDS, st.integers(0, 200), st.integers(0, 3))
def test_whatever_is_sent_is_judged(sends: list[tuple[int, bytes]], snap: int, hole: int) -> None:
    wire = Wire(seed=23)
    wire.version = 2
    connection = wire.connect()
    for sender, data in sends:
        connection.send(sender, data)
    hello(connection)
    for packets in (wire.packets, faults.snap(wire.packets, 60 + snap), faults.drop(wire.packets, [3 + hole])):
        auditor = audit(wire, packets)
        for finding in auditor.findings:
            assert finding.frames and finding.observed and finding.required


@pytest.mark.parametrize("lost", (False, True))
def test_how_long_a_reply_may_be_is_undecidable_where_a_larger_buffer_may_have_been_announced(lost: bool) -> None:
    wire = Wire(seed=6)
    wire.version = 2
    connection = wire.connect()
    announce(connection, 0, (RBSIZ, 4096))
    announce(connection, 1, (RBSIZ, 4096))
    hello(connection)
    larger = update(connection, 0, RBSIZ, 65536, xid=15)
    reply(call(connection, nfs3.readdirplus(16384)), nfs3.readdirplus_reply([b"name"]))
    hello(connection)
    packets = [one for one in wire.packets if one.operation != larger.number] if lost else wire.packets
    tally = total(audit(wire, packets), "V1-REPLY-CHUNK-PROVIDED")
    assert (tally.passed, tally.undecidable, tally.violated) == (not lost, lost, 0)


def test_a_reply_in_version_1_is_not_to_the_call_in_version_2_that_has_its_xid() -> None:
    """The refusal of version 2 is missing from the capture."""
    wire = Wire(seed=6)
    connection = wire.connect()
    connection.send(0, header(7, 0, version=2) + message(nfs3.null(), 7))
    refused = refuse(connection, 7, 1, 2)
    reply(call(connection, nfs3.null(), xid=7), nfs3.null_reply())
    hello(connection)
    auditor = audit(wire, [one for one in wire.packets if one.operation != refused.number])
    tally = total(auditor, "V1-ERROR-FOR-VERSION")
    assert (tally.undecidable, tally.violated) == (1, 0)


def test_a_refusal_is_not_of_the_first_call_of_a_capture_where_an_earlier_one_may_have_its_xid() -> None:
    """Version 2 was tried before the capture, and its refusal came behind the call in version 1."""
    wire = Wire(seed=6)
    connection = wire.connect()
    begin = len(wire.packets)
    call(connection, nfs3.null(), xid=7)
    refuse(connection, 7, 1, 2)
    hello(connection)
    for rule in ("V1-ERROR-VERSION", "V1-ERROR-RANGE"):
        assert total(audit(wire, wire.packets[begin:]), rule).undecidable == 1
        assert total(audit(wire), rule).violated == 1
