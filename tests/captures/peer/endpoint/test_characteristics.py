"""Transport characteristics between two endpoints: what is reported, asked for, and in force."""

from __future__ import annotations

import pytest

from rdmascope.captures.peer.endpoint import Call, Changed, EndpointSettings, Failed, Role, RpcRdmaEndpoint, service
from rdmascope.captures.peer.endpoint.nouns import encode_option, xcharsubset, xcharval
from rdmascope.captures.peer.wire import Dialogue, Path, Rocev2Link, Tape
from rdmascope.dissect.layers.characteristics_codes import (
    ROPT_INITXCH,
    ROPT_REQXCH,
    ROPT_RESPXCH,
    ROPT_UPDXCH,
    XCHAR_BRS,
    XCHAR_RBSIZ,
    XCHAR_REQREMINV,
)
from rdmascope.dissect.rpcrdma.transport_header import decode_header

UNKNOWN = 4711


class Heard(Rocev2Link):
    """Keeps the options that pass: who sent which, under which XID."""

    def __init__(self, tape: Tape, path: Path) -> None:
        super().__init__(tape, path)
        self.options: list[tuple[int, int, int]] = []

    def send(self, sender: int, data: bytes, invalidate: int | None = None) -> None:
        header = decode_header(data, 0, len(data), len(data))
        if header.option is not None:
            self.options.append((sender, header.option, header.xid))
        super().send(sender, data, invalidate)


def met(**server: object) -> tuple[Dialogue, Heard]:
    """Two ends of version 2 that have introduced themselves, and a call."""
    link = Heard(Tape(), Path())
    settings = EndpointSettings(version=2, **server)  # type: ignore[arg-type]
    conversation = Dialogue(
        RpcRdmaEndpoint(Role.CLIENT, EndpointSettings(version=2)), RpcRdmaEndpoint(Role.SERVER, settings), link
    )
    conversation.connect()
    conversation.call(0, Call(service.null(1)))
    return conversation, link


def changes(conversation: Dialogue, end: int) -> list[tuple[int, object]]:
    """What an end knows of the other one."""
    return [(one.which, one.value) for who, one in conversation.reports if who == end and isinstance(one, Changed)]


def test_both_ends_introduce_themselves_under_one_xid() -> None:
    conversation, link = met(receive_buffer=8192, remote_invalidation=True, more={UNKNOWN: b"\0\0\0\7"})
    (client, first, xid), (server, second, same) = link.options
    assert ((client, first), (server, second), xid) == ((0, ROPT_INITXCH), (1, ROPT_INITXCH), same)
    assert changes(conversation, 0) == [(XCHAR_RBSIZ, 8192), (XCHAR_REQREMINV, True), (UNKNOWN, b"\0\0\0\7")]
    assert conversation.ends[0].send_limit == 8192


@pytest.mark.parametrize(
    "fate, options, size",
    [
        ("done", [ROPT_REQXCH, ROPT_RESPXCH], 8192),
        ("pending", [ROPT_REQXCH, ROPT_RESPXCH, ROPT_UPDXCH], 8192),
        ("reject", [ROPT_REQXCH, ROPT_RESPXCH], 4096),
    ],
)
def test_a_change_that_is_asked_for(fate: str, options: list[int], size: int) -> None:
    conversation, link = met(on_request={XCHAR_RBSIZ: fate})
    conversation.request(0, {XCHAR_RBSIZ: 8192})
    conversation.run()
    assert [option for _, option, _ in link.options[2:]] == options
    assert link.options[2][2] == link.options[3][2]
    assert conversation.ends[0].send_limit == size
    assert conversation.ends[1].receive_limit == size


def test_what_will_not_change_and_what_nobody_knows_is_rejected() -> None:
    conversation, _ = met(unchanging=frozenset({XCHAR_BRS}))
    before = changes(conversation, 0)
    conversation.request(0, {XCHAR_BRS: 2, UNKNOWN: b"\0\0\0\1"})
    conversation.run()
    assert changes(conversation, 0) == before


def test_a_smaller_size_that_is_asked_for_counts_before_the_answer() -> None:
    conversation, _ = met(receive_buffer=8192)
    client = conversation.ends[0]
    client.request({XCHAR_RBSIZ: 4096})
    assert client.send_limit == 4096


def test_a_size_grows_unasked_and_does_not_shrink() -> None:
    conversation, link = met(receive_buffer=8192)
    conversation.update(1, XCHAR_RBSIZ, 16384)
    conversation.update(1, XCHAR_RBSIZ, 4096)
    assert [option for _, option, _ in link.options[2:]] == [ROPT_UPDXCH]
    assert conversation.ends[0].send_limit == 16384


def test_who_does_not_know_the_extension_is_left_alone() -> None:
    conversation, link = met(extension=False)
    conversation.request(0, {XCHAR_RBSIZ: 8192})
    conversation.run()
    conversation.update(0, XCHAR_RBSIZ, 8192)
    assert len(link.options) == 1
    assert conversation.ends[0].send_limit == conversation.ends[1].send_limit == 4096


@pytest.mark.parametrize("level, answered", [(0, False), (1, False), (2, True)])
def test_a_long_callback_needs_general_support(level: int, answered: bool) -> None:
    link = Heard(Tape(), Path())
    client = RpcRdmaEndpoint(Role.CLIENT, EndpointSettings(version=2, backward_support=level))
    conversation = Dialogue(client, RpcRdmaEndpoint(Role.SERVER, EndpointSettings(version=2)), link)
    conversation.connect()
    conversation.call(0, Call(service.create_session(1)))
    conversation.call(1, Call(service.callback(2, bytes(20000)), 20512))
    failures = [one.reason for _, one in conversation.reports if isinstance(one, Failed)]
    assert (failures == []) is answered


def test_subsets_select_bits_from_the_least_significant() -> None:
    assert [xcharsubset(places) for places in ([], [0, 2], [31], [33])] == [[], [5], [1 << 31], [0, 2]]
    optinfo = encode_option(ROPT_INITXCH, [xcharval(XCHAR_RBSIZ, 4096)], xcharsubset([0]))
    assert optinfo.hex(" ", 4) == "00000001 00000001 00000004 00001000 00000001 00000001"
