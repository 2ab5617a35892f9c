"""Other users of Reliable Connection queue pairs, none of which must ever be taken for RPC-over-RDMA."""

from __future__ import annotations

import struct

from .wire import Connection, Wire


def nvme(wire: Wire, commands: int = 3, cm: bool = True) -> Connection:
    """NVMe over RDMA: 64-byte command capsules, data by RDMA from the controller, 16-byte completions."""
    connection = wire.connect(port=4420, cm=cm, client_private=bytes(32), server_private=bytes(32))
    for number in range(commands):
        (memory,) = connection.register(4096)
        command = struct.pack("<BBHI", 2 if number % 2 else 1, 0x40, number, 1) + bytes(16)
        command += struct.pack("<Q", memory.offset) + memory.length.to_bytes(3, "little")
        command += struct.pack("<IB", memory.handle, 0x40)
        connection.send(0, command.ljust(64, b"\0"))
        data = wire.random.randbytes(memory.length)
        if number % 2:
            connection.write(1, memory.handle, memory.offset, data)
        else:
            connection.read(1, memory.handle, memory.offset, data)
        connection.send(1, struct.pack("<QHHHH", 0, number, 1, number, 0))
    return connection


def perftest(wire: Wire, messages: int = 4, cm: bool = False) -> Connection:
    """Bandwidth tests: Sends and Writes of arbitrary contents, one way."""
    connection = wire.connect(port=18515, cm=cm)
    (memory,) = connection.register(65536)
    for number in range(messages):
        data = wire.random.randbytes(wire.random.choice([2, 64, 1500, 5000]))
        if number % 2:
            connection.write(0, memory.handle, memory.offset, data)
        else:
            connection.send(0, data)
    return connection


def rping(wire: Wire, rounds: int = 2, cm: bool = True) -> Connection:
    """rping: each end advertises a buffer in a 16-byte Send; the server reads and writes it."""
    connection = wire.connect(port=7174, cm=cm)
    text = b"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ".ljust(64, b"\0")
    for _ in range(rounds):
        source, sink = connection.register(64, 64)
        for memory, verb in ((source, connection.read), (sink, connection.write)):
            connection.send(0, struct.pack(">QII", memory.offset, memory.handle, memory.length))
            verb(1, memory.handle, memory.offset, text)
            connection.send(1, bytes(16))
    return connection


def zeros(wire: Wire, length: int = 64) -> Connection:
    """Sends of zeros both ways: nothing to recognise."""
    connection = wire.connect(port=5000, cm=False)
    for sender in (0, 1, 0, 1):
        connection.send(sender, bytes(length))
    return connection


def ip_over_infiniband(wire: Wire, packets: int = 4, cm: bool = False) -> Connection:
    """IP over InfiniBand in connected mode: a type, two reserved bytes, an IP packet or ARP (RFC 4755, 4)."""
    connection = wire.connect(port=0x1000000000000405, cm=cm, client_private=bytes(8), server_private=bytes(8))
    for number in range(packets):
        kind, first = ((0x0800, 0x45), (0x86DD, 0x60), (0x0806, 0x00))[number % 3]
        connection.send(number % 2, struct.pack(">HHB", kind, 0, first) + wire.random.randbytes(83))
    return connection
