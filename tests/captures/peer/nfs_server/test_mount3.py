"""MOUNT over TCP."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from struct import pack, unpack
from typing import Any

import pytest

from rdmascope.captures.errors import CaptureError
from rdmascope.captures.peer import rpc
from rdmascope.captures.peer.nfs_server.export import MAX_CALL, MAX_CONNECTIONS, Export
from rdmascope.captures.peer.rpc import decoded, encoded
from rdmascope.dissect.onc.rpc_header import MOUNT, reply_header
from rdmascope.dissect.onc.shapes.rfc1813 import MOUNT3

NUMBERS = {shape.name: number for number, shape in MOUNT3.items()}


@pytest.fixture
def export() -> Iterator[Export]:
    export = Export(4 << 20)
    yield export
    export.close()


@pytest.fixture
def connection(export: Export) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", export.listen_for_mounts("127.0.0.1", 0)), 10) as opened:
        yield opened


def ask(connection: socket.socket, procedure: str, path: bytes = b"") -> Any:
    """In two fragments."""
    shape = MOUNT3[NUMBERS[procedure]]
    call = rpc.call_head(5, MOUNT, 3, NUMBERS[procedure])
    call += encoded(shape.arguments, {"dirpath": path}) if shape.arguments else b""
    connection.sendall(pack(">I", 10) + call[:10] + pack(">I", 1 << 31 | len(call) - 10) + call[10:])
    (mark,) = unpack(">I", connection.recv(4, socket.MSG_WAITALL))
    data = connection.recv(mark & 0x7FFFFFFF, socket.MSG_WAITALL)
    header = reply_header(data, 0, len(data))
    assert header is not None
    assert header.error == ""
    return decoded(shape.results, data, header.body)[0] if shape.results else None


def test_a_path_becomes_a_handle(connection: socket.socket, export: Export) -> None:
    mounted = ask(connection, "MNT", b"/")
    assert (mounted["fhandle"], mounted["auth_flavors"]) == (export.files.handle(export.files.root), [1, 0])
    assert ask(connection, "MNT", b"/pattern")["fhs_status"] == 20
    assert ask(connection, "MNT", b"/none")["fhs_status"] == 2
    assert ask(connection, "EXPORT")["exports"] == [{"ex_dir": b"/", "ex_groups": []}]
    assert ask(connection, "DUMP") == {"mountlist": []}
    assert ask(connection, "UMNT", b"/") is None
    assert ask(connection, "NULL") is None


def test_what_is_no_call_ends_its_connection_alone(connection: socket.socket, export: Export) -> None:
    connection.sendall(pack(">I", MAX_CALL + 1))
    assert connection.recv(1) == b""


def test_a_port_in_use(connection: socket.socket) -> None:
    with pytest.raises(CaptureError, match="cannot answer MOUNT at TCP port"):
        Export().listen_for_mounts("127.0.0.1", connection.getpeername()[1])


def test_beyond_the_limit_connections_are_closed(connection: socket.socket) -> None:
    place = connection.getpeername()[:2]
    opened = [socket.create_connection(place, 10) for _ in range(MAX_CONNECTIONS + 3)]
    try:
        for one in opened[-3:]:
            assert one.recv(1) == b""
        assert ask(connection, "NULL") is None
        assert ask(opened[0], "NULL") is None
    finally:
        for one in opened:
            one.close()
