"""Frames of another host: its tcpdump, over ssh."""

from __future__ import annotations

import shlex
import subprocess
import threading
from contextlib import suppress

from rdmascope.dissect.frames import FrameBatch

from ..errors import CaptureError
from .device import Device
from .filter import Filter
from .sniffer import COUNTERS
from .stream import STREAM, StreamEnded, StreamSource

PATIENCE = 5
"""Seconds for ssh to end."""
THERE = (
    "{{ {tcpdump} </dev/null 3<&- & p=$!;"
    " {{ while read l <&3; do kill -USR1 $p; done; kill $p; }} >/dev/null 2>&1 & w=$!;"
    " wait $p; s=$?; while kill -0 $p; do wait $p; s=$?; done 2>/dev/null; kill $w 2>/dev/null; exit $s; }} 3<&0"
)
"""What a shell does on the other host: for each line on its standard input tcpdump says what it counted, and with the
end of that tcpdump ends, also where ssh or this process was killed."""


class RemoteSource:
    """tcpdump on HOST, captured on DEVICE there; its clock is that host's."""

    def __init__(self, host: str, name: str, filter: Filter, snaplen: int, buffer: int, program: str = "ssh") -> None:
        """Waits for the first bytes; ``buffer``: bytes that the kernel there may keep before it drops.

        Raises CaptureError with what ssh or tcpdump says.
        """
        if host.startswith("-"):
            raise CaptureError(f"{host}: is no host")
        self.words = filter.words
        self.received = 0
        self.dropped: int | None = None
        """Until the tcpdump there says so."""
        self._counted = self._closed = False
        self._said: list[str] = []
        # Not in immediate mode, in which the kernel wakes tcpdump for every frame, and drops under load.
        tcpdump = ["tcpdump", "-i", name, "-U", "-B", str(max(1, buffer >> 10)), "-s", str(snaplen), "-w", "-"]
        there = THERE.format(tcpdump=shlex.join([*tcpdump, self.words]))
        # What runs there is one line for a shell, whichever it is.
        line = shlex.join(["sh", "-c", there])
        command = [program, "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", host, line]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
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
            if status and not self._closed:
                raise CaptureError(f"{self.device}: {self._reason() or f'ssh ended with status {status}'}") from None
            raise StreamEnded(f"{self.device}: the capture there ended") from None

        if not self._counted:
            self.received = self._stream.received
        return found

    def refuse(self) -> None:
        """End the tcpdump there; what it says last is how many frames were dropped."""
        self._closed = True
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def count(self) -> None:
        """Have the tcpdump there say what it counted; that comes later."""
        assert self._process.stdin is not None
        if not self._closed:
            with suppress(OSError):
                self._process.stdin.write(b"\n")
                self._process.stdin.flush()

    def close(self) -> None:
        self._stream.close()
        self._end()

    def _reason(self) -> str:
        return next((line for line in reversed(self._said) if line), "")

    def _end(self) -> None:
        self.refuse()
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
            for number, what in COUNTERS.findall(text):
                if what.startswith("received"):
                    self._counted, self.received = True, int(number)
                else:
                    self.dropped = int(number)
            if text and "listening on" not in text and "packets " not in text:
                self._said = [*self._said[-3:], text.removeprefix("tcpdump: ")]
