"""Traces of the kernel's tracepoints: a run of Linux 6.1 as trace.dat and as text, and files made after the manual."""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
import zstandard
from hypothesis import given, strategies as st

from rdmascope.captures.errors import CaptureError
from rdmascope.captures.read.traces import Trace, is_trace
from rdmascope.dissect.trace.events import EVENTS, LOST, Event

from .trace_writer import encode, option, pages, split_formats, write_6, write_7

HERE = Path(__file__).parent


def unpacked(name: str) -> str:
    return zstandard.ZstdDecompressor().decompressobj().decompress((HERE / name).read_bytes()).decode()


FORMATS = split_formats(unpacked("formats-6.1.txt.zst"))


def events(path: Path | str) -> list[Event]:
    with Trace(path) as trace:
        return [event for batch in trace.batches() for event in batch]


def microseconds(found: Sequence[Event]) -> list[tuple[object, ...]]:
    """As trace-cmd prints their times."""
    return [(event.number, (event.time + 500) // 1000, event.name, event.pid, event.values) for event in found]


@pytest.fixture(scope="module", params=["client", "server"])
def host(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_trace_and_its_text_tell_the_same(host: str) -> None:
    binary = events(HERE / f"{host}-6.1.trace.dat")
    told = events(HERE / f"{host}-6.1.txt.zst")
    # Of the recording, made smaller, its format is gone.
    assert microseconds(binary) == microseconds([event for event in told if event.name != "nfs4_open_file"])
    names = [event.name for event in binary]
    counted = {
        "client": ("xprtrdma_post_send", "xprtrdma_reply"),
        "server": ("svcrdma_decode_rqst", "svcrdma_post_send"),
    }
    assert [names.count(name) for name in counted[host]] == [592, 592]


def test_all_events_count_and_the_host_is_told(host: str) -> None:
    with Trace(HERE / f"{host}-6.1.trace.dat") as trace:
        last = [batch[-1] for batch in trace.batches()][-1]
        assert (trace.events, trace.clock, trace.lost) == ({"client": 43148, "server": 15510}[host], "local", 0)
        assert last.number <= trace.events
        assert trace.kernel == f"Linux {host} 6.1.0-56-amd64 x86_64"


TOLD: list[tuple[int, str, dict[str, object]]] = [
    (1_000_000_000, "xprt_reserve", {"task_id": 7, "client_id": 1, "xid": 0x7BD6051A}),
    (1_000_000_400, "xprtrdma_post_send",
     {"task_id": 7, "client_id": 1, "cq_id": 1, "completion_id": 9, "num_sge": 2}),
    (9_000_000_000, "xprtrdma_reply", {"task_id": 7, "client_id": 1, "xid": 0x7BD6051A, "credits": 64}),
    (9_000_000_100, "xprtrdma_inline_thresh",
     {"srcaddr": "10.77.0.2:39492", "dstaddr": "[::1]:20049",
      "inline_send": 4096, "inline_recv": 4096, "max_send": 3780, "max_recv": 3884}),
    (9_000_000_200, "rpc_request",
     {"task_id": 8, "client_id": 1, "progname": "nfs", "version": 3, "procname": "W" * 200}),
]  # fmt: skip
"""An XID is reserved, a Send posted; long after, its reply comes; then what has addresses and what has texts."""


def sent(order: str = "<") -> list[tuple[int, bytes]]:
    return [(time, encode(FORMATS[name][1], 42, values, order)) for time, name, values in TOLD]


def told(found: Sequence[Event]) -> list[tuple[int, str, dict[str, object]]]:
    assert {event.pid for event in found} <= {42}
    return [(event.time, event.name, dict(zip(EVENTS[event.name], event.values, strict=True))) for event in found]


@pytest.mark.parametrize("order", "<>")
def test_version_6(tmp_path: Path, order: str) -> None:
    path = tmp_path / "t.dat"
    clock = option(4, b"local global [mono] boot \n\0", order)
    path.write_bytes(write_6(FORMATS, [pages(sent(order), order)], order, clock + option(5, b"Linux x 6.12\0", order)))
    if order == "<":
        assert told(events(path)) == TOLD
    else:  # Addresses are in the order of the host that wrote them.
        assert [event[:2] for event in told(events(path))] == [event[:2] for event in TOLD]
    with Trace(path) as trace:
        list(trace.batches())
        assert (trace.clock, trace.kernel) == ("mono", "Linux x 6.12")


@pytest.mark.parametrize("compression", ["none", "zlib", "zstd"])
@pytest.mark.parametrize("packed", [False, True])
def test_version_7(tmp_path: Path, compression: str, packed: bool) -> None:
    data = write_7(FORMATS, [pages(sent(), "<")], compression, options=option(7, b"5\0"))
    path = tmp_path / ("t.dat.zst" if packed else "t.dat")
    path.write_bytes(zstandard.compress(data) if packed else data)
    assert told(events(path)) == [(time + 5, name, values) for time, name, values in TOLD]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**9)), min_size=1, max_size=400), st.integers(0, 2**32 - 1)
)
def test_the_events_of_all_processors_are_in_the_order_of_time(stamped: list[tuple[int, int]], seed: int) -> None:
    by_processor: list[list[tuple[int, bytes]]] = [[] for _ in range(4)]
    for i, (processor, time) in enumerate(sorted(stamped, key=lambda pair: pair[1])):
        record = encode(FORMATS["xprt_reserve"][1], 42, {"task_id": i, "client_id": processor, "xid": seed}, "<")
        by_processor[processor].append((time, record))
    path = Path(f"/tmp/rdmascope-trace-{seed}.dat")
    try:
        path.write_bytes(write_7(FORMATS, [pages(records, "<") for records in by_processor if records]))
        found = events(path)
    finally:
        path.unlink(missing_ok=True)
    assert [event.time for event in found] == sorted(time for _, time in stamped)
    assert [event.number for event in found] == list(range(1, len(stamped) + 1))


