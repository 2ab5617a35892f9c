"""A pair of guests on one wire: boots them, waits for them, ends them, and collects what they left."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from .build import KERNELS, LAB, of_kernel
from .wire import delayed

TRANSPORTS = ("rxe", "siw")
MEMORY = {"client": 640, "server": 768}
"""MiB.  The server's has 256 MiB of exported files in it."""


@dataclass(frozen=True)
class Outcome:
    """What a scenario left behind."""

    scenario: str
    transport: str
    folder: Path
    """Everything that the guests wrote into the shared folder, and their consoles."""
    facts: Mapping[tuple[str, ...], str]
    """What the scripts noted by ``fact WORDS... VALUE``."""
    problem: str | None
    """Why it did not come to its end."""
    seconds: float

    @property
    def at_server(self) -> Path:
        """The other end of a wire that takes its time; ``capture`` is the client's."""
        return self.folder / "server.pcap"

    @property
    def capture(self) -> Path:
        """The wire as a mirror port in the middle would see it."""
        return self.folder / "wire.pcap"

    def those(self, *words: str) -> dict[str, str]:
        """The facts whose words begin with these, by the rest of their words."""
        return {" ".join(key[len(words) :]): value for key, value in self.facts.items() if key[: len(words)] == words}

    def text(self, name: str) -> str:
        """One of the files; empty where there is none."""
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""


def command(
    parts: Path,
    folder: Path,
    wire: Path,
    role: str,
    transport: str,
    between: bool = False,
    kernel: str = KERNELS[0],
) -> list[str]:
    """How to boot one guest; ``between``: something forwards what they send, and both ends of the wire are captured."""
    other = "server" if role == "client" else "client"
    remote = wire / (f"to-{other}" if between else other)
    mac = {"server": "52:54:00:00:00:01", "client": "52:54:00:00:00:02"}[role]
    options = {
        # Emulation works everywhere, also inside virtual machines, and is the same everywhere.
        "accel": ["tcg,thread=multi"],
        "cpu": ["max"],
        "m": [str(MEMORY[role])],
        "display": ["none"],
        "serial": [f"file:{folder / f'{role}.console'}"],
        "kernel": [str(parts / of_kernel("kernel", kernel) / "vmlinuz")],
        "initrd": [str(parts / of_kernel("initramfs", kernel) / "initrd.gz")],
        "append": [
            # A busy host emulates timers so unevenly that the kernel's check of them may fail, and stops a guest for so
            # long that the kernel takes it for a lockup or a stall of its own.
            "console=ttyS0 panic=-1 quiet net.ifnames=0 mitigations=off cryptomgr.notests no_timer_check "
            f"nowatchdog rcupdate.rcu_cpu_stall_suppress=1 role={role} transport={transport}"
        ],
        "drive": [
            f"file={parts / of_kernel('disk', kernel) / 'root.ext4'},if=virtio,format=raw,snapshot=on",
            f"file={parts / 'python' / 'site.ext4'},if=virtio,format=raw,readonly=on",
        ],
        "virtfs": [f"local,path={folder},mount_tag=share,security_model=none"],
        # Datagrams between Unix sockets: the stream kind of QEMU's wire adds 40 ms to every exchange.
        "netdev": [f"dgram,id=wire,local.type=unix,local.path={wire / role},remote.type=unix,remote.path={remote}"],
        "device": [f"virtio-net-pci,netdev=wire,mac={mac},romfile=", "virtio-rng-pci"],
    }
    if role == "client" or between:
        name = "wire.pcap" if role == "client" else "server.pcap"
        options["object"] = [f"filter-dump,id=dump,netdev=wire,file={folder / name},maxlen=70000"]
    words = ["qemu-system-x86_64", "-no-reboot"]
    for name, values in options.items():
        for value in values:
            words += [f"-{name}", value]
    return words


def prepare(parts: Path, folder: Path, scripts: Mapping[str, Path]) -> None:
    """The folder that both guests see as /share, with a scenario's script for each role that has one."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in (LAB / "guest").iterdir():
        shutil.copy(path, folder)
    for role, path in scripts.items():
        shutil.copy(path, folder / f"scenario.{role}.sh")
    shutil.copytree(parts / "project" / "site", folder / "project")


def play(
    parts: Path,
    folder: Path,
    scenario: str,
    transport: str,
    deadline: float,
    wire_delay: float | None = None,
    kernels: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Run a scenario in a prepared folder; ends after ``deadline`` seconds at the latest.

    Args:
        wire_delay: seconds that every frame takes each way; then both ends of the wire are captured.
        kernels: the version that a role boots, where it is not the usual one.
    """
    begun = time.monotonic()
    problem = None
    # Not in the folder: a Unix socket's path has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="lab-") as wire, ExitStack() as stack:
        if wire_delay is not None:
            stack.enter_context(delayed(Path(wire), wire_delay))
        guests = {
            role: subprocess.Popen(
                command(
                    parts, folder, Path(wire), role, transport, wire_delay is not None, kernels.get(role, KERNELS[0])
                ),
                stdin=subprocess.DEVNULL,
                stdout=(folder / f"{role}.qemu").open("w"),
                stderr=subprocess.STDOUT,
            )
            for role in ("server", "client")
        }
        try:
            while running := [role for role, guest in guests.items() if guest.poll() is None]:
                dead = [role for role in guests if role not in running and not (folder / f"{role}.status").exists()]
                if dead or time.monotonic() - begun > deadline:
                    end = f"the {dead[0]} did not come up or broke down" if dead else f"after {deadline:.0f} s"
                    problem = f"{end}, still running: {' and '.join(running)}"
                    break
                time.sleep(0.2)
        finally:
            for guest in guests.values():
                guest.kill()
                guest.wait()
    facts: dict[tuple[str, ...], str] = {}
    for role in guests:
        for line in read(folder / f"{role}.facts").splitlines():
            words, _, value = line.partition("\t")
            facts[tuple(words.split(" "))] = value
        status = read(folder / f"{role}.status").strip()
        if problem is None and status != "0":
            how = f"with status {status}" if status else "without a word"
            problem = f"the {role}'s script ended {how}; see {role}.log"
    return Outcome(scenario, transport, folder, facts, problem, time.monotonic() - begun)


def read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
