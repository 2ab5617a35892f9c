"""The RPC header as clients and servers send it, whole, cut short and hostile."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rdmascope.dissect.layers.oncrpc_codes import AUTH_NONE, AUTH_SYS, CALL, SUCCESS
from rdmascope.dissect.onc import rpc_header as header
from rdmascope.dissect.onc.rpc_header import GssCredential

QUICK = settings(max_examples=80)

FSINFO_CALL = bytes.fromhex(
    "2aa82abb0000000000000002000186a30000000300000014000000010000001c0000000000000006636c69656e740000"
    "0000000000000000000000000000000000000000000000080100010000000000"
)
"""A Linux client asks for PATHCONF (20) of version 3."""
LOOKUP_REPLY = bytes.fromhex("ee6103b9000000010000000000000000000000000000000000000002")
"""The first words of a COMPOUND that failed."""


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def gss_call(procedure: int, service: int, body: bytes = b"", context: bytes = b"ctx!") -> bytes:
    credential = words(1, procedure, 77, service) + words(len(context)) + context
    return words(9, 0, 2, 100003, 4, 1, 6, len(credential)) + credential + words(6, 4) + b"mic!" + body


def test_a_call_with_auth_sys() -> None:
    call = header.call_header(FSINFO_CALL, 0, len(FSINFO_CALL))
    assert call is not None
    assert (call.xid, call.rpc_version, call.program, call.version) == (0x2AA82ABB, 2, 100003, 3)
    assert (call.procedure, call.flavor, call.gss, call.body) == (20, AUTH_SYS, None, 68)
    assert not call.truncated


@pytest.mark.parametrize("wrap", [bytes, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_any_buffer_and_any_place_in_it(wrap: object) -> None:
    data = wrap(b"\xff" * 5 + FSINFO_CALL + b"\xff" * 90)  # type: ignore[operator]
    call = header.call_header(data, 5, 5 + len(FSINFO_CALL))
    assert call is not None and call.body == 5 + 68
    assert header.message_type(data, 5, 5 + len(FSINFO_CALL)) == CALL
    cut = header.call_header(data, 5, 5 + 40)
    assert cut is not None and cut.truncated and cut.body == -1


def test_a_call_truncated_anywhere_says_so() -> None:
    for end in range(len(FSINFO_CALL)):
        call = header.call_header(FSINFO_CALL, 0, end)
        if end < 24:
            assert call is None
            continue
        assert call is not None and call.procedure == 20
        assert call.truncated == (end < 68)
        assert call.body == (68 if end >= 68 else -1)


def test_what_rpcsec_gss_wraps() -> None:
    plain = gss_call(0, 1, b"args")
    call = header.call_header(plain, 0, len(plain))
    assert call is not None and call.gss == GssCredential(1, 0, 77, 1)
    assert plain[call.body :] == b"args"
    integrity = gss_call(0, 2, words(8, 77) + b"args" + words(0))
    call = header.call_header(integrity, 0, len(integrity))
    assert call is not None and integrity[call.body : call.body + 4] == b"args"
    privacy = gss_call(0, 3, words(100))
    call = header.call_header(privacy, 0, len(privacy))
    assert call is not None and (call.body, call.reason) == (-1, "encrypted by RPCSEC_GSS")
    init = gss_call(1, 1, words(100))
    call = header.call_header(init, 0, len(init))
    assert call is not None and (call.body, call.reason) == (-1, "RPCSEC_GSS_INIT")


def test_credentials_no_implementation_sends() -> None:
    long_credential = words(1, 0, 2, 100003, 3, 1, 1, 0xFFFFFFFF) + bytes(500)
    call = header.call_header(long_credential, 0, len(long_credential))
    assert call is not None and call.body == -1 and not call.truncated
    assert call.reason == "credential of 4294967295 bytes"
    old = words(1, 0, 3, 100003, 3, 1, 0, 0, 0, 0)
    call = header.call_header(old, 0, len(old))
    assert call is not None and (call.rpc_version, call.body, call.reason) == (3, -1, "RPC version 3")


def test_an_accepted_reply() -> None:
    reply = header.reply_header(LOOKUP_REPLY, 0, len(LOOKUP_REPLY))
    assert reply is not None and reply.accepted and reply.accept_status == SUCCESS
    assert (reply.body, reply.flavor, reply.error) == (24, AUTH_NONE, "")
    for end in range(8, 24):
        cut = header.reply_header(LOOKUP_REPLY, 0, end)
        assert cut is not None and cut.truncated and cut.body == -1
        assert cut.accepted is (True if end >= 12 else None)


@pytest.mark.parametrize(
    ("message", "error", "bounds"),
    [
        (words(7, 1, 0, 0, 0, 1), "PROG_UNAVAIL", (None, None)),
        (words(7, 1, 0, 0, 0, 2, 2, 4), "PROG_MISMATCH", (2, 4)),
        (words(7, 1, 0, 0, 0, 3), "PROC_UNAVAIL", (None, None)),
        (words(7, 1, 0, 0, 0, 4), "GARBAGE_ARGS", (None, None)),
        (words(7, 1, 0, 0, 0, 5), "SYSTEM_ERR", (None, None)),
        (words(7, 1, 0, 0, 0, 6), "accept_stat 6", (None, None)),
        (words(7, 1, 1, 0, 2, 2), "RPC_MISMATCH", (2, 2)),
        (words(7, 1, 1, 1, 1), "AUTH_BADCRED", (None, None)),
        (words(7, 1, 1, 1, 14), "RPCSEC_GSS_CTXPROBLEM", (None, None)),
        (words(7, 1, 1, 1, 99), "auth_stat 99", (None, None)),
        (words(7, 1, 1, 8), "reject_stat 8", (None, None)),
    ],
)
def test_refusals(message: bytes, error: str, bounds: tuple[int | None, int | None]) -> None:
    reply = header.reply_header(message, 0, len(message))
    assert reply is not None
    assert (reply.error, reply.body, reply.truncated) == (error, -1, False)
    assert (reply.low, reply.high) == bounds


def test_a_protected_reply_needs_its_call() -> None:
    message = words(7, 1, 0, 6, 4) + b"mic!" + words(0) + words(8, 77) + b"res!"
    unknown = header.reply_header(message, 0, len(message))
    assert unknown is not None and unknown.body == -1 and "not known" in unknown.reason
    for service, body in ((1, 28), (2, 36), (3, -1)):
        reply = header.reply_header(message, 0, len(message), GssCredential(1, 0, 77, service))
        assert reply is not None and reply.body == body


def test_neither_call_nor_reply() -> None:
    message = words(1, 2, 2, 100003, 3, 1, 0, 0, 0, 0)
    assert header.message_type(message, 0, len(message)) is None
    assert header.call_header(message, 0, len(message)) is None
    assert header.reply_header(message, 0, len(message)) is None
    assert header.message_type(message, 0, 7) is None


@QUICK
@given(st.binary(max_size=120), st.integers(0, 12), st.sampled_from([None, GssCredential(1, 0, 1, 2)]))
def test_noise_decodes_to_something_inside_the_bytes(noise: bytes, start: int, gss: GssCredential | None) -> None:
    start = min(start, len(noise))
    for kind in (b"", words(1, 0, 2), words(1, 1, 0), words(1, 1, 1)):
        data = noise[:start] + kind + noise[start:]
        found = [header.call_header(data, start, len(data)), header.reply_header(data, start, len(data), gss)]
        for decoded in found:
            assert decoded is None or decoded.body == -1 or start < decoded.body <= len(data)
