"""Wireshark's dissection of NFS messages, by the place of every field."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree import ElementTree

PROTOCOLS = ("nfs", "mount", "nfsacl", "portmap", "nlm", "stat")


class PlacedField(NamedTuple):
    name: str
    """Wireshark's: nfs.offset3."""
    offset: int
    """In the RPC message, from the XID on."""
    value: bytes


class PlacedMessage(NamedTuple):
    xid: int
    reply: bool
    fields: tuple[PlacedField, ...]


def placed_messages(capture: str) -> Iterator[PlacedMessage]:
    """Every RPC message of an export, with the fields that have bytes of their own."""
    command = ["tshark", "-2", "-r", capture, "-Y", "rpc", "-T", "pdml", "-J", " ".join(("rpc", *PROTOCOLS))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for _, packet in ElementTree.iterparse(process.stdout):
            if packet.tag != "packet":
                continue
            found = [one for one in packet.iter("field") if one.get("value") and one.get("hide") != "yes"]
            xid = next((one for one in found if one.get("name") == "rpc.xid"), None)
            kind = next((one for one in found if one.get("name") == "rpc.msgtyp"), None)
            if xid is not None and kind is not None:
                first = int(xid.get("pos", "0"))
                fields = tuple(
                    PlacedField(name, int(one.get("pos", "0")) - first, whole_value(one))
                    for one in found
                    if (name := one.get("name", "")).split(".")[0] in PROTOCOLS
                )
                yield PlacedMessage(int(xid.get("value", "0"), 16), kind.get("show") == "1", fields)
            packet.clear()


def whole_value(field: ElementTree.Element) -> bytes:
    """Of a bit in a mask: the bytes of the whole mask."""
    return bytes.fromhex(field.get("unmaskedvalue") or field.get("value") or "")
