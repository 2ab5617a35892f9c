"""Lines of RPCs, at any width."""

from __future__ import annotations

from pathlib import Path

from playbook import Capture, Wire, call, nfs3, reply, write_pcap
from playbook.commands import EVERYTHING, SAMPLES, run
from playbook.gss import PRIVACY, Context
from playbook.judge import analyze
from playbook.traces import client
from rdmascope.cli.views.rpc import RpcCells, RpcLine, cells_line, header, line
from rdmascope.dissect.onc.shapes.decode_cache import NO_FIELDS
from rdmascope.dissect.records.rpc_lines import rpc_record
from rdmascope.dissect.rpcrdma.rpc_fields import rpc_fields
from rdmascope.dissect.rpcrdma.rpcs import Rpc

NFS = 100003


def shown(rpc: Rpc, width: int | None) -> str:
    return line(rpc, NO_FIELDS, None, RpcLine(rpc.first_time, width)).plain


def test_the_status_has_a_column_where_there_is_room() -> None:
    wire = Wire()
    conn = wire.connect()
    reply(call(conn, nfs3.getattr_()), nfs3.getattr_reply())
    reply(call(conn, nfs3.read(0, 8)), nfs3.read_failed())
    call(conn, nfs3.getattr_())
    rpcs = analyze(Capture(wire))
    for width in (160, None):
        at = header(RpcLine(0, width)).plain.index("status")
        assert [shown(rpc, width)[at:].split("  ")[0].strip() for rpc in rpcs] == ["OK", "NFS3ERR_IO", "no reply"]
        assert [shown(rpc, width).split("  ")[-1] for rpc in rpcs] == ["NFSv3 GETATTR", "NFSv3 READ", "NFSv3 GETATTR"]
    assert "status" not in header(RpcLine(0, 159)).plain
    assert [shown(rpc, 120).split("  ", 3)[-1].strip() for rpc in rpcs][1].endswith("NFS3ERR_IO  NFSv3 READ")
    assert "OK" not in shown(rpcs[0], 120)


def test_the_column_stands_above_what_it_names() -> None:
    lines = run("rpcs", EVERYTHING, columns=160).stdout.splitlines()
    at = lines[0].index("status")
    assert {one[at - 1] for one in lines[1:]} == {" "} and {one[at:].split()[0] for one in lines[1:]} >= {"OK"}


def test_contexts_and_what_is_encrypted(tmp_path: Path) -> None:
    wire = Wire()
    conn = wire.connect()
    context = Context(PRIVACY)
    asked, answered = context.create(NFS, 3)
    reply(call(conn, asked), answered)
    reply(call(conn, context.call(nfs3.getattr_())), context.reply(nfs3.getattr_reply()))
    asked, answered = context.destroy(NFS, 3)
    reply(call(conn, asked), answered)
    path = tmp_path / "krb5p.pcap"
    write_pcap(Capture(wire).frames, path)
    lines = run("rpcs", str(path), columns=160).stdout.splitlines()[1:]
    at = header(RpcLine(0)).plain.index("status")
    assert [one[at:].split(maxsplit=1) for one in lines] == [
        ["OK", "NFSv3 RPCSEC_GSS_INIT"],
        ["accepted", "NFSv3 GETATTR (encrypted by RPCSEC_GSS)"],
        ["OK", "NFSv3 RPCSEC_GSS_DESTROY"],
    ]
    listed = run("packets", str(path)).stdout
    assert "V3 NULL Call, RPCSEC_GSS_INIT (Reply In" in listed and "V3 NULL Call, RPCSEC_GSS_DESTROY (Reply" in listed


def test_a_commit_of_no_bytes_is_one_of_all_that_follow() -> None:
    (commit,) = [
        one
        for one in run("rpcs", str(SAMPLES / "nconnect-rxe.pcap.zst"), columns=160).stdout.splitlines()
        if " COMMIT" in one
    ]
    assert "0   to EOF OK" in commit
    wire = Wire()
    conn = wire.connect()
    reply(call(conn, nfs3.read(4096, 0)), nfs3.read_reply(b""))
    (rpc,) = analyze(Capture(wire))
    assert "4096      0 B OK" in line(rpc, rpc_fields(rpc), None, RpcLine(rpc.first_time, 160)).plain


def test_a_size_that_a_trace_does_not_tell() -> None:
    made = client(1)
    made.events = [event for event in made.events if event.name != "xprtrdma_marshal"]
    (rpc,) = made.rpcs()
    row, listed = RpcCells.of_row(rpc_record(rpc), False), RpcCells.of(rpc, rpc_fields(rpc), None, False)
    assert (row.up, row.down) == (listed.up, listed.down) == (None, 100)
    assert cells_line(row, RpcLine(rpc.first_time, 160)).plain == cells_line(listed, RpcLine(rpc.first_time, 160)).plain
