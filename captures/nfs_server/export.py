"""One export: the files in memory, and the programs that clients reach them by."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from rdmascope.dissect.onc.programs import NFS

from ..synth.endpoint import Parts, service
from .file_system import FileAttributes, FileSystem, FileType
from .mount3 import MountListener
from .nfs3 import Nfs3
from .nfs4 import Nfs4
from .rpc_programs import Programs, answer

MEBIBYTE = 1 << 20
CAPACITY = 64 * MEBIBYTE
PATTERN = b"pattern"
"""A file that is there from the start, of known contents, under a known handle: the probe reads it."""
PATTERN_SIZE = 2 * MEBIBYTE


class Export:
    """An NFS server for calls from anywhere; ``extra`` are other programs to be served along."""

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
        """Answer MOUNT over TCP at an address, too; returns the port.  Raises CaptureError."""
        self._mounts.append(MountListener(self.files, address, port))
        return self._mounts[-1].port

    def close(self) -> None:
        for listener in self._mounts:
            listener.close()
