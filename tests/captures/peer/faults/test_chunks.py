"""Replies to READs that are spoiled, in NFSv3 and in a COMPOUND: still replies, whose results say what they should."""

from __future__ import annotations

import pytest

from rdmascope.captures.peer.endpoint import EndpointSettings, Role, RpcRdmaEndpoint, service, whole
from rdmascope.captures.peer.endpoint.nouns import PlannedSend
from rdmascope.captures.peer.faults import FAULTS
from rdmascope.captures.peer.nfs_server.export import Export
from rdmascope.captures.peer.probe.checks import read_path
from rdmascope.captures.peer.rpc import decoded
from rdmascope.dissect.layers.rpcrdma_codes import RDMA_MSG
from rdmascope.dissect.onc.rpc_header import reply_header
from rdmascope.dissect.onc.shapes.nfs4 import COMPOUND4RES
from rdmascope.dissect.onc.shapes.rfc1813 import NFS3
from rdmascope.dissect.rpcrdma.messages import Segment, TransportHeader, WriteChunk

LENGTH = 4096
READS = {3: whole(service.read(7, 0, LENGTH)), 4: read_path(7, "/pattern", LENGTH)}


def spoiled(fault: str, version: int) -> PlannedSend:
    """The reply to a READ whose data fill a Write chunk, after the fault."""
    pieces = Export().answer(READS[version])
    payload = b"".join(piece for piece in pieces if isinstance(piece, bytes))
    chunk = WriteChunk((Segment(1, LENGTH, 0),))
    asked, header = (TransportHeader(7, 1, 1, RDMA_MSG, writes=(chunk,)) for _ in range(2))
    plan = PlannedSend("reply", header, payload, asked=asked)
    spoil = FAULTS[fault].spoil
    assert spoil is not None
    assert spoil(RpcRdmaEndpoint(Role.SERVER, EndpointSettings()), plan)
    return plan


@pytest.mark.parametrize("version", READS)
def test_a_read_fails_and_its_write_chunk_comes_back_as_it_was(version: int) -> None:
    plan = spoiled("unused-with-length", version)
    header = reply_header(plan.payload, 0, len(plan.payload))
    assert header is not None and (header.xid, header.error) == (7, "")
    shape = COMPOUND4RES if version == 4 else NFS3[service.READ].results
    assert shape is not None
    results, end = decoded(shape, plan.payload[header.body :])
    assert end == len(plan.payload) - header.body
    assert results["status"] == 5
    if version == 4:
        assert [one["status"] for one in results["resarray"]] == [0, 0, 5]
    assert plan.header.writes[0].length == LENGTH


@pytest.mark.parametrize("version", READS)
def test_twice_the_length_is_returned_and_counted_in_a_read_that_succeeds(version: int) -> None:
    plan = spoiled("returned-too-long", version)
    assert plan.header.writes[0].length == 2 * LENGTH
    header = reply_header(plan.payload, 0, len(plan.payload))
    assert header is not None
    shape = COMPOUND4RES if version == 4 else NFS3[service.READ].results
    assert shape is not None
    results, _ = decoded(shape, plan.payload[header.body :] + bytes(2 * LENGTH))
    assert results["status"] == 0
    read = results["resarray"][-1] if version == 4 else results
    assert len(read["data"]) == 2 * LENGTH
    assert version == 4 or read["count"] == 2 * LENGTH
