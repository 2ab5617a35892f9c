"""Wireshark's dissection of RPC messages: every field with its bytes, as packet trees (PDML) from tshark."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Generator, Iterable
from html import unescape

from rdmascope.dissect.verify.rpc_fields import PROTOCOLS, ShownField, ShownMessage

from .errors import CaptureError
from .wireshark import TWO_PASSES, Tshark

_FIELD = re.compile(rb'\s*<field name="([^"]*)"')
_ATTRIBUTE = re.compile(rb' (hide|size|pos|value|unmaskedvalue|show)="([^"]*)"')
_MALFORMED = b"_ws.malformed"


def shown_messages(tshark: Tshark, path: str) -> Generator[ShownMessage, None, None]:
    """The RPC messages in a capture of ONC RPC over TCP, a message a packet at most, in its order.

    Raises CaptureError where tshark fails.
    """
    command = [tshark.path, "-n", TWO_PASSES, "-r", path, "-Y", "rpc", "-T", "pdml", "-J", " ".join(PROTOCOLS)]
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise CaptureError(f"{tshark.path}: {error.strerror}") from None
    with process:
        assert process.stdout is not None
        try:
            yield from _messages(process.stdout)
        except GeneratorExit:
            process.kill()
            raise
    if process.returncode:
        raise CaptureError(f"{tshark} failed with exit status {process.returncode}")


def _messages(lines: Iterable[bytes]) -> Generator[ShownMessage, None, None]:
    """Each field is one line of PDML."""
    found: list[dict[bytes, bytes]] = []
    malformed = False
    for line in lines:
        field = _FIELD.match(line)
        if field is not None:
            given = dict(_ATTRIBUTE.findall(line))
            if given.get(b"hide") != b"yes":
                given[b"name"] = field[1]
                found.append(given)
        elif line.startswith(b"</packet>"):
            message = _message(found, malformed)
            if message is not None:
                yield message
            found, malformed = [], False
        if _MALFORMED in line:
            malformed = True


def _message(found: list[dict[bytes, bytes]], malformed: bool) -> ShownMessage | None:
    xid = next((one for one in found if one[b"name"] == b"rpc.xid"), None)
    kind = next((one for one in found if one[b"name"] == b"rpc.msgtyp"), None)
    if xid is None or kind is None:
        return None
    first = int(xid.get(b"pos", b"0"))
    fields = tuple(
        ShownField(
            one[b"name"].decode(),
            int(one.get(b"pos", b"0")) - first,
            bytes.fromhex((one.get(b"unmaskedvalue") or one.get(b"value") or b"").decode()),
            unescape(one.get(b"show", b"").decode()) if one[b"name"].endswith(b"hash") else "",
        )
        for one in found
        if b"value" in one and one[b"name"] not in (b"num", b"len", b"caplen", b"timestamp", b"filtered")
    )
    return ShownMessage(int(xid[b"value"], 16), kind.get(b"show") == b"1", fields, malformed)
