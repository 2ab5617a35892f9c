"""The NFS server of the probe: one export with files in memory, which clients reach by NFSv3, NFSv4 and MOUNT."""

from __future__ import annotations

import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from struct import pack, unpack
from typing import Any

from rdmascope.dissect.layers.oncrpc_codes import AUTH_NONE, AUTH_SYS, LAST_FRAGMENT
from rdmascope.dissect.onc.rpc_header import MOUNT, NFS
from rdmascope.dissect.onc.shapes.rfc1813 import MOUNT3

from ...errors import CaptureError
from ..endpoint import Parts, service, whole
from ..rpc import Caller, Programs, RpcProcedure, RpcProgram, answer
from .file_system import FileAttributes, FileSystem, FileType, NfsError, NfsStatus
from .nfs3 import Nfs3
from .nfs4 import Nfs4

MAX_CALL = 65536
"""The most bytes of a call over TCP; a longer call ends its connection."""
IDLE = 60
"""Seconds after which a connection without calls is closed."""
MAX_CONNECTIONS = 64
"""The most connections at a time; each has a thread."""
EXPORT = "/"


class MountService:
    """The procedures of MOUNT version 3 (RFC 1813, appendix I); clients may mount any directory of the export."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files
        run: dict[str, Callable[[Any, Caller], Any]] = {
            **dict.fromkeys(("DUMP", "UMNT", "UMNTALL"), lambda arguments, caller: None),
            "MNT": self._mnt,
            "EXPORT": lambda arguments, caller: {"exports": [{"ex_dir": EXPORT.encode()}]},
        }
        every = {number: RpcProcedure(shape, run[shape.name]) for number, shape in MOUNT3.items() if number}
        self.program = RpcProgram(every, {})

    def _mnt(self, arguments: Any, caller: Caller) -> Any:
        inode = self.files.root
        try:
            for name in arguments["dirpath"].split(b"/"):
                inode = self.files.lookup(inode, name) if name else inode
        except NfsError as error:
            return {"fhs_status": error.status}
        if inode.kind is not FileType.DIRECTORY:
            return {"fhs_status": NfsStatus.NOTDIR}
        return {"fhs_status": 0, "fhandle": self.files.handle(inode), "auth_flavors": [AUTH_SYS, AUTH_NONE]}


class MountListener:
    """Answers MOUNT calls that come over TCP, in threads of its own.  Raises CaptureError where it cannot listen."""

    def __init__(self, files: FileSystem, address: str, port: int) -> None:
        programs = {MOUNT: {3: MountService(files).program}}

        class MountConnection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.settimeout(IDLE)
                with suppress(OSError, EOFError):
                    while True:
                        reply = whole(answer(programs, _record(self.request)))
                        self.request.sendall(pack(">I", LAST_FRAGMENT | len(reply)) + reply)

        try:
            self._server = _TcpServer((address, port), MountConnection)
        except OSError as error:
            raise CaptureError(f"cannot answer MOUNT at TCP port {port}: {error.strerror or error}") from None
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _TcpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, place: tuple[str, int], handler: type[socketserver.BaseRequestHandler]) -> None:
        self._room = threading.Semaphore(MAX_CONNECTIONS)
        address, port = place
        if not address and socket.has_dualstack_ipv6():
            address = "::"
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for another connection; beyond ``MAX_CONNECTIONS`` the server closes it at once."""
        return self._room.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def server_bind(self) -> None:
        if self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _record(connection: Any) -> bytes:
    """The next RPC message, put together from its fragments (RFC 5531, 11).

    Raises EOFError where the connection ends, and for a message of more than ``MAX_CALL`` bytes.
    """
    message = b""
    while True:
        (mark,) = unpack(">I", _exactly(connection, 4))
        size = mark & ~LAST_FRAGMENT
        if len(message) + size > MAX_CALL:
            raise EOFError
        message += _exactly(connection, size)
        if mark & LAST_FRAGMENT:
            return message


def _exactly(connection: Any, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


MEBIBYTE = 1 << 20
CAPACITY = 64 * MEBIBYTE
PATTERN = b"pattern"
"""Name of the file that the server has from the start, with known contents and a known handle, for the probe to
read."""
PATTERN_SIZE = 2 * MEBIBYTE


class Export:
    """An NFS server, which answers calls whatever transport they came by.

    ``capacity``: bytes that the files may take; ``extra``: further programs to serve; ``instance``: what tells the file
    handles of this run from those of others, by default random; ``now``: gives nanoseconds since 1970.
    """

    def __init__(
        self,
        capacity: int = CAPACITY,
        extra: Programs | None = None,
        instance: bytes = b"",
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self.files = FileSystem(capacity, instance or os.urandom(8), now)
        self._mounts: list[MountListener] = []
        known = self.files.make(self.files.root, PATTERN, FileType.REGULAR, FileAttributes(mode=0o444))
        self.files.write(known, 0, service.pattern(0, min(PATTERN_SIZE, self.files.free)))
        self.files.alias(service.HANDLE, known)
        self.programs: Programs = {NFS: {3: Nfs3(self.files).program, 4: Nfs4(self.files).program}, **(extra or {})}

    def answer(self, message: bytes) -> Parts:
        """The reply to a whole RPC call."""
        return answer(self.programs, message)

    def listen_for_mounts(self, address: str, port: int) -> int:
        """Also answer MOUNT over TCP at this address; returns the port, chosen by the system for 0.  Raises
        CaptureError."""
        self._mounts.append(MountListener(self.files, address, port))
        return self._mounts[-1].port

    def close(self) -> None:
        for listener in self._mounts:
            listener.close()
