"""Events: what a line, and what a format file with a record, tell."""

import struct

import pytest

from rdmascope.dissect.trace.analyzer import CLIENT, COMPLETIONS, OWN, SERVER
from rdmascope.dissect.trace.events import EVENTS, text_values
from rdmascope.dissect.trace.ring_buffer import event_format, socket_address


def test_a_line_that_reads_otherwise_is_no_event() -> None:
    assert text_values("xprt_reserve", "task:00000007@00000001 xid=0x7bd6051a") == (7, 1, 0x7BD6051A)
    assert text_values("xprt_reserve", "something else") is None
    assert text_values("nfs_access_enter", "fileid=00:1c:1") is None


def test_each_event_is_taken() -> None:
    assert {*EVENTS} == {*CLIENT, *SERVER, *OWN, *COMPLETIONS}, "what nothing takes costs the host that is traced"


def test_words_are_told_as_the_numbers_that_they_stand_for() -> None:
    line = "task:00000012@00000001 xid=0x66d6051a hdr=76 xdr=112/262144/0 read list/inline"
    assert text_values("xprtrdma_marshal", line) == (0x12, 1, 0x66D6051A, 76, 112, 262144, 0, 3, 0)
    line = "cq.id=2 cid=8 status=WR_FLUSH_ERR (5/0x0) received=0"
    assert text_values("xprtrdma_wc_receive", line) == (2, 8, 5, 0)


KERNELS = {
    "5.10": {
        ("xprt_reserve", "task:23@5 xid=0x7bd6051a"): {"task_id": 23, "client_id": 5, "xid": 0x7BD6051A},
        ("xprtrdma_marshal", "task:23@5 xid=0x7bd6051a: hdr=28 xdr=40/0/0 inline/write list"): {
            "task_id": 23, "client_id": 5, "xid": 0x7BD6051A, "hdrlen": 28,
            "headlen": 40, "pagelen": 0, "taillen": 0, "rtype": 0, "wtype": 5},
        ("xprtrdma_post_send", "task:23@5 req=00000000a1 sc=00000000b2 (2 SGEs) signaled"): {
            "task_id": 23, "client_id": 5, "completion_id": 0xB2, "num_sge": 2},
        ("xprtrdma_wc_send", "req=00000000a1 sc=00000000b2 unmapped=1: WR_FLUSH_ERR (5/0xf9)"): {
            "completion_id": 0xB2, "status": 5},
        ("xprtrdma_wc_receive", "rep=00000000c3 116 bytes: SUCCESS (0/0x0)"): {
            "completion_id": 0xC3, "received": 116, "status": 0},
        ("xprtrdma_reply", "task:23@5 xid=0x7bd6051a, 64 credits, rep=00000000c3 -> req=00000000a1"): {
            "task_id": 23, "client_id": 5, "xid": 0x7BD6051A, "credits": 64},
        ("xprtrdma_mr_localinv", "mr.id=7 nents=32 131072@0x5fd6051a086a3000:0x00000ac6 (FROM_DEVICE)"): {
            "mr_id": 7, "nents": 32, "length": 131072, "offset": 0x5FD6051A086A3000, "handle": 0xAC6},
        ("xprtrdma_wc_li_done", "mr.id=7: SUCCESS (0/0x0)"): {"completion_id": 7, "status": 0},
        ("svc_xprt_enqueue", "addr=10.0.0.2 pid=0 flags=XPT_DATA"): {"client": "10.0.0.2"},
        ("svc_xprt_dequeue", "addr=10.0.0.2 flags=XPT_DATA wakeup-us=31"): {"client": "10.0.0.2", "wakeup": 31},
        ("svcrdma_decode_wseg", "4096@0x5cd6051a045cc000:0x00000c28"): {
            "length": 4096, "offset": 0x5CD6051A045CC000, "handle": 0xC28},
        ("svc_xdr_sendto", "xid=0x7bd6051a head=[0000f00d,184] page=0 tail=[0000f00d,0] len=184"): {
            "xid": 0x7BD6051A, "head_len": 184, "page_len": 0, "tail_len": 0, "msg_len": 184},
        ("svc_stats_latency", "addr=10.0.0.2 xid=0x7bd6051a execute-us=410"): {
            "xid": 0x7BD6051A, "client": "10.0.0.2", "execute": 410},
        ("svcrdma_wc_write", "cq.id=1 cid=239 status=SUCCESS (0/0x0)"): {
            "cq_id": 1, "completion_id": 239, "status": 0},
        ("svcrdma_send_pullup", "len=52"): {"msglen": 52},
    },
    "5.15": {
        ("svcrdma_wc_recv", "cq.id=2 cid=64 status=SUCCESS (0/0x0) received=68"): {
            "cq_id": 2, "completion_id": 64, "received": 68, "status": 0},
        ("svc_stats_latency", "addr=10.0.0.2 xid=0x7bd6051a proc=GETATTR execute-us=410"): {
            "xid": 0x7BD6051A, "client": "10.0.0.2", "procedure": "GETATTR", "execute": 410},
    },
    "6.12": {
        ("svcrdma_encode_wseg", "cq.id=1 cid=72 segno=0 184@0xc9d6051a0c6ae800:0x0000179c"): {
            "cq_id": 1, "completion_id": 72, "segno": 0,
            "length": 184, "offset": 0xC9D6051A0C6AE800, "handle": 0x179C},
        ("svc_xprt_dequeue", "server=10.0.0.1:20049 client=10.0.0.2:0 flags=XPT_DATA qtime-us=31"): {
            "server": "10.0.0.1:20049", "client": "10.0.0.2:0", "wakeup": 31},
        ("rpc_clnt_new", "client=00000003 program=nfs server=x xprtsec=none flags=DEFAULT"): {
            "client_id": 3, "program": "nfs", "server": "x"},
    },
}  # fmt: skip


