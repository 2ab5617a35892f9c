"""Two hosts on an in-memory network: one that probes, one that serves."""

from __future__ import annotations

from pathlib import Path

from playbook.fabric import Fabric, MemoryVerbs
from rdmascope.captures import PcapngWriter
from rdmascope.captures.peer.endpoint import EndpointSettings
from rdmascope.captures.peer.endpoint.endpoint import Fault
from rdmascope.captures.peer.probe.serve import Server
from rdmascope.captures.peer.verbs.interface import PeerAddress

CLIENT, SERVER = "192.0.2.2", "192.0.2.1"
TARGET = PeerAddress(SERVER, 20049)
SECOND = 1_000_000_000


def hosts(
    settings: EndpointSettings | None = None, fault: Fault | None = None, *, iwarp: bool = False, windows: bool = True
) -> tuple[MemoryVerbs, Server]:
    """A client's devices, and a server that runs whenever the client waits."""
    fabric = Fabric(iwarp, windows=windows)
    client, host = fabric.host(CLIENT), fabric.host(SERVER)
    server = Server(host, settings or EndpointSettings(version=2, remote_invalidation=True), fault)
    host.idle = server.step
    server.listen(TARGET)
    return client, server


def save(client: MemoryVerbs, path: Path) -> str:
    """Write what passed between the hosts."""
    with open(path, "wb") as file:
        writer = PcapngWriter(file, 1)
        for frame in client.fabric.tape.frames:
            writer.write(frame.time, frame.data)
    return str(path)
