"""What two ends agreed: the version, the characteristics, thresholds over time; and what the capture does not tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from playbook import Capture, Wire, faults, nfs3, nfs4
from playbook.capture import frame_batches
from playbook.rpc import call_parts, reply_parts, u32, whole
from playbook.rpcrdma import (
    ERROR,
    MSG,
    NOMSG,
    REPLY,
    announce,
    call,
    error,
    header,
    optional,
    refuse_option,
    reply,
    respond,
    update,
    wish,
)
from playbook.wire import Connection as Talk
from rdmascope.dissect.layers.characteristics_codes import BKREQSUP_INLINE, XCHAR_BRS, XCHAR_RBSIZ, XCHAR_REQREMINV
from rdmascope.dissect.rpcrdma.analyzer import Analyzer, Options
from rdmascope.dissect.rpcrdma.conversation import Conversation
from rdmascope.dissect.rpcrdma.matching import BY_XID_ALONE
from rdmascope.dissect.rpcrdma.negotiation import MAX_KEPT
from rdmascope.dissect.rpcrdma.rpcs import Rpc
from rdmascope.dissect.rpcrdma.version_loops import loops

CLIENT, SERVER = 0, 1


def observe(wire: Wire, skip: int = 0) -> tuple[Conversation, list[Rpc]]:
    conversations, rpcs = observe_all(wire, skip)
    return conversations[0], rpcs


def observe_all(wire: Wire, skip: int = 0) -> tuple[list[Conversation], list[Rpc]]:
    analyzer = Analyzer()
    rpcs: list[Rpc] = []
    for batch in frame_batches(Capture(wire, faults.cut(wire.packets, skip)).frames, ()):
        rpcs += analyzer.feed(batch)
    rpcs += analyzer.finish()
    return analyzer.conversations, rpcs


def ping(talk: Talk, version: int | None = None) -> None:
    talk.version = version or talk.version
    reply(call(talk, nfs3.null()), nfs3.null_reply())


def spoken(version: int = 2) -> tuple[Wire, Talk]:
    wire = Wire()
    wire.version = version
    return wire, wire.connect()


def test_version_2_is_asked_and_answered() -> None:
    wire, talk = spoken()
    ping(talk)
    conversation, (rpc,) = observe(wire)
    negotiation = conversation.negotiation
    assert rpc.call is not None and rpc.reply is not None and rpc.state == "complete"
    assert negotiation.requested is not None and negotiation.requested.version == 2
    assert negotiation.requested.frame == rpc.call.frame
    assert [answer.frame for answer in negotiation.answers] == [rpc.reply.frame]
    assert not negotiation.refusals


def test_the_threshold_is_1024_until_the_answer_and_4096_after() -> None:
    wire, talk = spoken()
    ping(talk)
    ping(talk)
    conversation, (first, second) = observe(wire)
    assert first.call is not None and first.reply is not None and second.call is not None
    assert conversation.inline_threshold(CLIENT, first.call.frame) == (1024, "until the version is settled")
    assert conversation.inline_threshold(SERVER, first.reply.frame)[0] == 1024
    assert conversation.inline_threshold(CLIENT, second.call.frame) == (4096, "default of version 2")
    assert [(known.frame, known.value) for known in conversation.thresholds(CLIENT)] == [
        (0, 1024),
        (first.reply.frame, 4096),
    ]


def test_a_version_1_responder_refuses_and_the_requester_falls_back() -> None:
    wire, talk = spoken()
    error(call(talk, nfs3.null(), xid=7), 1)
    ping(talk, 1)
    conversation, (refused, done) = observe(wire)
    negotiation = conversation.negotiation
    assert refused.status == "RDMA2_ERR_VERS" and refused.state == "error" and done.state == "complete"
    assert refused.call is not None and refused.reply is not None
    (refusal,) = negotiation.refusals
    assert (refusal.refused_version, refusal.refused_frame, refusal.range) == (2, refused.call.frame, "1..1")
    assert refusal.frame == refused.reply.frame and refusal.endpoint == SERVER
    assert negotiation.continued is not None and negotiation.continued.version == 1
    assert conversation.version_at(negotiation.continued.frame).value == 1
    assert conversation.version_at(negotiation.continued.frame - 1).value == 0


def test_what_was_announced_before_a_fall_back_holds_no_longer() -> None:
    wire, talk = spoken()
    announce(talk, CLIENT, (XCHAR_RBSIZ, 65536), xid=7)
    talk.send(SERVER, u32(7, 2, 32, ERROR, 1, 1, 1))
    ping(talk, 1)
    conversation, rpcs = observe(wire)
    negotiation = conversation.negotiation
    assert len(rpcs) == 1 and negotiation.refusals[0].refused_version == 2 and len(negotiation.announcements) == 1
    assert conversation.receive_size(CLIENT).source == "private data"
    assert conversation.in_force(XCHAR_RBSIZ, CLIENT).source == "version 1 has none"


def test_a_refusal_in_the_words_of_version_1() -> None:
    wire, talk = spoken()
    exchange = call(talk, nfs3.null(), xid=7)
    exchange.version = 1
    error(exchange, 1)
    conversation, (refused,) = observe(wire)
    assert refused.status == "RDMA_ERR_VERS"
    assert conversation.negotiation.refusals[0].refused_version == 2


def test_a_refusal_in_the_middle_and_the_same_version_again() -> None:
    wire, talk = spoken()
    ping(talk)
    error(call(talk, nfs3.null(), xid=7), 1)
    ping(talk)
    conversation, rpcs = observe(wire)
    went_on = conversation.negotiation.continued
    assert went_on is not None and went_on.version == 2 and len(rpcs) == 3
    assert conversation.version_at().value == 2


def test_version_1_keeps_what_its_private_data_say() -> None:
    wire, talk = spoken(1)
    ping(talk)
    conversation, _ = observe(wire)
    assert conversation.version_at().value == 1
    assert conversation.inline_threshold(CLIENT)[1] in ("private data", "default")
    assert conversation.in_force(XCHAR_BRS, CLIENT).source == "version 1 has none"


def test_characteristics_are_defaults_until_they_are_announced() -> None:
    wire, talk = spoken()
    announce(talk, CLIENT, (XCHAR_RBSIZ, 8192), (XCHAR_REQREMINV, 1), nochange=[1])
    ping(talk)
    announce(talk, SERVER, (XCHAR_RBSIZ, 16384), xid=9)
    ping(talk)
    conversation, rpcs = observe(wire)
    first, second = conversation.negotiation.announcements[0], conversation.negotiation.announcements[-1]
    assert len(rpcs) == 2
    assert conversation.in_force(XCHAR_REQREMINV, CLIENT).value is True
    assert conversation.in_force(XCHAR_REQREMINV, SERVER) == (False, 0, "default of version 2")
    assert conversation.in_force(XCHAR_BRS, CLIENT) == (BKREQSUP_INLINE, 0, "default of version 2")
    assert conversation.in_force(XCHAR_RBSIZ, CLIENT, first.frame).source == "default of version 2"
    announced = conversation.receive_size(CLIENT, first.frame + 1)
    assert announced == (8192, first.frame, f"ROPT_INITXCH in frame {first.frame}")
    assert conversation.receive_size(SERVER, second.frame).value == 4096
    assert conversation.inline_threshold(CLIENT, second.frame + 1)[0] == 16384
    assert [known.value for known in conversation.thresholds(SERVER)] == [1024, 8192]
    assert conversation.negotiation.nochange[CLIENT] == (first.frame, frozenset({XCHAR_REQREMINV}))
    assert conversation.negotiation.nochange[SERVER] == (second.frame, frozenset())


def test_a_wish_is_done_rejected_or_pending_until_an_update() -> None:
    wire, talk = spoken()
    ping(talk)
    wish(talk, CLIENT, (XCHAR_RBSIZ, 8192), (XCHAR_REQREMINV, 1), (XCHAR_BRS, 2))
    respond(talk, SERVER, [0], [1], [2])
    update(talk, SERVER, XCHAR_BRS, 1)
    update(talk, SERVER, XCHAR_BRS, 2, clear=True)
    conversation, rpcs = observe(wire)
    negotiation = conversation.negotiation
    (request,) = negotiation.requests
    done, partly, wholly = negotiation.announcements
    assert len(rpcs) == 1
    assert (done.by, done.endpoint, done.characteristic.value) == ("ROPT_RESPXCH", SERVER, 8192)
    assert request.requester == CLIENT
    assert [sorted(one) for one in (request.done, request.rejected, request.pending)] == [[0], [1], [2]]
    assert request.cleared == {2: wholly.frame} and not request.open
    assert [at for _, at in negotiation.pending(SERVER, request.answer_frame)] == [0, 1, 2]
    assert [at for _, at in negotiation.pending(SERVER, wholly.frame)] == [2]
    assert not negotiation.pending(SERVER) and not negotiation.pending(CLIENT)
    assert conversation.in_force(XCHAR_BRS, SERVER, wholly.frame).source == f"ROPT_UPDXCH in frame {partly.frame}"


def test_an_option_that_is_not_supported_is_refused_and_is_no_rpc() -> None:
    wire, talk = spoken()
    ping(talk)
    asked = wish(talk, CLIENT, (XCHAR_RBSIZ, 8192), xid=40)
    refuse_option(talk, SERVER, 40)
    conversation, rpcs = observe(wire)
    negotiation = conversation.negotiation
    (refusal,) = negotiation.option_refusals
    (request,) = negotiation.requests
    assert asked.number and len(rpcs) == 1
    assert (refusal.endpoint, refusal.option) == (SERVER, 2)
    assert request.refused_frame == refusal.frame and not negotiation.pending(SERVER)


def test_an_option_with_a_call_behind_it_is_an_rpc() -> None:
    wire, talk = spoken()
    rpc = call(talk, nfs3.getattr_(), option=77)
    reply(rpc, nfs3.getattr_reply())
    _, (found,) = observe(wire)
    assert (found.name, found.state) == ("GETATTR", "complete")
    assert found.notes == ("the call stands behind option 77, and may be only part of a message",)


def test_a_call_behind_an_option_that_is_refused_has_ended() -> None:
    wire, talk = spoken()
    ping(talk)
    call(talk, nfs3.getattr_(), option=77, xid=40)
    refuse_option(talk, SERVER, 40)
    conversation, (_, found) = observe(wire)
    assert (found.name, found.state, found.status) == ("GETATTR", "error", "RDMA2_ERR_INVAL_OPTION")
    assert conversation.negotiation.option_refusals[0].option == 77


def test_backward_calls_and_their_direction() -> None:
    wire, talk = spoken()
    ping(talk)
    rpc = call(talk, nfs4.callback(nfs4.cb_sequence(), nfs4.cb_recall()), backward=True)
    reply(rpc, nfs4.compound_reply(nfs4.cb_sequence_done(), nfs4.cb_recall_done()))
    conversation, (_, found) = observe(wire)
    assert found.backward and found.state == "complete" and not found.notes
    assert len(conversation.negotiation.answers) == 1


def test_a_direction_word_that_lies_is_noted_and_the_rpc_found() -> None:
    wire, talk = spoken()
    talk.send(CLIENT, header(7, MSG, version=2, direction=REPLY) + whole(call_parts(nfs3.null(), 7)))
    talk.send(SERVER, header(7, MSG, version=2, direction=REPLY) + whole(reply_parts(nfs3.null_reply(), 7)))
    _, (found,) = observe(wire)
    assert found.state == "complete"
    assert found.notes == ("the call's direction word says REPLY",)


@pytest.mark.parametrize("skip", [1, 6])
def test_what_was_before_the_capture_is_not_reported(skip: int) -> None:
    wire, talk = spoken()
    for _ in range(4):
        ping(talk)
    update(talk, SERVER, XCHAR_RBSIZ, 8192)
    ping(talk)
    conversation, _ = observe(wire, skip)
    assert conversation.in_force(XCHAR_RBSIZ, CLIENT).value is None
    assert conversation.inline_threshold(SERVER) == (4096, "not seen: the capture begins after the connection")
    assert conversation.receive_size(SERVER).value == 8192
    first = conversation.negotiation.announcements[0].frame
    assert conversation.receive_size(SERVER, first).value is None


def test_a_gap_may_have_held_an_announcement() -> None:
    wire, talk = spoken()
    ping(talk)
    announce(talk, SERVER, (XCHAR_RBSIZ, 8192))
    ping(talk)
    lost = [at for at, packet in enumerate(wire.packets) if b"\0\0\0\5" in packet.payload[12:16]]
    analyzer = Analyzer()
    for batch in frame_batches(Capture(wire, faults.drop(wire.packets, lost)).frames, ()):
        analyzer.feed(batch)
    analyzer.finish()
    known = analyzer.conversations[0].receive_size(SERVER)
    assert known.value is None and "not in the capture" in known.source


def test_an_announcement_may_be_followed_by_one_that_was_lost() -> None:
    wire, talk = spoken()
    ping(talk)
    announce(talk, SERVER, (XCHAR_RBSIZ, 8192))
    ping(talk)
    ping(talk)
    lost = [at for at, packet in enumerate(wire.packets) if packet.kind == "send"][3:4]
    analyzer = Analyzer()
    for batch in frame_batches(Capture(wire, faults.drop(wire.packets, lost)).frames, ()):
        analyzer.feed(batch)
    analyzer.finish()
    known = analyzer.conversations[0].receive_size(SERVER)
    assert known.value == 8192 and known.source.endswith("; packets are missing, and a later one may be among them")


def test_a_value_of_the_wrong_type_is_no_value() -> None:
    wire, talk = spoken()
    ping(talk)
    announce(talk, SERVER, (XCHAR_RBSIZ, b"\0\1"))
    conversation, _ = observe(wire)
    known = conversation.receive_size(SERVER)
    assert known.value is None and "2 bytes are too few for a uint32" in known.source


def test_what_cannot_be_remembered_is_not_known() -> None:
    wire, talk = spoken()
    ping(talk)
    for number in range(MAX_KEPT // 500 + 1):
        announce(talk, SERVER, *[(XCHAR_RBSIZ, 4096 + at) for at in range(500)], xid=100 + number)
    conversation, _ = observe(wire)
    assert len(conversation.negotiation.announcements) == MAX_KEPT
    assert conversation.receive_size(SERVER).value is None
    assert conversation.receive_size(SERVER, conversation.negotiation.overflow).value is not None


def test_versions_mix_on_one_connection() -> None:
    wire, talk = spoken()
    for version in (2, 1, 2):
        ping(talk, version)
    conversation, rpcs = observe(wire)
    assert [rpc.state for rpc in rpcs] == ["complete"] * 3
    assert [answer.version for answer in conversation.negotiation.answers] == [2, 1, 2]


def again(wire: Wire, client: str = "10.0.0.2") -> None:
    talk = wire.connect(client, "10.0.0.1")
    error(call(talk, nfs3.null()), 1)
    talk.disconnect()


def test_asking_a_responder_again_what_it_refused_is_a_loop() -> None:
    wire = Wire()
    wire.version = 2
    for client in ("10.0.0.2", "10.0.0.3", "10.0.0.2"):
        again(wire, client)
    conversations, _ = observe_all(wire)
    (loop,) = loops(conversations)
    assert ([one.connection.number for one in loop.conversations], loop.version) == ([1, 3], 2)


def test_asking_again_after_a_fall_back_is_none() -> None:
    wire = Wire()
    for _ in range(2):
        wire.version = 2
        talk = wire.connect()
        error(call(talk, nfs3.null()), 1)
        ping(talk, 1)
    conversations, rpcs = observe_all(wire)
    assert len(rpcs) == 4 and not loops(conversations)


def test_falling_back_on_the_next_connection_is_none() -> None:
    wire = Wire()
    wire.version = 2
    again(wire)
    ping(wire.connect(), 1)
    conversations, _ = observe_all(wire)
    assert not loops(conversations)


def test_headers_truncated_by_the_capture_still_show_the_version() -> None:
    wire, talk = spoken()
    ping(talk)
    analyzer = Analyzer()
    for batch in frame_batches(Capture(wire, faults.snap(wire.packets, 74)).frames, ()):
        analyzer.feed(batch)
    analyzer.finish()
    (conversation,) = analyzer.conversations
    assert [answer.version for answer in conversation.negotiation.answers] == [2]


@pytest.mark.parametrize("snaplen", [70, 74, 78, 82, 86])
def test_a_refused_option_whose_frames_are_truncated_is_no_rpc(snaplen: int) -> None:
    """Ethernet, IPv4, UDP and BTH take 54 bytes, the four fixed words 16."""
    wire, talk = spoken()
    ping(talk)
    talk.send(CLIENT, optional(40, 99, b"abc"))
    refuse_option(talk, SERVER, 40)
    analyzer = Analyzer(Options(force=True))
    rpcs: list[Rpc] = []
    for batch in frame_batches(Capture(wire, faults.snap(wire.packets, snaplen)).frames, ()):
        rpcs += analyzer.feed(batch)
    assert [rpc.xid for rpc in rpcs + analyzer.finish()] == [wire.truth[0].xid]


def test_an_error_about_something_truncated_can_only_be_matched_by_its_xid() -> None:
    wire, talk = spoken()
    ping(talk)
    talk.send(CLIENT, optional(40, 99, b"abc"))
    refuse_option(talk, SERVER, 40)
    about = [replace(packet, snaplen=66) if b"\0\0\0\x63" in packet.payload else packet for packet in wire.packets]
    analyzer = Analyzer()
    rpcs: list[Rpc] = []
    for batch in frame_batches(Capture(wire, about).frames, ()):
        rpcs += analyzer.feed(batch)
    _, doubtful = rpcs + analyzer.finish()
    assert doubtful.xid == 40 and BY_XID_ALONE in doubtful.notes


def test_a_long_call_whose_direction_word_lies() -> None:
    wire, talk = spoken()
    text = whole(call_parts(nfs3.null(), 7))
    chunk = talk.register(len(text))
    talk.send(CLIENT, header(7, NOMSG, version=2, direction=REPLY, reads=[(0, chunk)]))
    read = talk.read_request(SERVER, chunk[0].handle, chunk[0].offset, text, ())
    talk.read_responses(read)
    talk.send(SERVER, header(7, MSG, version=2, direction=REPLY) + whole(reply_parts(nfs3.null_reply(), 7)))
    _, (found,) = observe(wire)
    assert (found.name, found.state) == ("NULL", "complete")
    assert found.notes == ("the call's direction word says REPLY",)


def test_chunks_that_hold_another_message_than_the_direction_word_says() -> None:
    wire, talk = spoken()
    text = whole(reply_parts(nfs3.null_reply(), 7))
    chunk = talk.register(len(text))
    talk.send(CLIENT, header(7, NOMSG, version=2, reads=[(0, chunk)]))
    read = talk.read_request(SERVER, chunk[0].handle, chunk[0].offset, text, ())
    talk.read_responses(read)
    _, (found,) = observe(wire)
    assert found.notes == ("the direction word says CALL, the chunks REPLY",)


def test_what_is_wrong_with_an_option_is_noted() -> None:
    wire, talk = spoken()
    ping(talk)
    talk.send(CLIENT, optional(5, 1, b"\xff" * 16))
    respond(talk, SERVER, [0], xid=99)
    talk.send(CLIENT, optional(6, 77, b"abc") + b"not an RPC message")
    refuse_option(talk, SERVER, 55)
    analyzer = Analyzer()
    for batch in frame_batches(Capture(wire).frames, ()):
        analyzer.feed(batch)
    analyzer.finish()
    reasons = [note.reason for note in analyzer.undecoded]
    assert reasons[0].startswith("ROPT_INITXCH: optixch_start at offset 0 counts 4294967295")
    assert reasons[1:] == [
        "ROPT_RESPXCH: it answers no request that was seen",
        "option 77 with 18 bytes behind it",
        "RDMA2_ERR_INVAL_OPTION for an option or call that was not seen",
    ]


def stranger() -> tuple[Wire, Talk]:
    """Nothing but what is said tells what it is."""
    wire = Wire()
    wire.version = 2
    return wire, wire.connect(port=5000)


def test_version_2_is_recognised_by_the_rpc_inside() -> None:
    wire, talk = stranger()
    ping(talk)
    conversation, rpcs = observe(wire)
    assert conversation.recognised_by[-2:] == ("header validation", "RPC inside") and len(rpcs) == 1


def test_version_2_is_recognised_by_an_option_alone() -> None:
    wire, talk = stranger()
    announce(talk, CLIENT, (XCHAR_RBSIZ, 8192))
    conversation, _ = observe(wire)
    assert conversation.recognised_by[-2:] == ("header validation", "ROPT_INITXCH")
    assert len(conversation.negotiation.announcements) == 1


HOSTILE: tuple[Callable[[Talk], object], ...] = (
    lambda talk: talk.send(CLIENT, optional(5, 1, b"\xff" * 16)),
    lambda talk: respond(talk, SERVER, [2000], [2000], [2000]),
    lambda talk: announce(talk, CLIENT, nochange=[7]),
    lambda talk: update(talk, CLIENT, 0xFFFFFFFF, b"x" * 300, clear=True),
)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_hostile_is_taken_for_an_agreement(hostile: Callable[[Talk], object]) -> None:
    wire, talk = spoken()
    ping(talk)
    wish(talk, CLIENT, (XCHAR_RBSIZ, 8192))
    hostile(talk)
    ping(talk)
    conversation, rpcs = observe(wire)
    assert len(rpcs) == 2
    assert conversation.receive_size(SERVER).value == 4096
