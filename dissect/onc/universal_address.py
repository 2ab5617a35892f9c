"""Addresses as pNFS, rpcbind and callbacks write them (RFC 5665, 5.2.3)."""

from __future__ import annotations


def universal_address(text: str) -> tuple[str, int | None]:
    """Address and port of 'h1.h2.h3.h4.p1.p2' or 'x:x::x.p1.p2' (5.2.3.3 and 5.2.3.4); no port where it is neither."""
    address, *ports = text.rsplit(".", 2)
    if len(ports) == 2 and all(one.isdecimal() and len(one) <= 3 and int(one) < 256 for one in ports):
        return address, int(ports[0]) << 8 | int(ports[1])
    return text, None
