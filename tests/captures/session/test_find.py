"""One RPC or one frame of a capture, looked for by its number."""

from __future__ import annotations

from playbook.samples import SAMPLES
from rdmascope import Session
from rdmascope.captures.session.find import find_frame, find_rpcs, no_frame

CAPTURE = SAMPLES / "rxe-nfs-all.pcap.zst"


def test_rpcs_by_number_and_by_xid() -> None:
    found = find_rpcs(Session(CAPTURE), numbers=[17, 16])
    assert [rpc.number for rpc in found.rpcs] == [16, 17] and not found.problem
    again = find_rpcs(Session(CAPTURE), xids=[found.rpcs[0].xid])
    assert [rpc.number for rpc in again.rpcs] == [16] and not again.problem and not again.others
    missing = find_rpcs(Session(CAPTURE), numbers=[16, 238])
    assert [rpc.number for rpc in missing.rpcs] == [16]
    assert missing.problem == "no RPC 238; there are 237"


def test_a_frame_and_the_rpc_it_belongs_to() -> None:
    found = find_frame(Session(CAPTURE), 104)
    assert found is not None and found.frame.number == 104
    assert [rpc.number for rpc in found.rpcs] == [16] and found.begins_message and found.stray is None
    middle = find_frame(Session(CAPTURE), 106)
    assert middle is not None and [rpc.number for rpc in middle.rpcs] == [16] and not middle.begins_message


def test_a_frame_that_is_not_there() -> None:
    session = Session(CAPTURE)
    assert find_frame(session, 4000) is None
    assert no_frame(session, 4000) == "no frame 4000; there are 3,697"


def test_a_message_without_an_rpc() -> None:
    path = SAMPLES / "v2-characteristics.pcap.zst"
    strays = [
        found.stray.message.header.procedure
        for number in range(1, 60)
        if (found := find_frame(Session(path), number)) is not None and found.stray is not None
    ]
    assert strays
