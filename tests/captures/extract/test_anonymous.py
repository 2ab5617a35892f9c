"""An anonymous cut says of its RPCs what the original does, and has none of its names, handles, addresses and data."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from playbook import Capture, Wire, shapes, wrap, write_pcap
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.packets import Frame
from playbook.samples import MANIFEST, SAMPLES
from rdmascope.captures import open_capture
from rdmascope.captures.extract.anonymize import Pseudonyms
from rdmascope.captures.extract.cut import Choice, Extracted, extract
from rdmascope.captures.session.session import Session
from rdmascope.dissect.layers import icrc
from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.link.tcp import WRONG, locate_tcp, verify_checksums
from rdmascope.dissect.onc.shapes.types import Node, XdrOpaque
from rdmascope.dissect.rpcrdma.message_trees import decoded_call, decoded_reply

from .test_cut import differences, in_order, rpcs as rpcs_with_addresses

EVERY = frozenset(range(1, 100_000))
CLIENT, SERVER = "172.31.77.2", "172.31.78.1"
LONG = 8
"""Bytes that chance does not repeat."""


def cut(source: Path, output: Path, chosen: frozenset[int] = EVERY) -> Extracted:
    return extract(lambda: Session(str(source)), output, Choice(rpcs=chosen), anonymize=True)


REPLACED = (
    *("client", "server", "machine_name", "user", "uid", "gid", "session", "stateid_other"),
    *("file_handle", "file_handle_hash", "file_name"),
)
"""Columns that have other values afterwards."""


def rpcs(source: Path) -> list[dict[str, Any]]:
    """But for what is replaced."""
    return [one | dict.fromkeys(REPLACED) for one in rpcs_with_addresses(source)]


def secrets(source: Path) -> Iterator[bytes]:
    """The opaque values of all messages, names and data among them, but those that chance repeats."""
    for rpc in Session(str(source)).rpcs():
        for decoded in (decoded_call(rpc), decoded_reply(rpc)):
            if decoded is not None:
                for part in (decoded.tree.header, decoded.tree.body, decoded.tree.rest):
                    for node in part.walk() if part is not None else ():
                        if is_secret(node):
                            assert isinstance(node.value, memoryview)
                            yield bytes(node.value[:64])


def is_secret(node: Node) -> bool:
    known = isinstance(node.type, XdrOpaque) and not node.children and isinstance(node.value, memoryview)
    value = bytes(node.value) if isinstance(node.value, memoryview) else b""
    return known and len(value) >= LONG and len(set(value)) > 2


@pytest.mark.parametrize(
    "name",
    ["rxe-nfs-all", "siw-nfs-all", "longcall-rxe", "bidir-rxe", "ipv6-rxe", "v2-falls-back", "v2-characteristics"],
)
def test_the_samples(name: str, tmp_path: Path) -> None:
    source, out = SAMPLES / MANIFEST[name]["file"], tmp_path / "out.pcapng"
    extracted = cut(source, out)
    assert not extracted.left_out
    assert not differences(in_order(rpcs(source)), in_order(rpcs(out)))
    written = out.read_bytes()
    found = set(secrets(source))
    assert len(found) > 3
    assert not contained(found, written)
    analyzer = Session(str(source))
    for _ in analyzer.tables():
        pass
    for connection in analyzer.analyzer.connections:
        for end in connection.endpoints:
            assert packed(end.address) not in written


def contained(values: Collection[bytes], data: bytes) -> list[bytes]:
    """Those of the values, each of LONG bytes or more, that are in the data."""
    heads = {value[:LONG] for value in values}
    there = heads.intersection(data[at : at + LONG] for at in range(len(data)))
    return [value for value in values if value[:LONG] in there and value in data]


def packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def talk() -> list[Frame]:
    wire = Wire(seed=3)
    connection = wire.connect(CLIENT, SERVER)
    shapes.read(connection, bytes(range(256)) * 32)
    shapes.write(connection, bytes(range(256)) * 16)
    return Capture(wire).frames


def test_the_invariant_crcs_are_right_again(tmp_path: Path) -> None:
    write_pcap(talk(), tmp_path / "in.pcap")
    cut(tmp_path / "in.pcap", tmp_path / "out.pcapng")
    checked = 0
    with open_capture(str(tmp_path / "out.pcapng")) as capture:
        for batch in capture.batches():
            for number in batch.rows["number"].tolist():
                packet = batch.frame(number).data[14:]
                assert icrc.verify(packet)
                assert sum(int.from_bytes(packet[at : at + 2], "big") for at in range(0, 20, 2)) % 0xFFFF == 0
                checked += 1
    assert checked > 10


def test_wrong_checksums_stay_wrong(tmp_path: Path) -> None:
    frames = talk()
    at = next(index for index, frame in enumerate(frames) if len(frame.data) > 400)
    data = bytearray(frames[at].data)
    data[-1] ^= 1
    data[24] ^= 1
    broken = Frame(frames[at].time, bytes(data), len(data))
    write_pcap([*frames[:at], broken, *frames[at + 1 :]], tmp_path / "in.pcap")
    whole = Choice(connections=frozenset({1}))
    extract(lambda: Session(str(tmp_path / "in.pcap")), tmp_path / "out.pcapng", whole, anonymize=True)
    with open_capture(str(tmp_path / "out.pcapng")) as capture:
        frames_out = [batch.frame(number) for batch in capture.batches() for number in batch.rows["number"].tolist()]
    wrong = [one for one in frames_out if not icrc.verify(one.data[14:])]
    assert [one.comment for one in wrong] == [f"frame {at + 1}"]
    header = wrong[0].data[14:34]
    assert sum(int.from_bytes(header[place : place + 2], "big") for place in range(0, 20, 2)) % 0xFFFF


@pytest.mark.parametrize("cutting", ["aligned", "merged", "random"])
@pytest.mark.parametrize("markers", [False, True])
def test_iwarp_with_right_crcs_and_checksums(cutting: str, markers: bool, tmp_path: Path) -> None:
    wire = IwarpWire(mss=1448, seed=1)
    connection = wire.connect(cutting=cutting, markers=(markers, markers))
    shapes.read(connection, bytes(range(256)) * 40)
    shapes.write(connection, bytes(range(256)) * 40)
    write_pcap(IwarpCapture(wire).frames, tmp_path / "in.pcap")
    cut(tmp_path / "in.pcap", tmp_path / "out.pcapng")
    wanted, found = in_order(rpcs(tmp_path / "in.pcap")), in_order(rpcs(tmp_path / "out.pcapng"))
    assert not differences(wanted, found)
    assert bytes(range(64)) not in (tmp_path / "out.pcapng").read_bytes()
    with open_capture(str(tmp_path / "out.pcapng")) as capture:
        for batch in capture.batches():
            rows = locate_tcp(batch, locate(batch, AddressTable()).tcp, AddressTable())
            verify_checksums(batch.data, rows, np.arange(len(rows)))
            assert not (rows["verdict"] == WRONG).any()


UNDERSTOOD = [wrap.rocev1, wrap.vxlan, wrap.vxlan_over_ipv6, wrap.geneve, wrap.gre, wrap.erspan2, wrap.ip_in_ip]


@pytest.mark.parametrize("wrapped", [*UNDERSTOOD, wrap.erspan3_of_ip, wrap.mpls_of_ip, wrap.geneve_of_ip])
def test_other_shapes_of_frames(wrapped: Callable[[bytes], bytes], tmp_path: Path) -> None:
    frames = [Frame(one.time, wrapped(one.data), len(wrapped(one.data))) for one in talk()]
    write_pcap(frames, tmp_path / "in.pcap")
    extracted = cut(tmp_path / "in.pcap", tmp_path / "out.pcapng")
    assert not extracted.left_out
    assert not differences(in_order(rpcs(tmp_path / "in.pcap")), in_order(rpcs(tmp_path / "out.pcapng")))
    written = (tmp_path / "out.pcapng").read_bytes()
    for secret in (packed(CLIENT), packed(SERVER), packed("192.0.2.1"), bytes(range(64))):
        assert secret not in written


def test_what_is_not_understood_is_left_out(tmp_path: Path) -> None:
    frames = [Frame(one.time, wrap.mpls_of_ethernet(one.data), len(one.data) + 20) for one in talk()]
    write_pcap(frames, tmp_path / "in.pcap")
    extracted = cut(tmp_path / "in.pcap", tmp_path / "out.pcapng")
    assert extracted.left_out > 10 and not extracted.frames


def identities(path: Path) -> set[tuple[int, ...]]:
    """User and groups of the credentials."""
    found = set()
    for rpc in Session(str(path)).rpcs():
        decoded = decoded_call(rpc)
        assert decoded is not None and decoded.tree.header is not None
        nodes = {node.name: node for node in decoded.tree.header.walk()}
        if "uid" in nodes:
            numbers = [nodes["uid"], nodes["gid"], *nodes["gids"].children]
            found.add(tuple(node.value for node in numbers if isinstance(node.value, int)))
    return found


def test_users_and_groups_are_others_everywhere(tmp_path: Path) -> None:
    write_pcap(talk(), tmp_path / "in.pcap")
    cut(tmp_path / "in.pcap", tmp_path / "out.pcapng")
    assert identities(tmp_path / "in.pcap") == {(1000, 100, 100, 27)}
    assert identities(tmp_path / "out.pcapng") == {(100_001, 100_001, 100_001, 100_002)}


class TestPseudonyms:
    @given(st.lists(st.binary(min_size=1, max_size=40), max_size=30))
    def test_lengths_stay_and_the_same_is_the_same(self, values: list[bytes]) -> None:
        names = Pseudonyms()
        for replace in (names.text, names.opaque):
            once = [replace(value) for value in values]
            assert [replace(value) for value in values] == once
            assert [len(value) for value in once] == [len(value) for value in values]

    @given(st.sets(st.from_regex(r"[a-z]{4,8}", fullmatch=True), max_size=50))
    def test_different_names_stay_different(self, names: set[str]) -> None:
        pseudonyms = Pseudonyms()
        assert len({pseudonyms.text(name.encode()) for name in names}) == len(names)

    def test_what_has_a_meaning_stays(self) -> None:
        names = Pseudonyms()
        assert names.text(b"..") == b".." and names.text(b"a/b").count(b"/") == 1
        assert names.opaque(bytes(12)) == bytes(12) and names.opaque(b"\xff" * 12) == b"\xff" * 12
        assert names.mac(b"\xff" * 6) == b"\xff" * 6
        assert [names.identity("uid", one) for one in (0, 65534, 7, 8, 7)] == [0, 65534, 100_001, 100_002, 100_001]
        assert names.ipv4(bytes([224, 0, 0, 1])) == bytes([224, 0, 0, 1])
        assert names.ipv6(bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1]))[12:] == names.ipv4(bytes([10, 0, 0, 1]))

    def test_another_run_gives_other_values(self) -> None:
        assert Pseudonyms().text(b"payroll-2026") != Pseudonyms().text(b"payroll-2026")
