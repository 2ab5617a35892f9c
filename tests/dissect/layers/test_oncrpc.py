"""ONC RPC calls and replies as Scapy layers."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest
from hypothesis import given, strategies as st
from scapy.packet import Raw

from rdmascope.dissect.layers.oncrpc import (
    ONCRPC,
    AuthSys,
    Credential,
    GSSCredential,
    ONCRPCCall,
    ONCRPCReply,
    OpaqueAuth,
)
from rdmascope.dissect.layers.oncrpc_codes import (
    ACCEPT_STATUS_NAMES as ACCEPT_STATUSES,
    AUTH_STATUS_NAMES as AUTH_STATUSES,
    AUTH_SYS,
    CALL,
    REPLY,
    RPCSEC_GSS,
)

READ_CALL = bytes.fromhex(
    "3ca82abb0000000000000002000186a30000000300000006000000010000001c0000000000000006636c69656e740000"
    "0000000000000000000000000000000000000000000000140100010100000000bce0c686020000000000000000000000"
    "0000000000001000"
)
NULL_REPLY = pack(">6I", 0x28A82ABB, REPLY, 0, 0, 0, 0)


def words(*values: int) -> bytes:
    return pack(f">{len(values)}I", *values)


def test_a_real_nfs_read_call() -> None:
    message = ONCRPC(READ_CALL)
    call = message[ONCRPCCall]
    assert (message.xid, message.msg_type, call.rpcvers) == (0x3CA82ABB, CALL, 2)
    assert (call.prog, call.vers, call.proc) == (100003, 3, 6)
    assert (call.cred.flavor, call.cred.length) == (AUTH_SYS, 28)
    assert (call.cred.body.machinename, call.cred.body.uid, call.cred.body.gids) == (b"client", 0, [])
    assert (call.verf.flavor, call.verf.body) == (0, None)
    assert len(call.payload.load) == 36
    assert bytes(message) == READ_CALL


def test_a_null_reply() -> None:
    reply = ONCRPC(NULL_REPLY)[ONCRPCReply]
    assert (reply.reply_stat, reply.accept_stat, reply.verf.flavor) == (0, 0, 0)
    assert not reply.payload


@pytest.mark.parametrize("status", sorted(ACCEPT_STATUSES))
def test_every_accepted_status(status: int) -> None:
    data = bytes(ONCRPC(xid=1) / ONCRPCReply(accept_stat=status, low=2, high=4))
    assert data == words(1, REPLY, 0, 0, 0, status) + (words(2, 4) if status == 2 else b"")
    reply = ONCRPC(data)[ONCRPCReply]
    assert ACCEPT_STATUSES[status] in reply.show(dump=True)
    assert (reply.low, reply.high) == ((2, 4) if status == 2 else (None, None))


def test_denied_for_its_rpc_version() -> None:
    data = bytes(ONCRPC(xid=1) / ONCRPCReply(reply_stat=1, reject_stat=0, low=2, high=2))
    assert data == words(1, REPLY, 1, 0, 2, 2)
    reply = ONCRPC(data)[ONCRPCReply]
    assert (reply.reject_stat, reply.low, reply.high, reply.verf) == (0, 2, 2, None)


@pytest.mark.parametrize("status", sorted(AUTH_STATUSES))
def test_denied_for_its_credential(status: int) -> None:
    data = bytes(ONCRPC(xid=1) / ONCRPCReply(reply_stat=1, reject_stat=1, auth_stat=status))
    assert data == words(1, REPLY, 1, 1, status)
    assert AUTH_STATUSES[status] in ONCRPC(data)[ONCRPCReply].show(dump=True)


def test_auth_sys_counts_and_fills_itself() -> None:
    credential = Credential(flavor=AUTH_SYS, body=AuthSys(stamp=9, machinename=b"n1", uid=1000, gid=100, gids=[4, 27]))
    data = bytes(ONCRPC() / ONCRPCCall(prog=100003, vers=4, proc=1, cred=credential) / b"args")
    assert words(AUTH_SYS, 32, 9, 2) + b"n1\0\0" + words(1000, 100, 2, 4, 27, 0, 0) + b"args" == data[24:]
    body = ONCRPC(data)[ONCRPCCall].cred.body
    assert (body.machinename, body.uid, body.gid, body.gids) == (b"n1", 1000, 100, [4, 27])


def test_rpcsec_gss_credential() -> None:
    body = GSSCredential(gss_proc=0, seq_num=7, service=3, handle=b"hand1")
    verifier = OpaqueAuth(flavor=RPCSEC_GSS, body=Raw(b"mic45"))
    call = ONCRPCCall(cred=Credential(flavor=RPCSEC_GSS, body=body), verf=verifier)
    data = bytes(ONCRPC() / call)
    assert data[24:] == (words(RPCSEC_GSS, 28, 1, 0, 7, 3, 5) + b"hand1\0\0\0" + words(RPCSEC_GSS, 5) + b"mic45\0\0\0")
    parsed = ONCRPC(data)[ONCRPCCall]
    assert (parsed.cred.body.seq_num, parsed.cred.body.handle) == (7, b"hand1")
    assert parsed.verf.body.load == b"mic45"
    assert "rpc_gss_svc_privacy" in parsed.show(dump=True)


def test_a_short_hand_credential_is_opaque() -> None:
    data = words(1, CALL, 2, 3, 4, 5, 2, 6) + b"handle\0\0" + words(0, 0)
    call = ONCRPC(data)[ONCRPCCall]
    assert (call.cred.flavor, call.cred.body.load) == (2, b"handle")
    assert bytes(ONCRPC(data)) == data


def test_a_credential_that_is_not_what_its_flavor_says_stays_raw() -> None:
    data = words(1, CALL, 2, 3, 4, 5, AUTH_SYS, 8, 1, 2, 0, 0)
    assert isinstance(ONCRPC(data)[ONCRPCCall].cred.body, Raw)


def test_a_change_inside_a_credential_is_built() -> None:
    message = ONCRPC(READ_CALL)
    message[ONCRPCCall].cred.body.uid = 77
    assert ONCRPC(bytes(message))[ONCRPCCall].cred.body.uid == 77


CALL_WORDS = words(1, CALL, 2, 3, 4, 5)


@pytest.mark.parametrize(
    "data",
    [
        CALL_WORDS,
        CALL_WORDS + words(AUTH_SYS, 0xFFFFFFFF),
        CALL_WORDS + words(AUTH_SYS, 404) + bytes(404) + words(0, 0),
        CALL_WORDS + words(0, 3) + b"abcx" + words(0, 0),
        CALL_WORDS + words(0, 0, 0),
        words(1, REPLY),
        words(1, REPLY, 0, 0, 0),
        words(1, REPLY, 0, 0, 0, 2, 1),
        words(1, 2, 0, 0),
    ],
)
def test_what_is_no_rpc_stays_raw(data: bytes) -> None:
    message = ONCRPC(data)
    assert not message.haslayer(ONCRPCCall) and not message.haslayer(ONCRPCReply)
    assert bytes(message) == data


def test_hostile_gid_counts_are_not_followed() -> None:
    body = words(0, 0, 0, 0, 0xFFFFFFFF)
    data = CALL_WORDS + words(AUTH_SYS, len(body)) + body + words(0, 0)
    assert isinstance(ONCRPC(data)[ONCRPCCall].cred.body, Raw)


WORDS = st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 8, 100003, 0xFFFFFFFF]), max_size=30)


@given(st.one_of(st.binary(min_size=8, max_size=120), WORDS.map(lambda tail: words(1, *tail, 0))), st.data())
def test_dissection_never_raises_and_loses_nothing(data: bytes, draw: st.DataObject) -> None:
    cut = data[: draw.draw(st.integers(8, len(data)))]
    message = ONCRPC(cut)
    message.show(dump=True)
    assert bytes(message) == cut


@given(
    machine=st.binary(max_size=255),
    gids=st.lists(st.integers(0, 2**32 - 1), max_size=16),
    handle=st.binary(max_size=300),
    arguments=st.binary(max_size=30),
    gss=st.booleans(),
)
def test_built_calls_read_back(machine: bytes, gids: list[int], handle: bytes, arguments: bytes, gss: bool) -> None:
    body: Any = GSSCredential(handle=handle) if gss else AuthSys(machinename=machine, gids=gids)
    credential = Credential(flavor=RPCSEC_GSS if gss else AUTH_SYS, body=body)
    call = ONCRPC(bytes(ONCRPC() / ONCRPCCall(cred=credential) / arguments))[ONCRPCCall]
    if gss:
        assert call.cred.body.handle == handle
    else:
        assert (call.cred.body.machinename, call.cred.body.gids) == (machine, gids)
    assert bytes(call.payload) == arguments
