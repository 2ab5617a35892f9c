"""When a noun is judged: as soon as nothing that the capture may still show can change it.

A capture may show packets up to ``REORDERED`` frames out of order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..rpcrdma.memory import REORDERED
from ..rpcrdma.rpcs import Rpc
from ..transport.connection import Connection
from ..transport.operations import Kind, Operation
from .audit_event import Subject
from .events import RdmaOperation

STRIDE = 32
"""Frames after which what has settled is judged."""
PAUSE = 300_000_000
"""Nanoseconds of silence, after which a capture shows nothing in another order than it happened."""
SILENCE = 10_000_000_000
"""The same, after which no later message is waited for that would show whether one is missing."""


class Settling:
    """The nouns of one connection that wait for their judgement."""

    def __init__(
        self,
        connection: Connection,
        judge: Callable[[Subject], None],
        prepare: Callable[[RdmaOperation], None],
        judge_plain: Callable[[list[tuple[Rpc, bool]]], None],
    ) -> None:
        """``prepare`` completes an RDMA Read or Write just before it is judged.

        ``judge_plain`` is given plain messages, each by its Rpc and whether it is the call.
        """
        self.connection = connection
        self.judge_plain = judge_plain
        self.judge = judge
        self.prepare = prepare
        self.frame = 0
        """The last frame that was reached."""
        self.last_sent = [0, 0]
        """Frame of the last message of either end."""
        self.next = 0
        """The frame from which on there is enough to settle."""
        self._waiting: deque[tuple[int, Subject | None, Rpc | None, bool]] = deque()
        """Frame and noun, or instead of it a plain message."""
        self._operations: deque[tuple[int, RdmaOperation]] = deque()

    def reach(self, operation: Operation) -> None:
        """The capture has come to this operation."""
        if operation.kind is Kind.SEND:
            sender = operation.initiator
            self.last_sent[sender] = max(self.last_sent[sender], operation.last_frame)
        if operation.last_frame > self.frame:
            self.frame = operation.last_frame
            if self.frame >= self.next:
                self.settle()

    def add(self, subject: Subject) -> None:
        self._waiting.append((self.frame, subject, None, False))

    def add_plain(self, rpc: Rpc, is_call: bool) -> None:
        self._waiting.append((self.frame, None, rpc, is_call))

    def add_operation(self, moved: RdmaOperation) -> None:
        self._operations.append((moved.operation.first_frame, moved))

    def idle(self, quiet: int) -> None:
        """The connection was quiet for so many nanoseconds: judge what both ends sent something after; later, all."""
        if quiet >= PAUSE and (self._waiting or self._operations):
            everything = quiet >= SILENCE or bool(self.connection.ended_by)
            self.settle(self.frame + 1 if everything else min(self.last_sent))

    def finish(self) -> None:
        """Nothing follows any more."""
        self.frame += 2 * REORDERED
        self.settle()

    def settle(self, before: int | None = None) -> None:
        """Judge what is older than frame ``before``; by default, what nothing can change any more."""
        self.next = self.frame + STRIDE
        limit = self.frame - REORDERED if before is None else before
        while self._operations and self._operations[0][0] < limit:
            frame, moved = self._operations.popleft()
            self.prepare(moved)
            self.follow(moved, frame)
            self.judge(moved)
        waiting, plain = self._waiting, []
        while waiting and waiting[0][0] < limit:
            _, subject, rpc, is_call = waiting.popleft()
            if subject is not None:
                self.follow(subject, subject.frames[0])
                self.judge(subject)
            elif rpc is not None:
                plain.append((rpc, is_call))
        if plain:
            self.judge_plain(plain)

    def follow(self, subject: Subject, frame: int) -> None:
        """Note whether either end sent another message after that frame."""
        subject.followed = self.last_sent[0] > frame, self.last_sent[1] > frame
