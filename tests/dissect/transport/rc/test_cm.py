"""Communication Management as the observer reads it: whole messages, truncated ones, and what is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rdmascope.dissect.layers.cm import (
    CM_MESSAGES,
    MAD,
    CMAlternatePathResponse,
    CMDisconnectReply,
    CMDisconnectRequest,
    CMLoadAlternatePath,
    CMMsgRcptAck,
    CMReadyToUse,
    CMReject,
    CMReply,
    CMRequest,
    CMServiceIDReply,
    CMServiceIDRequest,
    IPCMRequest,
)
from rdmascope.dissect.layers.private_data import RPCRDMAPrivateData, find_private_data
from rdmascope.dissect.transport.rc.cm import ManagementMessage, read_cms

REQUEST = bytes(
    MAD(transactionid=0x2E306AE73)
    / CMRequest(
        localcommid=0x73AE06E3,
        serviceid=0x01064E51,
        localqpn=17,
        startpsn=0x526927,
        responderres=128,
        initdepth=2,
        retrcount=6,
        rnrretrcount=7,
        pppmtu=5,
    )
    / IPCMRequest(sip="10.77.0.2", dip="10.77.0.1", sport=42155)
    / RPCRDMAPrivateData(r=1)
)


def read_cm(data: bytes, start: int, end: int) -> ManagementMessage | None:
    """Alone, and behind a whole one."""
    column = np.frombuffer(REQUEST + data, np.uint8)
    starts, captured = np.array([0, len(REQUEST) + start]), np.array([len(REQUEST), end - start])
    (message,) = read_cms(column, starts[1:], captured[1:])
    assert read_cms(column, starts, captured) == [read(REQUEST), message]
    return message


def read(data: bytes) -> ManagementMessage:
    (message,) = read_cms(np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)]))
    assert message is not None
    return message


def test_a_request() -> None:
    message = read(REQUEST)
    assert message == ManagementMessage(
        kind="REQ",
        local_comm_id=0x73AE06E3,
        local_qpn=17,
        start_psn=0x526927,
        service_id=0x01064E51,
        service_port=20049,
        responder_resources=128,
        initiator_depth=2,
        path_mtu=4096,
        private_data=bytes.fromhex("f6ab0e1801010303") + bytes(48),
    )
    assert find_private_data(message.private_data)[0].remote_invalidation


def test_a_request_to_a_service_that_is_no_ip_port() -> None:
    message = read(bytes(MAD() / CMRequest(serviceid=0x1000000000000001) / RPCRDMAPrivateData()))
    assert message.service_port is None
    assert len(message.private_data) == 92
    assert find_private_data(message.private_data)[0].offset == 0


def test_a_reply() -> None:
    reply = CMReply(localcommid=1, remotecommid=2, localqpn=0xABCDEF, startpsn=5, respres=3, initdepth=4)
    message = read(bytes(MAD() / reply / RPCRDMAPrivateData()))
    assert (message.kind, message.local_comm_id, message.remote_comm_id) == ("REP", 1, 2)
    assert (message.local_qpn, message.start_psn) == (0xABCDEF, 5)
    assert (message.responder_resources, message.initiator_depth) == (3, 4)
    assert len(message.private_data) == 196


@pytest.mark.parametrize(
    ("layer", "kind", "expected"),
    [
        (CMReadyToUse(localcommid=1, remotecommid=2), "RTU", {"local_comm_id": 1, "remote_comm_id": 2}),
        (CMMsgRcptAck(localcommid=1), "MRA", {"local_comm_id": 1}),
        (CMReject(reason=10), "REJ", {"reason": 10, "reason_name": "Stale connection"}),
        (CMReject(reason=999), "REJ", {"reason": 999, "reason_name": "Reason 999"}),
        (CMDisconnectRequest(remoteqpneecn=9), "DREQ", {"remote_qpn": 9, "local_qpn": None}),
        (CMDisconnectReply(remotecommid=2), "DREP", {"remote_comm_id": 2}),
        (CMLoadAlternatePath(remoteqpneecn=9), "LAP", {"remote_qpn": 9}),
        (CMAlternatePathResponse(localcommid=1), "APR", {"local_comm_id": 1}),
        (CMServiceIDRequest(requestid=7, serviceid=0x0111_0007), "SIDR_REQ", {"service_port": 7}),
        (CMServiceIDReply(requestid=7, qpn=8), "SIDR_REP", {"local_comm_id": 7, "local_qpn": 8}),
    ],
)
def test_every_kind(layer: Any, kind: str, expected: dict[str, Any]) -> None:
    message = read(bytes(MAD() / layer))
    assert message.kind == kind and not message.truncated
    assert {name: getattr(message, name) for name in expected} == expected


def test_a_truncated_request_has_the_fields_before_the_truncation() -> None:
    whole = read(REQUEST)
    for end in range(18, len(REQUEST)):
        message = read(REQUEST[:end])
        assert message.truncated
        assert message.local_comm_id == (whole.local_comm_id if end >= 28 else None)
        assert message.service_port == (20049 if end >= 40 else None)
        assert message.local_qpn == (17 if end >= 59 else None)
        assert message.initiator_depth == (2 if end >= 64 else None)
        assert message.start_psn == (whole.start_psn if end >= 71 else None)
        assert message.path_mtu == (4096 if end >= 75 else None)

        assert whole.private_data.startswith(message.private_data)


def test_a_datagram_too_short_to_tell_is_none() -> None:
    assert all(read_cm(REQUEST, 0, end) is None for end in range(18))


@pytest.mark.parametrize("header", [{"mgmtclass": 3}, {"method": 1}, {"attributeid": 0x1234}])
def test_other_datagrams_are_none(header: dict[str, int]) -> None:
    data = bytes(MAD(**{"attributeid": 0x10, "classversion": 2, **header})) + bytes(232)
    assert read_cm(data, 0, len(data)) is None


def test_it_reads_in_place_and_no_further() -> None:
    data = b"\xff" * 7 + REQUEST + b"\xff" * 4
    assert read_cm(data, 7, len(data)) == read(REQUEST)
    assert read_cm(data, 7, 7 + 150) == read(REQUEST[:150])


@given(st.sampled_from(sorted(CM_MESSAGES)), st.binary(max_size=240), st.integers(-5, 300))
def test_nothing_raises(attribute: int, body: bytes, end: int) -> None:
    data = bytes(MAD(classversion=2, attributeid=attribute)) + body
    message = read_cm(data, 0, end)
    if message is not None:
        assert message.truncated == (min(end, len(data)) < 256)


@given(st.sampled_from(sorted(CM_MESSAGES)), st.binary(min_size=232, max_size=232))
def test_reader_and_layer_agree(attribute: int, body: bytes) -> None:
    data = bytes(MAD(classversion=2, attributeid=attribute)) + body
    message = read(data)
    layer = MAD(data).payload
    names = {
        "local_comm_id": ("localcommid", "requestid"),
        "remote_comm_id": ("remotecommid",),
        "local_qpn": ("localqpn", "qpn"),
        "remote_qpn": ("remoteqpneecn",),
        "start_psn": ("startpsn",),
        "service_id": ("serviceid",),
        "responder_resources": ("responderres", "respres"),
        "initiator_depth": ("initdepth",),
        "reason": ("reason",),
    }
    assert set(names) < {*ManagementMessage._fields}
    for name, candidates in names.items():
        values = [layer.fields[candidate] for candidate in candidates if candidate in layer.fields]
        assert getattr(message, name) == (values[0] if values else None)
