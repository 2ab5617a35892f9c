"""A connection that sends arbitrary messages, and returns the answers as they were received."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from rdmascope.dissect.layers.private_data import RPCRDMAPrivateData
from rdmascope.dissect.layers.private_data_codes import SIZE_UNIT, find_private_data
from rdmascope.dissect.rpcrdma.conversation import DEFAULT_INLINE
from rdmascope.dissect.rpcrdma.messages import Segment, TransportHeader, WriteChunk
from rdmascope.dissect.rpcrdma.transport_header import decode_header

from ..synth.endpoint import encode_header
from ..verbs.interface import (
    ConnectionLost,
    ConnectionParameters,
    LinkLost,
    MessageReceived,
    PeerAddress,
    RegisteredMemory,
    Verbs,
)

CREDITS = 128
"""Asked for; Linux grants 64."""
SEND_SIZE = 4096


class Outcome(Enum):
    """What became of a message."""

    ANSWER = "answer"
    SILENCE = "silence"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Answer:
    outcome: Outcome
    header: TransportHeader | None = None
    """Of the message received with the same XID."""
    payload: bytes = b""
    """What stands inline behind the header."""
    invalidated: int | None = None
    reason: str = ""
    """Why the connection was lost."""


class RawConnection:
    """A connection of the suite's own making; a check gets a fresh one."""

    def __init__(
        self,
        devices: Verbs,
        target: PeerAddress,
        timeout: int,
        *,
        remote_invalidation: bool = False,
        receive_size: int = SEND_SIZE,
        file: str = "",
    ) -> None:
        """``timeout`` in nanoseconds bounds each wait; raises VerbsError where there is no connection."""
        self.devices = devices
        self.timeout = timeout
        self.remote_invalidation = remote_invalidation
        self.receive_size = receive_size
        self.file = file
        """Path of a file below the server's root that may be read; '' where none is known."""
        own = RPCRDMAPrivateData(
            r=int(remote_invalidation), send_size=SEND_SIZE // SIZE_UNIT - 1, receive_size=receive_size // SIZE_UNIT - 1
        )
        # The Receives are longer than announced, so that a message that is too long can be looked at.
        terms = ConnectionParameters(bytes(own), CREDITS + 8, max(2 * SEND_SIZE, receive_size))
        self.link = devices.connect(target, terms, devices.now() + timeout)
        self.link.settle()
        found = find_private_data(self.link.private_data)
        self.announced = found[0] if found else None
        self.to_server = min(SEND_SIZE, self.announced.receive_size) if self.announced else DEFAULT_INLINE
        """The inline threshold of calls, and of replies."""
        self.to_client = min(receive_size, self.announced.send_size) if self.announced else DEFAULT_INLINE
        self.lost = ""
        self._xid = Random(devices.now()).randrange(1, 1 << 31)
        self._early: dict[int, MessageReceived] = {}

    def xid(self) -> int:
        self._xid += 1
        return self._xid

    def memory(self, length: int, data: bytes = b"") -> RegisteredMemory:
        made = self.link.register(length)
        if data:
            made.store(0, data)
        return made

    def chunk(self, lengths: Sequence[int], data: bytes = b"") -> tuple[list[RegisteredMemory], WriteChunk]:
        """Memory of so many bytes each, as segments; filled with ``data`` in their order."""
        pieces = []
        for length in lengths:
            pieces.append(self.memory(length, data[:length]))
            data = data[length:]
        segments = (Segment(one.handle, length, one.address) for one, length in zip(pieces, lengths, strict=True))
        return pieces, WriteChunk(tuple(segments))

    def send(self, header: TransportHeader | bytes, payload: bytes = b"") -> None:
        """Send; what cannot be sent any more is found out by ``receive``."""
        head = header if isinstance(header, bytes) else encode_header(header)
        try:
            self.link.send(head + payload)
        except LinkLost as error:
            self.lost = self.lost or str(error)

    def receive(self, *xids: int) -> Answer:
        """The first answer under one of the XIDs."""
        deadline = self.devices.now() + self.timeout
        while not (there := [xid for xid in xids if xid in self._early]):
            if self.lost:
                return Answer(Outcome.LOST, reason=self.lost)
            event = self.devices.poll(deadline)
            if event is None:
                return Answer(Outcome.SILENCE)
            if isinstance(event, ConnectionLost) and event.link is self.link:
                self.lost = event.reason
            elif isinstance(event, MessageReceived) and event.link is self.link:
                self._early.setdefault(int.from_bytes(event.data[:4], "big"), event)
        got = self._early.pop(there[0])
        header = decode_header(got.data, 0, len(got.data), len(got.data))
        return Answer(Outcome.ANSWER, header, got.data[header.length :], got.invalidated)

    def ask(self, header: TransportHeader, payload: bytes = b"") -> Answer:
        self.send(header, payload)
        return self.receive(header.xid)

    def close(self) -> None:
        self.link.close()
