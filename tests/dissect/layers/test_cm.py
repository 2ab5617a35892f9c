"""Management Datagrams and Communication Management messages as Scapy layers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from scapy.packet import Raw

from rdmascope.dissect.layers.cm import CM_MESSAGES, MAD, CMDisconnectRequest, CMReject, CMReply, CMRequest, IPCMRequest
from rdmascope.dissect.layers.cm_codes import REJECT_REASONS, service_port
from rdmascope.dissect.layers.columns import compile_header
from rdmascope.dissect.layers.private_data import ConsumerPrivateData, RPCRDMAPrivateData, find_private_data


def mad(text: str) -> bytes:
    """A Management Datagram whose last bytes are zero."""
    return bytes.fromhex(text).ljust(256, b"\0")


REQ = mad(
    "010702030000000000000002e306ae73001000000000000073ae06e3000000000000000001064e51505400fffe000002"
    "00000000000000000000118000000000000000a0526927a6ffff50f0ffffffff00000000000000000000ffff0a4d0002"
    "00000000000000000000ffff0a4d000143f0600000400098000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000040a4ab0000000000000000000000000a4d00020000000000000000"
    "000000000a4d0001f6ab0e1801010303"
)
REP = mad(
    "010702030000000000000002e306ae7300130000000000005713388e73ae06e3000000000000110000000000adc7f600"
    "00807800505400fffe000001f6ab0e1801000303"
)
DREQ = mad("010702030000000000000002e306ae73001500000000000073ae06e35713388e00001100")

# What tshark 4.0.17 says of these three.  Its reading of the primary path's flow label and rate is left out: it
# takes them from the wrong bytes.
REQ_FIELDS = {
    "localcommid": 0x73AE06E3,
    "serviceid": 0x0000000001064E51,
    "localcaguid": 0x505400FFFE000002,
    "localqkey": 0,
    "localqpn": 0x11,
    "responderres": 0x80,
    "localeecn": 0,
    "initdepth": 0,
    "remoteeecn": 0,
    "remoteresptout": 0x14,
    "transpsvctype": 0,
    "e2eflowctrl": 0,
    "startpsn": 0x526927,
    "localresptout": 0x14,
    "retrcount": 6,
    "pkey": 0xFFFF,
    "pppmtu": 5,
    "rdcexist": 0,
    "rnrretrcount": 0,
    "maxcmretr": 15,
    "srq": 0,
    "ext_transport": 0,
    "prim_locallid": 65535,
    "prim_remotelid": 65535,
    "prim_tfcclass": 0,
    "prim_hoplim": 0x40,
    "prim_sl": 0,
    "prim_subnetlocal": 0,
    "prim_localacktout": 0x13,
    "alt_locallid": 0,
    "alt_hoplim": 0,
    "alt_localacktout": 0,
}
REP_FIELDS = {
    "localcommid": 0x5713388E,
    "remotecommid": 0x73AE06E3,
    "localqkey": 0,
    "localqpn": 0x11,
    "localeecn": 0,
    "startpsn": 0xADC7F6,
    "respres": 0,
    "initdepth": 0x80,
    "tgtackdelay": 0x0F,
    "failoveracc": 0,
    "e2eflowctrl": 0,
    "rnrretrcount": 0,
    "srq": 0,
    "localcaguid": 0x505400FFFE000001,
}
DREQ_FIELDS = {"localcommid": 0x73AE06E3, "remotecommid": 0x5713388E, "remoteqpneecn": 0x11}


@pytest.mark.parametrize(
    ("data", "layer", "fields"),
    [(REQ, CMRequest, REQ_FIELDS), (REP, CMReply, REP_FIELDS), (DREQ, CMDisconnectRequest, DREQ_FIELDS)],
)
def test_a_real_exchange_reads_as_tshark_reads_it(data: bytes, layer: Any, fields: dict[str, int]) -> None:
    datagram = MAD(data)
    assert (datagram.mgmtclass, datagram.method, datagram.transactionid) == (7, 3, 0x2E306AE73)
    message = datagram[layer]
    assert {name: getattr(message, name) for name in fields} == fields
    assert bytes(datagram) == data


def rebuilt(packet: Any) -> bytes:
    """The bytes of a packet without what Scapy remembers of those it came from."""
    packet.clear_cache()
    return bytes(packet)


@pytest.mark.parametrize("data", [REQ, REP, DREQ])
def test_every_bit_of_a_real_message_is_in_a_field(data: bytes) -> None:
    assert rebuilt(MAD(data)) == data


def test_a_request_shows_addresses_and_the_rpcrdma_private_data() -> None:
    request = MAD(REQ)[CMRequest]
    assert service_port(request.serviceid) == 20049
    header = request[IPCMRequest]
    shown = header.show(dump=True)
    assert header.sport == 42155 and "10.77.0.2" in shown and "10.77.0.1" in shown
    message = header[RPCRDMAPrivateData]
    assert (message.version, message.r, message.send_size, message.receive_size) == (1, 1, 3, 3)
    assert "4096 bytes" in message.show(dump=True)


@pytest.mark.parametrize("attribute", sorted(CM_MESSAGES))
def test_every_message_fills_its_datagram(attribute: int) -> None:
    _, layer = CM_MESSAGES[attribute]
    assert compile_header(layer).size + layer.private_data_size == 232
    datagram = MAD(bytes(MAD() / layer() / b"private"))
    assert len(datagram) == 256
    assert (datagram.attributeid, datagram.classversion) == (attribute, 2)
    assert datagram[layer].payload.load.rstrip(b"\0") == b"private"


def test_a_request_built_from_text_addresses() -> None:
    datagram = MAD(
        bytes(
            MAD(transactionid=5)
            / CMRequest(serviceid=0x01064E51, prim_localgid="10.0.0.1", prim_remotegid="fe80::1")
            / IPCMRequest(sip="10.0.0.1", dip="10.0.0.2", sport=5)
            / RPCRDMAPrivateData(r=1)
        )
    )
    assert datagram.prim_localgid == bytes(10) + b"\xff\xff\x0a\0\0\1"
    assert datagram.prim_remotegid == b"\xfe\x80" + bytes(13) + b"\1"
    assert datagram[IPCMRequest].sip == bytes(12) + b"\x0a\0\0\1"
    assert datagram[RPCRDMAPrivateData].r == 1


def test_an_ipv6_request_shows_ipv6_addresses() -> None:
    header = IPCMRequest(bytes(IPCMRequest(ipv=6, sip="fd00::2", dip="fd00::1")))
    assert "fd00::2" in header.show(dump=True)


def test_a_reject_names_its_reason() -> None:
    datagram = MAD(bytes(MAD() / CMReject(reason=8)))
    assert "Invalid Service ID" in datagram.show(dump=True)
    assert len(REJECT_REASONS) == 34


def test_a_message_truncated_in_its_fixed_part_stays_raw() -> None:
    assert isinstance(MAD(REQ[: 24 + 100]).payload, Raw)
    assert isinstance(MAD(REQ[: 24 + 150]).payload, CMRequest)


def test_other_management_classes_stay_raw() -> None:
    assert isinstance(MAD(bytes(MAD(mgmtclass=3, attributeid=0x10)) + bytes(232)).payload, Raw)


@given(st.sampled_from(sorted(CM_MESSAGES)), st.binary(max_size=260))
def test_random_messages_dissect_and_build_alike(attribute: int, body: bytes) -> None:
    data = bytes(MAD(classversion=2, attributeid=attribute)) + body
    datagram = MAD(data)
    datagram.show(dump=True)
    assert bytes(datagram) == data


@given(st.sampled_from(sorted(CM_MESSAGES)), st.binary(min_size=232, max_size=232))
def test_every_bit_of_any_message_is_in_a_field(attribute: int, body: bytes) -> None:
    data = bytes(MAD(classversion=2, attributeid=attribute)) + body
    assert rebuilt(MAD(data)) == data


MESSAGE = bytes.fromhex("f6ab0e1801010307")


@pytest.mark.parametrize("offset", [0, 1, 3, 10, 48])
def test_private_data_are_found_at_any_offset(offset: int) -> None:
    (found,) = find_private_data(bytes(offset) + MESSAGE + bytes(8))
    assert (found.offset, found.version, found.remote_invalidation) == (offset, 1, True)
    assert (found.send_size, found.receive_size) == (4096, 8192)


def test_the_largest_size_is_256_kib() -> None:
    (found,) = find_private_data(bytes.fromhex("f6ab0e180100ff00"))
    assert (found.send_size, found.receive_size, found.remote_invalidation) == (262144, 1024, False)


def test_reserved_bits_do_not_matter() -> None:
    (found,) = find_private_data(bytes.fromhex("f6ab0e1801fe0303"))
    assert not found.remote_invalidation
    assert RPCRDMAPrivateData(bytes.fromhex("f6ab0e1801ff0303")).reserved == 0x7F


@pytest.mark.parametrize("version", [0, 2, 255])
def test_other_versions_do_not_count(version: int) -> None:
    assert find_private_data(MESSAGE[:4] + bytes([version]) + MESSAGE[5:]) == []


def test_a_message_that_overruns_the_buffer_does_not_count() -> None:
    assert find_private_data(MESSAGE[:7]) == []
    assert find_private_data(b"") == []


def test_all_matches_are_reported_in_order() -> None:
    data = MESSAGE[:4] + MESSAGE + b"x" + MESSAGE
    assert [found.offset for found in find_private_data(data)] == [4, 13]


def test_the_layer_finds_the_message_behind_other_private_data() -> None:
    reply = MAD(bytes(MAD() / CMReply() / ConsumerPrivateData(load=b"other") / RPCRDMAPrivateData(send_size=15)))
    assert reply[ConsumerPrivateData].load == b"other"
    assert reply[RPCRDMAPrivateData].send_size == 15


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_what_is_found_is_there(before: bytes, behind: bytes) -> None:
    data = before + MESSAGE + behind
    for found in find_private_data(data):
        assert data[found.offset : found.offset + 5] == b"\xf6\xab\x0e\x18\x01"
        assert found.offset + 8 <= len(data)
    assert len(before) in [found.offset for found in find_private_data(data)]
