"""Events: what a line, and what a format file with a record, tell."""

import struct

from rdmascope.dissect.trace.events import EVENTS, text_values
from rdmascope.dissect.trace.ring_buffer import event_format, socket_address


def test_a_line_that_reads_otherwise_is_no_event() -> None:
    assert text_values("xprt_reserve", "task:00000007@00000001 xid=0x7bd6051a") == (7, 1, 0x7BD6051A)
    assert text_values("xprt_reserve", "something else") is None
    assert text_values("nfs_access_enter", "fileid=00:1c:1") is None


def test_words_are_told_as_the_numbers_that_they_stand_for() -> None:
    line = "task:00000012@00000001 xid=0x66d6051a hdr=76 xdr=112/262144/0 read list/inline"
    assert text_values("xprtrdma_marshal", line) == (0x12, 1, 0x66D6051A, 76, 112, 262144, 0, 3, 0)
    line = "cq.id=2 cid=8 status=WR_FLUSH_ERR (5/0x0) received=0"
    assert text_values("xprtrdma_wc_receive", line) == (2, 8, 5, 0)


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


def test_formats_of_other_events_have_a_number_only() -> None:
    assert event_format("name: nfs_access_enter\nID: 12\nformat:\n", "<") == (12, None)
    assert event_format("anything", "<") is None


def test_socket_addresses() -> None:
    assert socket_address(struct.pack("<H", 2) + struct.pack(">H", 20049) + bytes([10, 77, 0, 1])) == "10.77.0.1:20049"
    assert socket_address(struct.pack("<H", 10) + bytes(21) + b"\1" + bytes(4)).startswith("[::")
    assert socket_address(bytes(28)) == socket_address(b"") == ""
