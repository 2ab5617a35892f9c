"""tshark's second opinion: what it reads in the TCP export is what we say was there."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from playbook import Capture, Wire, call as send_call, nfs3, nfs4, reply as send_reply
from playbook.capture import write_pcap
from playbook.filled import Filled
from playbook.gss import INTEGRITY, NONE, PRIVACY, Context
from playbook.nfs4 import Op
from playbook.nfs4_client import Client
from playbook.rpc import Call, Reply
from playbook.xdr_encode import callback_done, callback_op, done, op
from rdmascope.captures.peer.rpc import encoded
from rdmascope.captures.session.session import Session
from rdmascope.captures.wireshark.second_opinion import MessageFields, find_tshark
from rdmascope.cli.main import main
from rdmascope.dissect.onc.shapes import layouts
from rdmascope.dissect.onc.shapes.attributes4 import NUMBERED
from rdmascope.dissect.onc.shapes.nfs4 import CALLBACK_OPERATIONS, OPERATIONS
from rdmascope.dissect.onc.shapes.registry import PROGRAMS
from rdmascope.dissect.onc.shapes.types import XdrUnion
from rdmascope.dissect.verify.second_opinion import Difference

SAMPLES = Path(__file__).parents[1] / "captures" / "samples"
NAMES = sorted(path.name.removesuffix(".pcap.zst") for path in SAMPLES.glob("*.pcap.zst"))

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")


FIELDS = (
    "tcp.stream", "rpc.xid", "rpc.msgtyp", "rpc.program", "rpc.programversion", "rpc.procedure",
    "nfs.status3", "nfs.nfsstat4", "nfs.opcode", "nfs.cb.operation", "nfs.ops.count", "rpc.state_accept",
    "_ws.malformed",
)  # fmt: skip
ACCEPT_STAT = ("", "PROG_UNAVAIL", "PROG_MISMATCH", "PROC_UNAVAIL", "GARBAGE_ARGS", "SYSTEM_ERR")
"""RFC 5531, 9."""


class Half(NamedTuple):
    """A call or a reply, as either tool tells it."""

    connection: int
    """0-based, in order of appearance, among those that carried RPCs."""
    xid: int
    reply: bool
    program: int
    version: int
    procedure: int
    operations: tuple[str, ...]
    status: str
    """Of a reply; '' in a call."""


def rdmascope(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def tshark(*arguments: str) -> str:
    return subprocess.run(["tshark", *arguments], capture_output=True, text=True, check=True).stdout


@cache
def names() -> dict[str, dict[int, str]]:
    """Field -> value -> tshark's own name for it."""
    found: dict[str, dict[int, str]] = {}
    with subprocess.Popen(["tshark", "-G", "values"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b"V\tnfs."):
                _, field, value, name = line.decode().rstrip("\n").split("\t")
                found.setdefault(field, {})[int(value, 0)] = name
    return found


@pytest.fixture(scope="module", params=NAMES)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A sample and the export of all its whole messages."""
    sample = str(SAMPLES / f"{request.param}.pcap.zst")
    output = str(tmp_path_factory.mktemp("export") / f"{request.param}.pcapng")
    rdmascope("export", sample, "--to", "tcp-pcapng", "--skip-incomplete", "-o", output)
    return sample, output


def ours(sample: str) -> list[Half]:
    """What tshark should see: all but what was not transferred to its end, as on a connection that broke."""
    halves: list[Half] = []
    order: dict[int, int] = {}
    for line in rdmascope("rpcs", "--json", "--full", sample).splitlines():
        rpc: dict[str, Any] = json.loads(line)
        if rpc["type"] != "rpc":
            continue
        connection = order.setdefault(rpc["connection"], len(order))
        for reply in False, True:
            whole = reply or all(
                chunk["transferred"] == chunk["advertised"] for chunk in rpc["chunk_list"] if chunk["kind"] == "read"
            )
            refused = reply and rpc["status"] == "RDMA2_ERR_VERS"  # by an RDMA_ERROR, which is no RPC message
            if whole and not refused and rpc["reply" if reply else "call"] is not None:
                halves.append(
                    Half(
                        connection,
                        rpc["xid"],
                        reply,
                        rpc["program_number"],
                        rpc["version"],
                        rpc["procedure_number"],
                        () if reply else tuple(rpc["operations"]),
                        rpc["status"] if reply else "",
                    )
                )
    return halves


def theirs(output: str) -> list[Half]:
    options = [option for field in FIELDS for option in ("-e", field)]
    halves: list[Half] = []
    for line in tshark("-2", "-r", output, "-Y", "rpc", "-T", "fields", *options).splitlines():
        stream, xid, kind, program, version, procedure, *rest = line.split("\t")
        status3, status4, forward, backward, count, accepted, bad = rest
        assert bad == ""
        reply = kind == "1"
        table = names()["nfs.cb.operation" if backward else "nfs.opcode"]
        operations = [table[int(number)] for number in (backward or forward).split(",") if number]
        # EXCHANGE_ID, which is alone in its COMPOUND, lists operations in its arguments (RFC 8881, 18.35).
        del operations[int(count or len(operations)) :]
        status = ""
        if reply:
            field, numbers = ("nfs.nfsstat4", status4) if status4 else ("nfs.status3", status3 or "0")
            status = names()[field][int(numbers.split(",")[0])]
            status = "OK" if status in ("NFS3_OK", "NFS4_OK") else status
            status = ACCEPT_STAT[int(accepted or 0)] or status
        halves.append(
            Half(
                int(stream),
                int(xid, 16),
                reply,
                int(program),
                int(version.split(",")[0]),
                int(procedure),
                () if reply else tuple(operations),
                status,
            )
        )
    return halves


def test_the_same_calls_and_replies(exported: tuple[str, str]) -> None:
    sample, output = exported
    assert sorted(theirs(output)) == sorted(ours(sample))


def test_nothing_is_malformed(exported: tuple[str, str]) -> None:
    wrong = "_ws.malformed || tcp.analysis.flags || tcp.checksum.status == 0 || ip.checksum.status == 0"
    checked = ("-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE")
    assert tshark("-2", "-r", exported[1], *checked, "-Y", wrong) == ""


SNOOPING = ("file_name_snooping", "file_full_name_snooping", "fhandle_find_both_reqrep")


def test_paths_end_with_the_names_that_wireshark_finds_for_the_handle(exported: tuple[str, str]) -> None:
    """Of calls with one handle; it knows neither roots nor names that are looked up in a COMPOUND with others."""
    sample, output = exported
    paths: dict[int, str | None] = {}
    for line in rdmascope("rpcs", "--json", "--full", sample).splitlines():
        rpc = json.loads(line)
        paths[rpc["xid"]] = rpc["path"]
    options = [option for name in SNOOPING for option in ("-o", f"nfs.{name}:TRUE")]
    fields = ("-e", "rpc.xid", "-e", "nfs.name", "-e", "nfs.full_name", "-e", "nfs.fh.hash", "-E", "aggregator=/s")
    calls = ("-Y", "nfs && rpc.msgtyp == 0", "-T", "fields", *fields)
    compared = 0
    for line in tshark("-2", "-r", output, *options, *calls).splitlines():
        xid, name, full_name, handles = line.split("\t")
        known = f"{full_name} {name}".split()
        if known and " " not in handles:
            compared += 1
            path = paths[int(xid, 16)]
            # MOUNT tells it the root of the export by another name: the server's and the path there.
            behind = tuple(one.partition(":/export")[2] if ":/export" in one else f"/{one}" for one in known)
            assert path is not None and path.endswith(behind), line
    assert compared >= LEAST_NAMED.get(Path(sample).name.removesuffix(".pcap.zst"), 0)


LEAST_NAMED = {"meta-rxe": 4000, "rxe-nfs-all": 80, "siw-nfs-all": 80, "loss-rxe": 20}
"""Calls that are compared."""


# Field by field


ENOUGH = 100
"""RPCs of a sample with the same operations that end alike; of one there are hundreds."""


@pytest.mark.parametrize("name", NAMES)
def test_every_field_of_wireshark_stands_where_ours_does_with_the_same_bytes(name: str) -> None:
    """And of ours there is none that it does not show."""
    differences: list[Difference] = []
    session = Session([str(SAMPLES / f"{name}.pcap.zst")])
    with MessageFields() as messages:
        kinds: Counter[tuple[object, ...]] = Counter()
        for rpc in session.rpcs():
            kind = (rpc.name, rpc.operations, rpc.status, rpc.state)
            kinds[kind] += 1
            if kinds[kind] <= ENOUGH:
                messages.add(rpc)
        differences += messages.compare(find_tshark())
    assert [one for one in differences if not one.explained] == []
    assert messages.tally.equal > messages.tally.explained
    assert name != "rxe-nfs-all" or len(messages.names) >= 150


def conversation(asked: list[tuple[Op, Op]], path: Path) -> Path:
    """A capture of one session in which these are asked and answered."""
    wire = Wire()
    client = Client(wire.connect())
    client.begin()
    for one, answer in asked:
        client.ask(one, answer)
    write_pcap(Capture(wire).frames, path)
    return path


def every_operation() -> list[tuple[Op, Op]]:
    names = [one.name for one in OPERATIONS.values() if one.name not in ("SEQUENCE", "ILLEGAL")]
    return [(op(name), done(name)) for name in names]


def every_attribute() -> list[tuple[Op, Op]]:
    some = {"acl": [{"flag": 3, "who": b"OWNER@"}], "layout_type": [1, 4], "fs_layout_type": [1], "rdattr_error": 1}
    some["mdsthreshold"] = {"mth_hints": [{"thi_layout_type": 1, "thi_hintset": (0, 1), "thi_hintlist": b"12345678"}]}
    asked = [
        (op("GETATTR", attr_request=(number,)), done("GETATTR", obj_attributes={name: some.get(name)}))
        for number, (name, _) in NUMBERED.items()
    ]
    assert len(asked) == 87
    return asked


def every_layout() -> list[tuple[Op, Op]]:
    """Layouts of files, flexible files, blocks and SCSI, with their devices."""
    place = {"na_r_netid": b"rdma", "na_r_addr": b"10.0.0.7.78.81"}
    server = {"ffds_deviceid": DEVICE, "ffds_efficiency": 3, "ffds_fh_vers": [b"handle"], "ffds_user": b"0"}
    extent = {"bex_vol_id": DEVICE, "bex_file_offset": 4096, "bex_length": 8192, "bex_state": 1}
    bodies: dict[int, tuple[bytes, bytes]] = {
        1: (
            encoded(
                layouts.TYPES["nfsv4_1_file_layout4"],
                {"nfl_deviceid": DEVICE, "nfl_util": 0x100002, "nfl_fh_list": [b"handle"]},
            ),
            encoded(
                layouts.TYPES["nfsv4_1_file_layout_ds_addr4"],
                {"nflda_stripe_indices": [0], "nflda_multipath_ds_list": [[place]]},
            ),
        ),
        3: (
            encoded(layouts.TYPES["pnfs_block_layout4"], {"blo_extents": [extent]}),
            encoded(layouts.TYPES["pnfs_block_deviceaddr4"]),
        ),
        4: (
            encoded(layouts.TYPES["ff_layout4"], {"ffl_mirrors": [{"ffm_data_servers": [server]}], "ffl_flags": 3}),
            encoded(
                layouts.TYPES["ff_device_addr4"], {"ffda_netaddrs": [place], "ffda_versions": [{"ffdv_version": 3}]}
            ),
        ),
        5: (encoded(layouts.TYPES["pnfs_scsi_layout4"]), encoded(layouts.TYPES["pnfs_scsi_deviceaddr4"])),
    }
    asked = []
    for kind, (layout, device) in bodies.items():
        granted = {"lo_offset": 4096, "lo_length": 8192, "lo_content": {"loc_type": kind, "loc_body": layout}}
        back = {"lr_returntype": 1, "lrf_offset": 4096, "lrf_length": 8192}
        written = {"no_newoffset": 1, "no_offset": 99}
        asked += [
            (op("LAYOUTGET", loga_layout_type=kind, loga_maxcount=4000), done("LAYOUTGET", logr_layout=[granted])),
            (
                op("GETDEVICEINFO", gdia_device_id=DEVICE, gdia_layout_type=kind, gdia_notify_types=(1, 2)),
                done("GETDEVICEINFO", gdir_device_addr={"da_layout_type": kind, "da_addr_body": device}),
            ),
            (
                op("LAYOUTCOMMIT", loca_last_write_offset=written, loca_layoutupdate={"lou_type": kind}),
                done("LAYOUTCOMMIT"),
            ),
            (op("LAYOUTRETURN", lora_layout_type=kind, lora_layoutreturn=back), done("LAYOUTRETURN")),
        ]
    return asked


DEVICE = bytes(range(16))


def unexplained(path: Path) -> tuple[list[Difference], int]:
    """Differences between the two, and how many fields are the same."""
    session = Session([str(path)])
    with MessageFields() as messages:
        for rpc in session.rpcs():
            messages.add(rpc)
        found = [one for one in messages.compare(find_tshark()) if not one.explained]
    return found, messages.tally.equal


@pytest.mark.parametrize(("asked", "least"), [(every_operation, 5000), (every_attribute, 5000), (every_layout, 1000)])
def test_every_operation_attribute_and_layout(
    asked: Callable[[], list[tuple[Op, Op]]], least: int, tmp_path: Path
) -> None:
    found, equal = unexplained(conversation(asked(), tmp_path / "all.pcap"))
    assert found == [] and equal > least


def test_every_callback(tmp_path: Path) -> None:
    """Those of a session, and CB_RECALL of NFSv4.0, which has no CB_SEQUENCE."""
    wire = Wire()
    client = Client(wire.connect())
    client.begin()
    handle, state = b"a file handle of 24 byte", {"seqid": 7, "other": bytes(range(12))}
    given: dict[str, dict[str, Any]] = {
        "CB_GETATTR": {"fh": handle, "attr_request": (3, 4)},
        "CB_RECALL": {"stateid": state, "truncate": 1, "fh": handle},
        "CB_LAYOUTRECALL": {
            "clora_type": 1, "clora_changed": 1, "clora_recall": {"lor_recalltype": 1, "lor_fh": handle},
        },
        "CB_NOTIFY": {"cna_stateid": state, "cna_fh": handle},
        "CB_PUSH_DELEG": {"cpda_fh": handle, "cpda_delegation": {"delegation_type": 1, "stateid": state}},
        "CB_RECALL_ANY": {"craa_objects_to_keep": 9, "craa_type_mask": (0, 1)},
        "CB_RECALLABLE_OBJ_AVAIL": {"croa_objects_to_keep": 9, "croa_type_mask": (0, 1)},
        "CB_RECALL_SLOT": {"rsa_target_highest_slotid": 5},
        "CB_WANTS_CANCELLED": {"cwca_contended_wants_cancelled": 1, "cwca_resourced_wants_cancelled": 1},
        "CB_NOTIFY_LOCK": {"cnla_fh": handle, "cnla_lock_owner": {"clientid": 8, "owner": b"owner"}},
        "CB_NOTIFY_DEVICEID": {"cnda_changes": [{"deviceid_delete": {"ndd_layouttype": 4, "ndd_deviceid": DEVICE}}]},
        "CB_OFFLOAD": {"coa_fh": handle, "coa_stateid": state, "coa_offload_info": {"coa_status": 0, "wr_count": 77}},
    }  # fmt: skip
    names = [one.name for one in CALLBACK_OPERATIONS.values() if one.name not in ("CB_SEQUENCE", "CB_ILLEGAL")]
    for number, name in enumerate(names, 1):
        exchange = client.called_back(callback_op(name, **given.get(name, {})), sequence=number)
        sequence = nfs4.Op(11, nfs4.cb_sequence_done(number).parts)
        send_reply(exchange, nfs4.compound_reply(sequence, callback_done(name)))
    path = tmp_path / "callbacks.pcap"
    write_pcap(Capture(wire).frames, path)
    found, equal = unexplained(path)
    assert found == [] and equal > 400


def filled(turn: int) -> Iterator[tuple[Op, Op]]:
    """Every operation of COMPOUND with all that it can ask and answer."""
    fill = Filled(turn)
    for number, one in OPERATIONS.items():
        if one.name not in ("SEQUENCE", "ILLEGAL"):
            asked = encoded(one.arguments, fill.value(one.arguments)) if one.arguments is not None else b""
            yield Op(number, (asked,)), Op(number, (encoded(one.results, fill.arm(one.results, 0))[4:],))


@pytest.mark.parametrize("turn", range(5))
def test_every_arm_of_every_operation(turn: int, tmp_path: Path) -> None:
    found, equal = unexplained(conversation([*filled(turn)], tmp_path / "filled.pcap"))
    assert found == [] and equal > 5000


OLD = {(100227, 2), (100005, 2)}
"""Of versions for NFS version 2 Wireshark takes GETATTR of NFSACL for one without a status, and shows of PATHCONF of
MOUNT what its mask lets it."""


@pytest.mark.parametrize("turn", range(3))
def test_every_procedure_beside_nfs_version_4(turn: int, tmp_path: Path) -> None:
    wire = Wire()
    connection, fill = wire.connect(), Filled(turn)
    for (program, version), procedures in PROGRAMS.items():
        if (program, version) not in {*OLD, (100003, 4), (0x40000000, 1)}:
            for number, one in procedures.items():
                asked = (encoded(one.arguments, fill.value(one.arguments)),) if one.arguments is not None else ()
                results = fill.arm(one.results, 0) if isinstance(one.results, XdrUnion) else None
                if results is None and one.results is not None:
                    results = fill.value(one.results)
                answered = (encoded(one.results, results),) if one.results is not None else ()
                send_reply(send_call(connection, Call(program, version, number, asked)), Reply(answered))
    path = tmp_path / "procedures.pcap"
    write_pcap(Capture(wire).frames, path)
    found, equal = unexplained(path)
    assert found == [] and equal > 3000


def test_contexts_of_every_service(tmp_path: Path) -> None:
    """Created, used by NFSv3 and NFSv4, a call retransmitted with a new sequence number, destroyed."""
    wire = Wire()
    for service in (NONE, INTEGRITY, PRIVACY):
        connection, context = wire.connect(), Context(service)
        asked = nfs4.compound(nfs4.sequence(), nfs4.putfh(), op("GETATTR", attr_request=(1, 4)))
        answered = nfs4.sequence_done(), nfs4.putfh_done(), done("GETATTR", obj_attributes={"size": 5})
        begin, begun = context.create(100003, 3)
        send_reply(send_call(connection, begin), begun)
        for one, other in (
            (nfs3.read(0, 12), nfs3.read_reply(b"twelve bytes")),
            (nfs3.write(0, b"abc"), nfs3.write_reply(3)),
            (nfs3.write(0, b"abc"), nfs3.write_reply(3)),
            (asked, nfs4.compound_reply(*answered)),
        ):
            send_reply(send_call(connection, context.call(one)), context.reply(other))
        end, ended = context.destroy(100003, 3)
        send_reply(send_call(connection, end), ended)
    path = tmp_path / "gss.pcap"
    write_pcap(Capture(wire).frames, path)
    found, equal = unexplained(path)
    assert found == [] and equal > 700