@pytest.mark.parametrize(("name", "line"), [line for lines in KERNELS.values() for line in lines])
def test_lines_of_other_kernels(name: str, line: str) -> None:
    values = text_values(name, line)
    assert values is not None
    told = {field: value for field, value in zip(EVENTS[name], values, strict=True) if value is not None}
    assert told == next(lines[name, line] for lines in KERNELS.values() if (name, line) in lines)


FORMAT = """name: xprtrdma_reply
ID: 77
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned int credits;\toffset:8;\tsize:4;\tsigned:0;
\tfield:u64 something_else;\toffset:16;\tsize:8;\tsigned:0;
\tfield:u32 xid;\toffset:24;\tsize:4;\tsigned:0;
\tfield:unsigned int task_id;\toffset:28;\tsize:4;\tsigned:0;
"""


def test_fields_are_found_by_name_wherever_a_kernel_has_them() -> None:
    found = event_format(FORMAT, "<")
    assert found is not None
    number, form = found
    assert form is not None
    record = struct.pack("<HHiI4xQII", 77, 0, 1, 64, 5, 0x7BD6051A, 9)
    assert (number, form.values(record, 0)) == (77, (9, None, 0x7BD6051A, 64))
    assert EVENTS["xprtrdma_reply"] == ("task_id", "client_id", "xid", "credits")


def test_the_same_event_under_the_name_that_5_10_gave_it() -> None:
    found = event_format(
        "name: svcrdma_wc_receive\nID: 5\nformat:\n"
        "\tfield:u32 cq_id;\toffset:8;\tsize:4;\tsigned:0;\n"
        "\tfield:const void * rep;\toffset:16;\tsize:8;\tsigned:0;\n"
        "\tfield:u32 byte_len;\toffset:24;\tsize:4;\tsigned:0;\n",
        "<",
    )
    assert found is not None
    assert found[1] is not None
    record = struct.pack("<8xI4xQI", 2, 0xFF00_0000_0000_0001, 68)
    assert found[1].name == "svcrdma_wc_recv"
    assert found[1].values(record, 0) == (2, 0xFF00_0000_0000_0001, 68, None)


def test_formats_of_other_events_have_a_number_only() -> None:
    assert event_format("name: nfs_access_enter\nID: 12\nformat:\n", "<") == (12, None)
    assert event_format("anything", "<") is None


def test_socket_addresses() -> None:
    assert socket_address(struct.pack("<H", 2) + struct.pack(">H", 20049) + bytes([10, 77, 0, 1])) == "10.77.0.1:20049"
    assert socket_address(struct.pack("<H", 10) + bytes(21) + b"\1" + bytes(4)).startswith("[::")
    assert socket_address(bytes(28)) == socket_address(b"") == ""
