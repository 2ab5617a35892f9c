"""What cannot be divided."""

from __future__ import annotations

from rdmascope.dissect.link.addresses import AddressTable
from rdmascope.dissect.link.locate import locate
from rdmascope.dissect.transport.connection import Registry
from rdmascope.dissect.transport.iwarp.observer import IwarpObserver

from ..errors import CaptureError
from ..read.open import open_capture


def carries_iwarp(path: str, ports: frozenset[int]) -> bool:
    """Whether one of the TCP connections in a capture is iWARP, in a pass of its own; ``ports``: of the service."""
    addresses, observer = AddressTable(), IwarpObserver(Registry([]), ports)
    try:
        with open_capture(path) as capture:
            for batch in capture.batches():
                if tcp := locate(batch, addresses).tcp:
                    observer.feed(batch, tcp)
                    if observer.connections:
                        return True
    except CaptureError:  # Which the other pass comes to, too.
        pass
    observer.finish()
    return bool(observer.connections)
