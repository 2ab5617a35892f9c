"""What a capture lacks: where detectors speak, and where not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from playbook import Capture, Wire
from playbook.capture import frame_batch, write_pcap
from playbook.commands import SAMPLES, run
from playbook.facts import connection, direction, facts, found, health, kinds, many, rpc, silent, speaks
from playbook.packets import Frame
from playbook.shapes import DATA, write
from rdmascope.captures.read.open import open_capture
from rdmascope.dissect.diagnosis.facts import Severity
from rdmascope.dissect.rpcrdma.analyzer import Analyzer


@speaks("capture-dropped")
@silent("capture-dropped")
def test_frames_that_the_capture_dropped() -> None:
    (said,) = found(facts(many(20), dropped_frames=1000))
    assert said.kind == "capture-dropped" and said.severity is Severity.NOTE
    assert said.cause.share == 0.5 and said.cause.share_of == "all frames"
    assert not kinds(facts(many(20)))


@speaks("timestamps-coarse")
@silent("timestamps-coarse")
def test_timestamps_that_are_coarse_or_differ() -> None:
    (said,) = found(facts(many(20), time_steps={1, 1_000_000}))
    assert said.kind == "timestamps-coarse" and said.severity is Severity.NOTE
    assert (
        said.cause.text == "timestamps have a resolution of 1 ms in some frames and 1 ns in others; "
        "latencies between the two may be off by 1 ms"
    )
    assert not said.cause.harmless
    (said,) = found(facts(many(20), time_steps={1, 1000}))
    assert said.cause.harmless
    (said,) = found(facts(many(20), time_steps={1_000_000}))
    assert said.cause.text == "timestamps have a resolution of 1 ms; nothing shorter can be measured"
    assert not any(kinds(facts(many(20), time_steps=steps)) for steps in ({1000}, {1}, ()))


@speaks("packets-missing")
@silent("packets-missing")
def test_missing_packets() -> None:
    (said,) = found(facts(many(20), [health(1, direction(missing=20))]))
    assert said.kind == "packets-missing" and said.severity is Severity.NOTE
    assert said.cause.text == "20 packets (0.99%) missing from the capture"
    assert not kinds(facts(many(20), [health(1, direction(missing=1, packets=100_000))]))


def test_missing_responses_to_reads() -> None:
    """Nothing but the acknowledgement of what follows shows them."""
    wire = Wire()
    on = wire.connect()
    write(on, DATA[:9000])
    captured = [packet for packet in wire.packets if packet.kind != "response"]
    analyzer = Analyzer()
    analyzer.feed(frame_batch(Capture(wire, captured).frames))
    analyzer.finish()
    assert analyzer.connections[0].missing_responses == (len(wire.packets) - len(captured), 0) != (0, 0)
    (said,) = found(facts(many(20), [health(1)], (connection(1, missing_responses=(20, 0)),)))
    assert said.kind == "packets-missing"


@speaks("frames-truncated")
@silent("frames-truncated")
def test_truncated_frames_matter_where_messages_cannot_be_read() -> None:
    unread = connection(1, unread_messages=[5, 5])
    (said,) = found(facts(many(20, on=unread), (), (unread,), truncated_frames=500))
    assert (
        said.kind == "frames-truncated"
        and said.cause.text == "500 frames truncated by the capture; 10 messages cannot be read"
    )
    assert not kinds(facts(many(20)))


def test_truncated_payload_is_said_and_weakens_nothing() -> None:
    hung = rpc(21, "WRITE", answered=False)
    said, note = found(facts([*many(20), hung], seconds=60, truncated_frames=500))
    assert (said.kind, said.cause.weakened_by, said.cause.confidence) == ("calls-hung", (), 0.95)
    assert (note.kind, note.severity) == ("frames-truncated", Severity.NOTE)
    assert note.cause.text == "500 frames truncated by the capture"


@speaks("messages-incomplete")
@silent("messages-incomplete")
def test_messages_whose_bytes_are_nowhere_though_no_packet_is_missing() -> None:
    damaged = rpc(21, "READ")
    damaged.state = "damaged"
    (said,) = found(facts([*many(20), damaged]))
    assert said.kind == "messages-incomplete" and said.severity is Severity.NOTE
    assert said.cause.text == "1 RPC damaged, bytes of its messages not captured"
    assert not kinds(facts(many(20)))
    assert "messages-incomplete" not in kinds(facts([*many(20), damaged], truncated_frames=1))
    assert "messages-incomplete" not in kinds(facts([*many(20), damaged], ip_fragments=2))
    assert kinds(facts([*many(20), damaged], [health(1, direction(missing=20))])) == {"packets-missing"}
    (said,) = found(facts([*many(20), damaged], [health(1, direction(missing=20, unconfirmed=20))]))
    assert said.kind == "messages-incomplete" and said.cause.evidence == ("20 packets may be missing",)


@speaks("packets-fragmented")
@silent("packets-fragmented")
def test_ip_fragments() -> None:
    (said,) = found(facts(many(20), ip_fragments=8))
    assert said.kind == "packets-fragmented" and said.severity is Severity.NOTE
    assert said.cause.text == "8 IP fragments not reassembled, contents unknown"
    assert not kinds(facts(many(20)))


@speaks("one-direction")
@silent("one-direction")
def test_one_direction_only() -> None:
    half = connection(1, paired_by="one direction only")
    (said,) = found(facts(many(20, on=half), (), (half,)))
    assert said.kind == "one-direction" and said.cause.connections == (1,)
    assert not kinds(
        facts(many(20, on=connection(1, paired_by="inferred")), (), (connection(1, paired_by="inferred"),))
    )


@speaks("packets-duplicated")
@silent("packets-duplicated")
def test_copies() -> None:
    (said,) = found(facts(many(20), [health(1, causes={"duplicate": 900})]))
    assert said.kind == "packets-duplicated" and said.cause.count == 900
    assert not kinds(facts(many(20), [health(1, causes={"duplicate": 15})]))


@speaks("capture-damaged")
@silent("capture-damaged")
def test_a_damaged_file() -> None:
    (said,) = found(facts(many(20), damage="x.pcap: truncated at byte 99"))
    assert said.kind == "capture-damaged" and said.cause.text == "x.pcap: truncated at byte 99"
    assert not found(facts(many(20), damage=""))


@pytest.mark.parametrize("part", [0.5, 0.67, 0.8])
@pytest.mark.parametrize("sample", ["loss-siw.pcap.zst", "longcall-rxe.pcap.zst"])
def test_damage_costs_no_statement_about_what_is_before_it(tmp_path: Path, sample: str, part: float) -> None:
    with open_capture(str(SAMPLES / sample)) as capture:
        frames = [batch.frame(number) for batch in capture.batches() for number in batch.rows["number"].tolist()]
    kept = [Frame(frame.time, frame.data, frame.original) for frame in frames[: int(len(frames) * part)]]
    paths = tmp_path / "sound.pcap", tmp_path / "damaged.pcap"
    for path in paths:
        write_pcap(kept, path)
    paths[1].write_bytes(paths[1].read_bytes() + bytes(7))
    printed = [run("diagnose", str(path), "--json").stdout.splitlines() for path in paths]
    sound, damaged = ([(one["kind"], one["text"]) for one in map(json.loads, lines)] for lines in printed)
    assert [one for one in damaged if one[0] != "capture-damaged"] == sound
    assert len(damaged) == len(sound) + 1
    assert sample != "loss-siw.pcap.zst" or part < 0.6 or "read-phase" in dict(sound)
