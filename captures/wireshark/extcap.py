"""NFS over RDMA as an interface of Wireshark's, which runs this program to capture: the extcap protocol.

https://www.wireshark.org/docs/man-pages/extcap.html.  Wireshark asks for the interfaces, their link type and their
options, and then for packets, in a named pipe.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rdmascope.dissect.named_tuple import NamedTuple

from ..errors import CaptureError, system_errors
from ..live.device import EVERY, RDMA_DEVICES

PREFIX = "nfs-rdma-"
"""Prefix of the names of interfaces."""
FILE = "nfs-rdma-file"
"""Replays a capture."""
LAUNCHER = "rdmascope"
"""Name of the program in Wireshark's folder."""
LINKTYPE = 101
"""Packets begin with an IP header."""
HELP = "https://www.wireshark.org/docs/man-pages/extcap.html"


class ExtcapInterface(NamedTuple):
    """An interface that Wireshark lists."""

    value: str
    device: str
    """What is captured on; '' for a file, or where an option says it."""
    display: str


def interfaces(devices: Path = RDMA_DEVICES) -> list[ExtcapInterface]:
    """One for each RDMA device, one for network interfaces, and one for files."""
    names = [path.name for path in sorted(devices.glob("*"))]
    return [
        *(ExtcapInterface(PREFIX + name, name, f"NFS over RDMA: {name}") for name in names),
        ExtcapInterface(PREFIX + "interface", "", "NFS over RDMA: a network interface"),
        ExtcapInterface(FILE, "", "NFS over RDMA: a capture file"),
    ]


def interface_lines(version: str) -> Iterator[str]:
    """What ``--extcap-interfaces`` asks for."""
    yield f"extcap {{version={version}}}{{display=rdmascope}}{{help={HELP}}}"
    for choice in interfaces():
        yield f"interface {{value={choice.value}}}{{display={escaped(choice.display)}}}"


def link_type_lines() -> Iterator[str]:
    """What ``--extcap-dlts`` asks for."""
    yield f"dlt {{number={LINKTYPE}}}{{name=RAW}}{{display=Raw IP}}"


def option_lines(name: str) -> Iterator[str]:
    """What ``--extcap-config`` asks for: the options of an interface, as Wireshark's dialogue shows them."""
    number = 0

    def option(call: str, display: str, type: str, tooltip: str, *more: str) -> str:
        nonlocal number
        words = f"arg {{number={number}}}{{call={call}}}{{display={display}}}{{type={type}}}{{tooltip={tooltip}}}"
        number += 1
        return words + "".join(f"{{{word}}}" for word in more)

    if name == FILE:
        tooltip = "A capture of RDMA traffic"
        yield option("--file", "Capture file", "fileselect", tooltip, "mustexist=true", "required=true")
    elif name == PREFIX + "interface":
        yield option("--device", "Network interface", "selector", "Where RDMA traffic passes", "required=true")
        for interface in (EVERY, *(known for _, known in socket.if_nameindex())):
            default = "true" if interface == EVERY else "false"
            yield f"value {{arg=0}}{{value={interface}}}{{display={escaped(interface)}}}{{default={default}}}"
    tooltip = "Service port of NFS over RDMA, beside 20049"
    yield option("--port", "Service port", "integer", tooltip, "range=1,65535", "default=20049")
    tooltip = "Only RPCs that match: SQL over the columns of the table rpcs, such as latency > 10ms"
    yield option("--where", "Filter", "string", tooltip, "placeholder=latency > 10ms")


def escaped(text: str) -> str:
    """Without what would end a value."""
    return text.replace("{", "(").replace("}", ")")


def device_of(interface: str, chosen: str | None) -> str:
    """The device that an interface of Wireshark's captures on.  Raises CaptureError for one that is not listed."""
    if interface == PREFIX + "interface":
        return chosen or EVERY
    for choice in interfaces():
        if choice.value == interface and choice.device:
            return choice.device
    known = ", ".join(choice.value for choice in interfaces())
    raise CaptureError(f"{interface}: no such interface; there are {known}")


def open_pipe(path: str) -> BinaryIO:
    """The pipe that Wireshark reads; no file that is there is overwritten.  Raises CaptureError."""
    with system_errors(path):
        if not stat.S_ISFIFO(os.stat(path).st_mode):
            raise CaptureError(f"{path}: --fifo takes a named pipe that Wireshark made, not a file")
        return open(path, "wb")


def personal_folder() -> Path:
    """Where Wireshark looks for a user's own extcap programs: as tshark says, or where the present version looks."""
    tshark = shutil.which("tshark")
    folders: dict[str, str] = {}
    if tshark is not None:
        done = subprocess.run([tshark, "-G", "folders"], capture_output=True, text=True, errors="replace", check=False)
        for line in done.stdout.splitlines():
            name, _, path = line.partition(":")
            folders[name.strip().lower()] = path.strip()
    if own := folders.get("personal extcap path"):  # Since 4.2.
        return Path(own)
    if own := folders.get("personal configuration"):
        return Path(own, "extcap")
    return Path.home() / ".local" / "lib" / "wireshark" / "extcap"


def install(folder: Path) -> Path:
    """Write the launcher that Wireshark runs; gives its path.  Raises CaptureError and OSError."""
    path = folder / LAUNCHER
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m rdmascope extcap "$@"\n'
    folder.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or (path.exists() and "rdmascope extcap" not in path.read_text(errors="replace")):
        raise CaptureError(f"{path}: is there, and is another program")
    path.write_text(text)
    path.chmod(0o755)
    return path
