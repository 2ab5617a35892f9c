"""An exchange put together from what was said is the one that passed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from playbook.fabric import Fabric, MemoryVerbs
from playbook.hosts import SECOND, TARGET, hosts, save
from rdmascope.captures import CaptureError, PcapngWriter, open_capture
from rdmascope.captures.live import Device, Live
from rdmascope.captures.peer.endpoint import Call, Chunks, EndpointSettings, service
from rdmascope.captures.peer.probe import record as recording
from rdmascope.captures.peer.probe.checks import CHECKS, run
from rdmascope.captures.peer.probe.record import ASSUMED, BUILT, WRITTEN, Built
from rdmascope.captures.peer.probe.serve import Client, Server, echo
from rdmascope.captures.peer.verbs.interface import PeerAddress
from rdmascope.cli.main import main
from rdmascope.dissect.frames import FrameBatch

LATER = SECOND << 32


def rpcs(path: str) -> list[dict[str, Any]]:
    """What the other commands see in it, but for the times."""
    shown = CliRunner().invoke(main, ["export", path, "--json"])
    if shown.exit_code:
        shown = CliRunner().invoke(main, ["rpcs", path, "--json"])
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    keep = ("xid", "state", "program", "procedure", "call_length", "reply_length", "chunks")
    return [{name: line.get(name) for name in keep} for line in lines if line["type"] == "rpc"]


def talk(client: Client) -> None:
    data = service.pattern(3, 20_000)
    client.call(Call(service.null(1)), LATER)
    client.call(Call(echo(2, data), chunks=Chunks(read=False), largest_reply=21_000), LATER)
    client.call(Call(service.write(3, 0, data), chunks=Chunks(read=True, segments=3)), LATER)
    client.call(Call(service.read(4, 5, 15_000), results=(15_000,)), LATER)
    client.close()


@pytest.mark.parametrize("version", [1, 2])
def test_what_a_client_puts_together_is_what_passed(version: int, tmp_path: Path) -> None:
    devices, _ = hosts()
    built = Built(devices, tmp_path / "built.pcapng", TARGET.port, "because")
    talk(Client(built, TARGET, EndpointSettings(version=version), LATER))
    assert built.finish().endswith("built and not recorded: because")
    made, passed = rpcs(str(tmp_path / "built.pcapng")), rpcs(save(devices, tmp_path / "passed.pcapng"))
    assert len(made) == 4
    assert made == passed
    assert {one["state"] for one in made} == {"complete"}


def test_what_a_server_puts_together_is_what_passed(tmp_path: Path) -> None:
    fabric = Fabric()
    client, host = fabric.host("192.0.2.2"), fabric.host("192.0.2.1")
    built = Built(host, tmp_path / "built.pcapng", TARGET.port, "because")
    server = Server(built, EndpointSettings(version=2))
    host.idle = server.step
    server.listen(PeerAddress("", TARGET.port))
    talk(Client(client, TARGET, EndpointSettings(version=2), LATER))
    built.finish()
    made = rpcs(str(tmp_path / "built.pcapng"))
    assert len(made) == 4
    assert made == rpcs(save(client, tmp_path / "passed.pcapng"))


def test_every_frame_says_that_it_was_not_recorded(tmp_path: Path) -> None:
    devices, _ = hosts()
    path = tmp_path / "built.pcapng"
    built = Built(devices, path, TARGET.port, "because")
    list(run(built, TARGET, SECOND, [CHECKS["long-call"], CHECKS["reply-chunk-used"], CHECKS["read-handle"]]))
    built.finish()
    raw = path.read_bytes()
    with open_capture(path) as capture:
        frames = sum(len(batch.rows) for batch in capture.batches())
    counts = {text: raw.count(text.encode()) for text in (BUILT, ASSUMED, WRITTEN)}
    assert sum(counts.values()) == frames
    assert all(counts.values())


class Watched:
    """A device that is watched: gives what passed on the network since the last time."""

    link_type, snaplen, words = 1, 0, "udp port 4791"

    def __init__(self, devices: MemoryVerbs, folder: Path) -> None:
        self.device = Device("rxe0", "rxe", "eth0")
        self.received = self.dropped = 0
        self._tape = devices.fabric.tape
        self._folder = folder

    def fileno(self) -> int:
        return -1

    def read(self) -> FrameBatch | None:
        frames = self._tape.frames[self.received :]
        self.received += len(frames)
        if not frames:
            return None
        path = self._folder / "since.pcapng"
        with open(path, "wb") as file:
            writer = PcapngWriter(file, 1)
            for frame in frames:
                writer.write(frame.time, frame.data)
        with open_capture(path) as capture:
            (batch,) = capture.batches()
        return batch

    def count(self) -> None:
        self.dropped = 3

    def close(self) -> None: ...


def test_a_device_that_can_be_watched_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices, _ = hosts()
    monkeypatch.setattr(recording, "all_devices", lambda: {"rxe0": ["eth0"]})
    monkeypatch.setattr(recording, "open_live", lambda name, settings: Watched(devices, tmp_path))
    recorded = recording.record(devices, TARGET, tmp_path / "recorded.pcapng")
    talk(Client(recorded, TARGET, EndpointSettings(), LATER))
    recorded.close()
    passed = len(devices.fabric.tape.frames)
    assert recorded.finish().endswith(f"{passed} frames, recorded on rxe0 (eth0), 3 more were lost")
    assert rpcs(str(tmp_path / "recorded.pcapng")) == rpcs(save(devices, tmp_path / "passed.pcapng"))


@pytest.mark.parametrize("there", [["rxe0"], ["rxe0", "mlx5_0"]])
def test_where_it_cannot_be_the_exchange_is_built(
    there: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, settings: object) -> Live:
        raise CaptureError(f"{name}: no permission to capture")

    devices, _ = hosts()
    monkeypatch.setattr(recording, "all_devices", lambda: {name: ["eth0"] for name in there})
    monkeypatch.setattr(recording, "open_live", refuse)
    built = recording.record(devices, TARGET, tmp_path / "built.pcapng")
    assert isinstance(built, Built)
    assert ("no permission" if len(there) == 1 else "several devices") in built.finish()