def test_a_page_whose_times_go_back_ends(tmp_path: Path) -> None:
    """A damaged delta is an absolute time: the last event of the page seems to be the first of all."""
    record = encode(FORMATS["xprt_reserve"][1], 42, {"task_id": 7, "client_id": 1, "xid": 5}, "<")
    page = bytearray(pages([(60, record), (200, record), (300 + (1 << 27), record)], "<"))
    extended = 16 + 2 * (4 + len(record))
    assert page[extended] & 31 == 30
    page[extended : extended + 8] = struct.pack("<II", 50 << 5 | 31, 0)
    path = tmp_path / "t.dat"
    path.write_bytes(write_6(FORMATS, [bytes(page), pages([(100, record)], "<")]))
    assert sorted(event.time for event in events(path)) == [50, 60, 100, 200]


def test_lost_events_are_counted_where_they_were_lost(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    records = sent()
    path.write_bytes(write_7(FORMATS, [pages(records, "<")]))
    whole = events(path)
    path.write_bytes(write_7(FORMATS, [pages(records, "<", {2: 30})]))
    with Trace(path) as trace:
        found = [event for batch in trace.batches() for event in batch]
        assert [event for event in found if event.name != LOST] == whole
        assert found[2].name == LOST
        assert trace.lost == 30
    path.write_bytes(
        write_6(FORMATS, [pages(records, "<")], "<", option(2, b"entries: 5\noverrun: 71\ncommit overrun: 2\n\0"))
    )
    with Trace(path) as trace:
        list(trace.batches())
        assert trace.lost == 73


def damaged(path: Path) -> tuple[list[Event], str]:
    found: list[Event] = []
    with Trace(path) as trace:
        try:
            for batch in trace.batches():
                found += batch
        except CaptureError as error:
            return found, str(error)
    return found, ""


def test_what_is_before_a_cut_is_given(tmp_path: Path) -> None:
    whole = events(HERE / "server-6.1.trace.dat")
    path = tmp_path / "t.dat"
    path.write_bytes((HERE / "server-6.1.trace.dat").read_bytes()[:-40_000])
    found, problem = damaged(path)
    # The options stand behind the events in this file.
    assert (found, "truncated or damaged in the header" in problem) == ([], True)
    records = [(time, record) for time, record in sent() for _ in range(100)]
    made = write_6(FORMATS, [pages(sorted(records, key=lambda pair: pair[0]), "<")])
    path.write_bytes(made[:-5000])
    found, problem = damaged(path)
    assert 100 < len(found) < 500
    assert problem.startswith(f"{path}: truncated in the page at byte ")
    assert len(whole) == 12470


def test_mutated_traces_are_never_an_exception_of_another_kind(tmp_path: Path) -> None:
    chance = Random(1)
    path = tmp_path / "t.dat"
    made = write_6(FORMATS, [pages(sorted(sent() * 3), "<")])
    pristine = write_7(FORMATS, [pages(sorted(sent() * 3), "<")], "zlib")
    for i in range(600):
        data = bytearray((made, pristine)[i % 2])
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(12, len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.randrange(20, len(data))] if i % 3 == 0 else data)
        damaged(path)


