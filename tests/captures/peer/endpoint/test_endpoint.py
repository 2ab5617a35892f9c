"""Two endpoints and nothing between them: what one sends, the other receives at once."""

from __future__ import annotations

from collections import deque

import pytest

from rdmascope.captures.peer.endpoint import (
    Answered,
    Call,
    Called,
    Chunks,
    Completed,
    Connected,
    EndpointSettings,
    Event,
    Output,
    Parts,
    RdmaRead,
    RdmaWrite,
    Register,
    Registered,
    Release,
    Released,
    Role,
    RpcRdmaEndpoint,
    Send,
    SendReceived,
    Settled,
    service,
    whole,
)


class Pair:
    """A client and a server whose memory is one dictionary."""

    def __init__(self, client: EndpointSettings | None = None, server: EndpointSettings | None = None) -> None:
        self.ends = RpcRdmaEndpoint(Role.CLIENT, client), RpcRdmaEndpoint(Role.SERVER, server)
        self.memory: dict[int, bytearray] = {}
        self.owned: dict[tuple[int, int], int] = {}
        self.todo: deque[tuple[int, Output]] = deque()
        self.section: list[tuple[int, Output]] = []
        for number, end in enumerate(self.ends):
            self.add(number, end.take(Connected(self.ends[1 - number].private_data)))

    def add(self, number: int, outputs: list[Output]) -> None:
        self.todo.extend((number, output) for output in outputs)

    def tell(self, number: int, event: Event) -> None:
        self.add(number, self.ends[number].take(event))

    def run(self) -> None:
        while self.todo:
            number, output = self.todo.popleft()
            self.section.append((number, output))
            match output:
                case Send(data, invalidate):
                    self.tell(1 - number, SendReceived(data, invalidate))
                case Register(memory, length, data):
                    handle = self.owned[number, memory] = len(self.memory) + 1
                    self.memory[handle] = bytearray(data.ljust(length, b"\0"))
                    self.tell(number, Registered(memory, handle, 0))
                case Release(memory):
                    self.tell(number, Released(memory, bytes(self.memory[self.owned[number, memory]])))
                case RdmaRead(operation, segment):
                    place = slice(segment.offset, segment.offset + segment.length)
                    self.tell(number, Completed(operation, bytes(self.memory[segment.handle][place])))
                case RdmaWrite(segment, data):
                    self.memory[segment.handle][segment.offset : segment.offset + len(data)] = data
                case Called(call, message):
                    self.add(number, self.ends[number].reply(call, service.serve(message)))

    def call(self, number: int, *calls: Call) -> None:
        for call in calls:
            self.add(number, self.ends[number].call(call))
        self.run()

    def answers(self) -> dict[int, bytes]:
        return {output.xid: output.message for _, output in self.section if isinstance(output, Answered)}


def expected(parts: Parts) -> bytes:
    return whole(service.serve(whole(parts)))


def test_a_null_call_is_answered() -> None:
    pair = Pair()
    pair.call(0, Call(service.null(7)))
    assert pair.answers() == {7: expected(service.null(7))}
    assert (0, Settled(1)) in pair.section


CHUNKS = [
    Chunks(),
    Chunks(read=True, write=True),
    Chunks(read=True, write=True, reply=True, segments=3),
    Chunks(zero=True, reply=True),
    Chunks(read=True, zero=True, write=True, segments=2),
]


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("size", [0, 1, 5, 4096, 70001])
def test_payloads_arrive_by_whatever_chunks(size: int, chunks: Chunks) -> None:
    pair = Pair()
    calls = [
        Call(service.read(1, 17, size), 256, (size,), chunks),
        Call(service.write(2, 3, service.pattern(3, size)), 256, (), chunks),
        Call(service.readdirplus(3, size), size + 512, (), chunks),
    ]
    pair.call(0, *calls)
    assert pair.answers() == {call.xid: expected(call.parts) for call in calls}
