"""Frames of an adapter whose RDMA passes the kernel by: libpcap's RDMA sniffing, in tcpdump's hands.

libpcap takes them from a queue pair with a sniffer flow rule (pcap-rdmasniff.c; mlx5 alone offers that), under the
name of the RDMA device.  A thread reads what tcpdump writes; its counters come on standard error.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
from contextlib import suppress

from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.link.numbers import ETHERNET

from ..errors import CaptureError
from ..open import open_capture
from .device import Device
from .filter import Filter

MAX_WAITING = 16
"""Batches that were read and not asked for; then tcpdump's own buffer has to do."""
PATIENCE = 5
"""Seconds for tcpdump to end."""
COUNTERS = re.compile(r"(\d+) packets? (received by filter|dropped by kernel)")


class Sniffer:
    """An open capture on an adapter."""

    def __init__(self, device: Device, filter: Filter, snaplen: int, program: str = "tcpdump") -> None:
        self.device = device
        self.snaplen = snaplen
        self.words = filter.words
        self.link_type = ETHERNET
        self.received = self.dropped = 0
        self._batches: queue.Queue[FrameBatch | CaptureError] = queue.Queue(MAX_WAITING)
        self._ready, self._signal = os.pipe()
        os.set_blocking(self._ready, False)
        os.set_blocking(self._signal, False)
        self._said = ""
        self._closing = False
        command = [program, "-i", device.name, "-U", "--immediate-mode", "--time-stamp-precision=nano", "-w", "-"]
        try:
            self._process = subprocess.Popen(
                [*command, "-s", str(snaplen), self.words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=False
            )
        except OSError as error:
            os.close(self._ready)
            os.close(self._signal)
            why = "is not installed" if isinstance(error, FileNotFoundError) else error.strerror
            raise CaptureError(
                f"{device}: RDMA of an adapter is captured by {program}, which {why}: apt install tcpdump"
            ) from None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._taker = threading.Thread(target=self._take, daemon=True)
        self._listener.start()
        self._taker.start()

    def fileno(self) -> int:
        return self._ready

    def read(self) -> FrameBatch | None:
        with suppress(BlockingIOError):
            os.read(self._ready, 1 << 16)
        try:
            found = self._batches.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, CaptureError):
            raise found
        if not self._batches.empty():
            self._wake()
        return found

    def count(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)

    def close(self) -> None:
        self._closing = True
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._taker.join(PATIENCE)
        self._listener.join(PATIENCE)
        os.close(self._ready)
        os.close(self._signal)

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # then there is enough in the pipe to wake the reader
            os.write(self._signal, b".")

    def _hand_over(self, found: FrameBatch | CaptureError) -> None:
        while not self._closing:
            try:
                self._batches.put(found, timeout=0.2)
            except queue.Full:
                continue
            self._wake()
            return

    def _take(self) -> None:
        """Reads what tcpdump captures, in a thread."""
        assert self._process.stdout is not None
        try:
            with open_capture(f"/dev/fd/{self._process.stdout.fileno()}") as capture:
                for batch in capture.batches():
                    self._hand_over(batch)
        except CaptureError:
            pass  # tcpdump ended; it says why itself
        self._process.wait()
        self._listener.join(PATIENCE)
        reason = self._said or f"tcpdump ended with status {self._process.returncode}"
        self._hand_over(CaptureError(f"{self.device}: {reason}"))

    def _listen(self) -> None:
        """Reads what tcpdump says, in a thread."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            text = line.decode(errors="replace").strip()
            for number, what in COUNTERS.findall(text):
                if what.startswith("received"):
                    self.received = int(number)
                else:
                    self.dropped = int(number)
            if text and not COUNTERS.search(text) and "listening on" not in text:
                self._said = text.removeprefix(f"tcpdump: {self.device.name}: ").removeprefix("tcpdump: ")