TRACE_PIPE = """\
# tracer: nop
    kworker/0:1H-38      [000] d..1.    64.669154: xprtrdma_wc_send: cq.id=1 cid=51 status=SUCCESS (0/0x0)
           <idle>-0       [003] ..s2.    64.670811: rpc_clnt_new: client=00000003 peer=[::1]:20049 program=nfs server=x
CPU:3 [LOST 12 EVENTS]
   10.77.0.1-manag-727   [001] .....    64.670900: nfs4_state_mgr: hostname=10.77.0.1 clp state=MANAGER_RUNNING
"""
PERF_SCRIPT = """\
kworker/0:1H    38 [000]    64.669154: rpcrdma:xprtrdma_wc_send: cq.id=1 cid=51 status=SUCCESS (0/0x0)
swapper     0/0     [003]    64.670811123:  sunrpc:rpc_clnt_new: client=00000003 peer=[::1]:20049 program=nfs server=x
        dd   706/706   [001]    64.670900:    nfs4:nfs4_state_mgr: hostname=10.77.0.1
"""


@pytest.mark.parametrize(("text", "lost", "last"), [(TRACE_PIPE, 12, 64_670_811_000), (PERF_SCRIPT, 0, 64_670_811_123)])
def test_other_texts(tmp_path: Path, text: str, lost: int, last: int) -> None:
    path = tmp_path / "t.txt"
    path.write_text(text)
    with Trace(path) as trace:
        found = [event for batch in trace.batches() for event in batch]
        assert (trace.format, trace.events, trace.lost) == ("trace text", 3, lost)
    assert [(event.number, event.time, event.name, event.pid) for event in found] == [
        (1, 64_669_154_000, "xprtrdma_wc_send", 38),
        (2, last, "rpc_clnt_new", 0),
        *([(2, last, LOST, 0)] if lost else []),
    ]
    assert found[0].values == (1, 51, 0)
    assert found[1].values == (3, "::1", "20049", "nfs", "x")


def test_a_trace_from_standard_input() -> None:
    script = (
        "from rdmascope.captures.read.traces import Trace; t = Trace('-'); print(sum(map(len, t.batches())), t.events)"
    )
    for name in ("server-6.1.trace.dat", "server-6.1.txt.zst"):
        with (HERE / name).open("rb") as file:
            done = subprocess.run(
                [sys.executable, "-c", script], stdin=file, capture_output=True, text=True, check=True
            )
        assert done.stdout == "12470 15510\n"


def others() -> Iterator[bytes]:
    yield b""
    yield b"\xd4\xc3\xb2\xa1" + bytes(40)
    yield b"a text that is no trace\nof anything\n"


@pytest.mark.parametrize("content", list(others()))
def test_what_is_no_trace(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    assert not is_trace(path)
    with pytest.raises(CaptureError, match="no trace"):
        Trace(path)
    assert is_trace(HERE / "client-6.1.txt.zst")
    assert is_trace(HERE / "client-6.1.trace.dat")
    assert not is_trace(tmp_path)
    assert not is_trace(tmp_path / "nosuch")


def test_a_clock_that_counts_no_nanoseconds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    path.write_bytes(write_7(FORMATS, [pages(sent(), "<")], clock="counter"))
    with pytest.raises(CaptureError, match="'counter' does not count nanoseconds"):
        events(path)


def test_what_is_no_trace_is_closed() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert not is_trace(HERE / "wire-6.1.pcap.zst")
        with pytest.raises(CaptureError):
            Trace(HERE / "test_traces.py")
    assert len(os.listdir("/proc/self/fd")) <= before
