"""The tracepoints of a host, as folders of its tracefs tell them."""

from pathlib import Path

import pytest

from rdmascope.captures.errors import CaptureError
from rdmascope.captures.live.tracing import SYSTEMS, TraceInstance, run_recording, tracepoints


def tracefs(place: Path, *events: str) -> Path:
    for event in events:
        (place / "events" / event).mkdir(parents=True)
    (place / "events" / "rpcrdma").mkdir(parents=True, exist_ok=True)
    (place / "events" / "rpcrdma" / "enable").write_text("0")
    return place


def test_only_what_is_read_is_recorded(tmp_path: Path) -> None:
    place = tracefs(tmp_path, "rpcrdma/xprtrdma_reply", "rpcrdma/xprtrdma_dma_maperr", "sunrpc/rpc_request", "sched/x")
    found = tracepoints(place)
    assert (found.names, found.problem) == (("rpcrdma:xprtrdma_reply", "sunrpc:rpc_request"), "")
    assert found.command("a b.dat", 2.5) == (
        "trace-cmd record -o 'a b.dat' -C mono -b 20000 -e rpcrdma:xprtrdma_reply -e sunrpc:rpc_request sleep 2.5"
    )


def test_an_old_kernel_s_name_of_an_event_is_recorded(tmp_path: Path) -> None:
    assert tracepoints(tracefs(tmp_path, "rpcrdma/svcrdma_wc_receive")).names == ("rpcrdma:svcrdma_wc_receive",)


@pytest.mark.parametrize("there", [False, True])
def test_where_it_cannot_be_looked_the_parts_of_the_kernel_are_named(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "events" / "sunrpc").mkdir(parents=True)
    found = tracepoints(tmp_path)
    assert found.names == SYSTEMS
    assert found.problem == f"{tmp_path}: no events of rpcrdma; as root: modprobe -a rpcrdma nfs nfsd"
    with pytest.raises(CaptureError, match=r"tracepoints cannot be read: .*no events of rpcrdma"):
        TraceInstance(tmp_path)


def test_an_instance_has_its_own_buffer_clock_and_events(tmp_path: Path) -> None:
    place = tracefs(tmp_path, "rpcrdma/xprtrdma_reply")
    folder = next(iter([place / "instances"]))
    folder.mkdir()
    with pytest.raises(CaptureError, match="events/rpcrdma/xprtrdma_reply/enable: No such file"):
        TraceInstance(place)  # A folder that is no tracefs makes no files in it.
    (made,) = folder.iterdir()
    assert (made / "trace_clock").read_text() == "mono"
    assert (made / "buffer_size_kb").read_text() == "20000"
    assert (made / "tracing_on").read_text() == "0"


def test_a_host_without_trace_cmd() -> None:
    with pytest.raises(CaptureError, match="no-such-program: No such file or directory; apt install trace-cmd"):
        run_recording(["no-such-program"])
    assert run_recording(["sh", "-c", "exit 3"]) == 3
