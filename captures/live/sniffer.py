"""Frames of an adapter whose RDMA passes the kernel by: libpcap's RDMA sniffing, in tcpdump's hands.

libpcap takes them from a queue pair with a sniffer flow rule (pcap-rdmasniff.c; mlx5 alone offers that), under the
name of the RDMA device.  A thread reads what tcpdump writes; its counters come on standard error.
"""

from __future__ import annotations

import re
import signal
import subprocess
import threading

from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.link.numbers import ETHERNET

from ..errors import CaptureError
from ..read.open import open_capture
from .device import Device
from .filter import Filter
from .handover import Handover

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
        self._handover = Handover()
        self._said = ""
        command = [program, "-i", device.name, "-U", "--immediate-mode", "--time-stamp-precision=nano", "-w", "-"]
        try:
            self._process = subprocess.Popen(
                [*command, "-s", str(snaplen), self.words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=False
            )
        except OSError as error:
            self._handover.close()
            why = "is not installed" if isinstance(error, FileNotFoundError) else error.strerror
            raise CaptureError(
                f"{device}: RDMA of an adapter is captured by {program}, which {why}: apt install tcpdump"
            ) from None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._taker = threading.Thread(target=self._take, daemon=True)
        self._listener.start()
        self._taker.start()

    def fileno(self) -> int:
        return self._handover.fileno()

    def read(self) -> FrameBatch | None:
        return self._handover.take()

    def refuse(self) -> None:
        """tcpdump goes on until it is closed."""

    def count(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGUSR1)

    def close(self) -> None:
        self._handover.stop()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._taker.join(PATIENCE)
        self._listener.join(PATIENCE)
        self._handover.close()

    def _take(self) -> None:
        """Reads what tcpdump captures, in a thread."""
        assert self._process.stdout is not None
        try:
            with open_capture(f"/dev/fd/{self._process.stdout.fileno()}") as capture:
                for batch in capture.batches():
                    self._handover.put(batch)
        except CaptureError:
            pass  # tcpdump ended; it says why itself
        self._process.wait()
        self._listener.join(PATIENCE)
        reason = self._said or f"tcpdump ended with status {self._process.returncode}"
        self._handover.put(CaptureError(f"{self.device}: {reason}"))

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
