"""Frames of another host: its tcpdump, over ssh."""

from __future__ import annotations

import shlex
import subprocess
import threading

from rdmascope.dissect.frames import FrameBatch

from ..errors import CaptureError
from .device import Device
from .filter import Filter
from .stream import STREAM, StreamEnded, StreamSource

PATIENCE = 5
"""Seconds for ssh to end."""


class RemoteSource:
    """tcpdump on HOST, captured on DEVICE there; its clock is that host's."""

    def __init__(self, host: str, name: str, filter: Filter, snaplen: int, program: str = "ssh") -> None:
        """Waits for the first bytes.  Raises CaptureError with what ssh or tcpdump says."""
        if host.startswith("-"):
            raise CaptureError(f"{host}: is no host")
        self.words = filter.words
        self.received = self.dropped = 0
        """What was dropped, only the tcpdump there knows."""
        self._said: list[str] = []
        tcpdump = ["tcpdump", "-i", name, "-U", "--immediate-mode", "-s", str(snaplen), "-w", "-", self.words]
        # What runs there is one line for a shell.
        command = [program, "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", host, shlex.join(tcpdump)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            why = "is not installed" if isinstance(error, FileNotFoundError) else error.strerror
            raise CaptureError(f"{host}: {program} {why}") from None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        assert self._process.stdout is not None
        try:
            self._stream = StreamSource(f"/dev/fd/{self._process.stdout.fileno()}")
        except CaptureError as error:
            self._end()
            raise CaptureError(f"{host}: {self._reason() or error}") from None
        self.device = Device(f"{host}:{name}", STREAM)
        self.link_type, self.snaplen = self._stream.link_type, self._stream.snaplen

    def fileno(self) -> int:
        return self._stream.fileno()

    def read(self) -> FrameBatch | None:
        try:
            found = self._stream.read()
        except StreamEnded:
            self._end()
            status = self._process.returncode
            if status:
                raise CaptureError(f"{self.device}: {self._reason() or f'ssh ended with status {status}'}") from None
            raise StreamEnded(f"{self.device}: the capture there ended") from None

        self.received = self._stream.received
        return found

    def refuse(self) -> None:
        """The tcpdump there goes on until it is closed."""

    def count(self) -> None:
        """What the kernel there dropped, only its tcpdump says, at its end."""

    def close(self) -> None:
        self._stream.close()
        self._end()

    def _reason(self) -> str:
        return next((line for line in reversed(self._said) if line), "")

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(PATIENCE)

    def _listen(self) -> None:
        """Reads what ssh and tcpdump say, in a thread."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            text = line.decode(errors="replace").strip()
            if text and "listening on" not in text and "packets " not in text:
                self._said = [*self._said[-3:], text.removeprefix("tcpdump: ")]
