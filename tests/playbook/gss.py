"""Calls and replies under RPCSEC_GSS (RFC 2203): a context, and messages with it.

Nothing is computed by Kerberos: tokens and checksums are bytes that look like some.
"""

from __future__ import annotations

from dataclasses import dataclass

from .rpc import Call, Item, Parts, Reply, opaque, u32

DATA, INIT, CONTINUE, DESTROY = range(4)
NONE, INTEGRITY, PRIVACY = 1, 2, 3
CHECKSUM = bytes(range(28))
TOKEN = b"\x60\x82\x02\x06\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02" + bytes(100)


def _bytes(parts: Parts) -> bytes:
    return b"".join(part.padded if isinstance(part, Item) else part for part in parts)


def credential(procedure: int, sequence: int, service: int, handle: bytes, version: int = 1) -> bytes:
    """Credential and verifier of a call (5.2.2, 5.3.1)."""
    body = u32(version, procedure, sequence, service) + opaque(handle)
    verifier = u32(0, 0) if procedure in (INIT, CONTINUE) else u32(6) + opaque(CHECKSUM)
    return u32(6) + opaque(body) + verifier


@dataclass(slots=True)
class Context:
    """One context of a user; counts the sequence numbers."""

    service: int = INTEGRITY
    handle: bytes = b"context 1"
    window: int = 128
    sequence: int = 0

    def create(self, program: int, version: int, procedure: int = INIT) -> tuple[Call, Reply]:
        """NULL with the token, and its reply: complete at once, unless another follows (5.2.2 and 5.2.3)."""
        asked = credential(procedure, 0, self.service, b"" if procedure == INIT else self.handle)
        more = u32(1 if procedure == INIT and self.window == 0 else 0, 0, self.window)
        answer = opaque(self.handle) + more + opaque(TOKEN)
        verifier = u32(6) + opaque(CHECKSUM) if self.window else u32(0, 0)
        return Call(program, version, 0, (opaque(TOKEN),), asked), Reply((answer,), verifier=verifier)

    def destroy(self, program: int, version: int) -> tuple[Call, Reply]:
        self.sequence += 1
        asked = credential(DESTROY, self.sequence, self.service, self.handle)
        return Call(program, version, 0, (), asked), Reply((), verifier=self.verifier())

    def verifier(self) -> bytes:
        return u32(6) + opaque(CHECKSUM)

    def call(self, message: Call) -> Call:
        """The call with the context, its arguments as the service wraps them (5.3.2)."""
        self.sequence += 1
        asked = credential(DATA, self.sequence, self.service, self.handle)
        return Call(message.program, message.version, message.procedure, self._wrapped(message.parts), asked)

    def reply(self, message: Reply, sequence: int | None = None) -> Reply:
        number = self.sequence if sequence is None else sequence
        return Reply(self._wrapped(message.parts, number), message.accept, message.denied, self.verifier())

    def _wrapped(self, parts: Parts, sequence: int | None = None) -> Parts:
        if self.service == NONE:
            return parts
        body = u32(self.sequence if sequence is None else sequence) + _bytes(parts)
        if self.service == INTEGRITY:
            return (opaque(body) + opaque(CHECKSUM),)
        return (opaque(bytes(byte ^ 0x5A for byte in body) + CHECKSUM),)
