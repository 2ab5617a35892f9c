"""What is cut out of a capture says of its RPCs what the whole capture says."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from playbook import Capture, Wire, shapes, wrap, write_pcap
from playbook.iwarp import IwarpCapture, IwarpWire
from playbook.packets import Frame, encode_frames
from playbook.samples import MANIFEST, SAMPLES
from playbook.troubles import TROUBLES
from rdmascope.captures import CaptureError, open_capture
from rdmascope.captures.extract.cut import Choice, Extracted, extract, places_of_findings
from rdmascope.captures.session.diagnosis_pass import diagnosis_of
from rdmascope.captures.session.session import Session
from rdmascope.captures.tables.condition import Condition
from rdmascope.captures.write.pcapng_writer import PcapngWriter
from rdmascope.dissect.records.rpc_lines import rpc_records
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable
from rdmascope.dissect.rpcrdma.rpcs import DUPLICATE_REPLY

NUMBERED = {"number", "connection"}
NEIGHBOURS = {"retransmitted_packets", "retransmission_delay_ns"}
"""A packet may have been retransmitted for the loss of one before it, of another RPC."""
ANY = (1, 20)
"""RPCs that are chosen."""


def rpcs(*paths: Path) -> list[dict[str, Any]]:
    """As records, without the second replies to a call."""
    session = Session([str(path) for path in paths])
    kept = [rpc for rpc in session.rpcs() if rpc.state != DUPLICATE_REPLY]
    return rpc_records(RpcTable(kept))


def unnumbered(record: dict[str, Any]) -> dict[str, Any]:
    """What is the same in a part of the capture."""
    lost = record["retransmitted_packets"] or record["retransmission_delay_ns"]
    others = NUMBERED | (NEIGHBOURS if lost else set())
    return {name: value for name, value in record.items() if name not in others and not name.endswith("_frame")}


def in_order(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(map(unnumbered, records), key=begin)


def begin(record: dict[str, Any]) -> tuple[int, int]:
    return record["time_ns"], record["xid"]


def cut(inputs: Path | list[Path], output: Path, *numbers: int, **options: Any) -> Extracted:
    paths = [str(one) for one in ([inputs] if isinstance(inputs, Path) else inputs)]
    return extract(lambda: Session(paths), output, Choice(rpcs=frozenset(numbers)), **options)


def hold_the_same(
    inputs: Path | list[Path], output: Path, chance: random.Random, count: int, shared: bool = False
) -> None:
    """Cut out some RPCs, and compare.  ``shared``: some of their frames carry others, too."""
    every = rpcs(*([inputs] if isinstance(inputs, Path) else inputs))
    chosen = chance.sample(every, min(count, len(every)))
    extracted = cut(inputs, output, *(one["number"] for one in chosen))
    assert extracted.rpcs == len(chosen)
    found = rpcs(output)
    if shared:
        found = [one for one in found if begin(one) in set(map(begin, chosen))]
    assert not differences(in_order(chosen), in_order(found))


def differences(wanted: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[object]:
    """What differs."""
    if len(wanted) != len(found):
        return [(one["xid"], one["state"]) for one in found] + [len(wanted)]
    pairs = zip(wanted, found, strict=True)
    return [(name, one[name], other.get(name)) for one, other in pairs for name in one if one[name] != other.get(name)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("extract")


@pytest.mark.parametrize("name", sorted(MANIFEST))
def test_random_rpcs_of_the_samples(name: str, folder: Path) -> None:
    chance = random.Random(name)
    for count in (2, 100):
        hold_the_same(SAMPLES / MANIFEST[name]["file"], folder / f"{name}.pcapng", chance, count)


def roce(seed: int) -> list[Frame]:
    wire = Wire(seed=seed)
    for _ in range(2):
        talk(wire.connect())
    return Capture(wire).frames


def talk(connection: Any) -> None:
    for length in (700, 9000, 40_000):
        shapes.read(connection, bytes(range(256)) * (length // 256))
        shapes.write(connection, bytes(range(256)) * (length // 256))


@settings(max_examples=25)
@given(st.data())
def test_iwarp_however_it_is_cut_into_segments(folder: Path, data: st.DataObject) -> None:
    wire = IwarpWire(mss=1448, seed=data.draw(st.integers(0, 99)))
    cutting = data.draw(st.sampled_from(["aligned", "merged", "random"]))
    for _ in range(2):
        talk(
            wire.connect(
                markers=data.draw(st.sampled_from([(False, False), (True, True), (True, False)])),
                cutting=cutting,
                revision=2,
                ready=data.draw(st.sampled_from(["", "F", "W", "R"])),
            )
        )
    write_pcap(IwarpCapture(wire).frames, folder / "iwarp.pcap")
    chance = random.Random(data.draw(st.integers(0, 99)))
    count = data.draw(st.integers(1, 12))
    hold_the_same(folder / "iwarp.pcap", folder / "iwarp.pcapng", chance, count, cutting != "aligned")


@pytest.mark.parametrize("wrapped", [wrap.rocev1, *wrap.TUNNELS.values()])
def test_other_shapes_of_frames(wrapped: Callable[[bytes], bytes], tmp_path: Path) -> None:
    frames = [replace(one, data=wrapped(one.data), original=len(wrapped(one.data))) for one in roce(3)]
    write_pcap(frames, tmp_path / "wrapped.pcap")
    hold_the_same(tmp_path / "wrapped.pcap", tmp_path / "out.pcapng", random.Random(1), 5)


@pytest.mark.parametrize("wrapped", [wrap.infiniband, wrap.infiniband_routed])
def test_native_infiniband(wrapped: Callable[[bytes], bytes], tmp_path: Path) -> None:
    with (tmp_path / "ib.pcapng").open("wb") as file:
        writer = PcapngWriter(file, wrap.INFINIBAND)
        for one in roce(3):
            writer.write(one.time, wrapped(one.data))
    hold_the_same(tmp_path / "ib.pcapng", tmp_path / "out.pcapng", random.Random(1), 5)


def test_several_files_and_compression(tmp_path: Path) -> None:
    frames = roce(4)
    for name, part in (("a", frames[: len(frames) // 2]), ("b", frames[len(frames) // 2 :])):
        write_pcap(part, tmp_path / f"{name}.pcap")
        (tmp_path / f"{name}.pcap.zst").write_bytes(zstandard.compress((tmp_path / f"{name}.pcap").read_bytes()))
    inputs = [tmp_path / "a.pcap.zst", tmp_path / "b.pcap.zst"]
    hold_the_same(inputs, tmp_path / "out.pcapng", random.Random(1), 4)
    with open_capture(str(tmp_path / "out.pcapng")) as capture:
        comments = [comment for batch in capture.batches() for comment in batch.comments.values()]
    assert {comment.rpartition(" of ")[2] for comment in comments} == {"a.pcap.zst", "b.pcap.zst"}


class TestTheFile:
    def test_times_numbers_and_bytes_are_those_of_the_original(self, tmp_path: Path) -> None:
        frames = roce(5)
        write_pcap(frames, tmp_path / "in.pcap")
        cut(tmp_path / "in.pcap", tmp_path / "out.pcapng", 2, 5)
        seen = 0
        with open_capture(str(tmp_path / "out.pcapng")) as capture:
            for batch in capture.batches():
                for number in batch.rows["number"].tolist():
                    frame = batch.frame(number)
                    original = frames[int(frame.comment.removeprefix("frame ")) - 1]
                    assert (frame.time, frame.data) == (original.time, original.data)
                    seen += 1
        assert 10 < seen < len(frames)

    def test_a_snap_length(self, tmp_path: Path) -> None:
        write_pcap(roce(5), tmp_path / "in.pcap")
        whole = cut(tmp_path / "in.pcap", tmp_path / "whole.pcapng", 2)
        short = cut(tmp_path / "in.pcap", tmp_path / "short.pcapng", 2, snaplen=100)
        assert short.frames == whole.frames and short.bytes < whole.bytes
        with open_capture(str(tmp_path / "short.pcapng")) as capture:
            batches = list(capture.batches())
            assert capture.snaplen == 100
        assert max(int(one.rows["captured"].max()) for one in batches) == 100
        assert max(int(one.rows["original"].max()) for one in batches) > 500

    def test_an_input_is_never_overwritten(self, tmp_path: Path) -> None:
        write_pcap(roce(5), tmp_path / "in.pcap")
        before = (tmp_path / "in.pcap").read_bytes()
        with pytest.raises(CaptureError, match="would overwrite what is read"):
            cut(tmp_path / "in.pcap", tmp_path / "in.pcap", 1)
        assert (tmp_path / "in.pcap").read_bytes() == before

    def test_what_does_not_exist(self, tmp_path: Path) -> None:
        write_pcap(roce(5), tmp_path / "in.pcap")
        with pytest.raises(CaptureError, match="no RPC 900"):
            cut(tmp_path / "in.pcap", tmp_path / "out.pcapng", 900)
        assert not (tmp_path / "out.pcapng").exists()


class TestChoices:
    def test_a_condition(self, tmp_path: Path) -> None:
        sample = SAMPLES / MANIFEST["rxe-nfs-all"]["file"]
        with closing(Condition(["procedure = 'WRITE' AND latency_ns > 40e6"])) as condition:
            extracted = extract(lambda: Session(str(sample)), tmp_path / "out.pcapng", Choice(condition))
        writes = [one for one in rpcs(sample) if "WRITE" in (one["procedure"], *one["operations"])]
        wanted = [one for one in writes if one["latency_ns"] > 40_000_000]
        assert extracted.rpcs == len(wanted) > 0
        assert in_order(rpcs(tmp_path / "out.pcapng")) == in_order(wanted)

    def test_a_whole_connection(self, tmp_path: Path) -> None:
        sample = SAMPLES / MANIFEST["rxe-nfs-all"]["file"]
        whole = Session(str(sample))
        packets = sum(packet.frame > 0 for packet in whole.packets())
        every = [sum(one.packets) for one in whole.analyzer.connections]
        choice = Choice(connections=frozenset({7}))
        extracted = extract(lambda: Session(str(sample)), tmp_path / "out.pcapng", choice)
        exchanged = 5  # REQ, REP, RTU, DREQ and DREP
        assert every[6] <= extracted.frames <= every[6] + exchanged < packets

    @pytest.mark.parametrize("kind", ["credits-exhausted", "slots-exhausted", "congestion", "connections-refused"])
    def test_a_finding_without_rpcs_is_that_of_its_connections(self, tmp_path: Path, kind: str) -> None:
        path, out = tmp_path / "in.pcap", tmp_path / "out.pcapng"
        write_pcap(encode_frames(TROUBLES[kind](Wire(seed=1))), path)
        found = places_of_findings(lambda: Session(str(path)), [kind])
        choice = Choice(None, frozenset(found.rpcs), frozenset(found.connections), frozenset(found.frames))
        extract(lambda: Session(str(path)), out, choice)
        before, after = (diagnosis_of(Session(str(one))).statements for one in (path, out))
        assert [(one.kind, one.cause.text) for one in after] == [(one.kind, one.cause.text) for one in before]
        assert [one.kind for one in after] == [kind] and not found.rpcs

    @pytest.mark.parametrize("kind", ["commit-storm", "metadata-storm", "readdir-without-plus", "frames-truncated"])
    def test_what_is_about_many_calls_is_about_their_connections(self, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "in.pcap"
        write_pcap(encode_frames(TROUBLES[kind](Wire(seed=1))), path)
        found = places_of_findings(lambda: Session(str(path)), [kind])
        assert found.connections and not found.rpcs

    def test_a_damaged_file_has_no_place(self, tmp_path: Path) -> None:
        path = tmp_path / "in.pcap"
        write_pcap(encode_frames(TROUBLES["commit-storm"](Wire(seed=1))), path)
        path.write_bytes(path.read_bytes()[:-7])
        with pytest.raises(CaptureError, match="' is about the capture as a whole: it names no RPCs, frames or"):
            places_of_findings(lambda: Session(str(path)), ["capture-damaged"])

    def test_a_detector_and_a_rule(self, tmp_path: Path) -> None:
        sample = SAMPLES / MANIFEST["loss-rxe"]["file"]
        found = places_of_findings(lambda: Session(str(sample)), ["packets-lost", "pd-invalidate-agreed"])
        assert found.rpcs and found.rpcs <= {one["number"] for one in rpcs(sample)}
        with pytest.raises(CaptureError, match="no rule and no detector 'no-such-thing'"):
            places_of_findings(lambda: Session(str(sample)), ["no-such-thing"])
        with pytest.raises(CaptureError, match="nothing is found by grace-period"):
            places_of_findings(lambda: Session(str(sample)), ["grace-period"])
