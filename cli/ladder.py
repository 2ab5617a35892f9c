"""The packets of one RPC, as steps between the two endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from rdmascope.dissect.connection import Connection
from rdmascope.dissect.layers import opcodes
from rdmascope.dissect.messages import Message, procedure_name
from rdmascope.dissect.network import AddressTable, locate
from rdmascope.dissect.operations import Kind
from rdmascope.dissect.packets import PacketBatch, decode
from rdmascope.dissect.rpcs import Rpc

from .reading import Reading
from .units import size

OWN, ACKNOWLEDGEMENT, OTHER = "own", "acknowledgement", "other"

LINGER = 1000
"""Packets of the connection after the reply among which its acknowledgement is looked for."""


class Step(NamedTuple):
    frame: int
    time: int
    sender: int
    """Endpoint of the connection."""
    family: str
    """'SEND', 'RDMA WRITE', 'RDMA READ Request', 'Acknowledge', …: packets that may stand for each other."""
    label: str
    length: int
    """Payload bytes."""
    kind: str
    """OWN: carries bytes of the RPC or asks for them; OTHER: of another RPC."""


def frames_of(rpc: Rpc) -> set[int]:
    """Frames that carried some of the RPC: its Sends, and the Reads and Writes on its chunks."""
    frames: set[int] = set()
    operations = [message.operation for message in (rpc.call, rpc.reply) if message]
    operations += [one for chunk in rpc.chunks for use in chunk.segments for one in use.operations]
    for operation in operations:
        frames |= {operation.first_frame, operation.last_frame}
        for _, _, rows in operation.payload.runs:
            frames.update(rows["frame"].tolist())
    return frames


def packet_batches(reading: Reading) -> Iterator[tuple[PacketBatch, AddressTable]]:
    """Columns, without RPCs."""
    addresses = AddressTable()
    for batch in reading.batches():
        yield decode(batch, locate(batch, addresses)), addresses


def steps(rpc: Rpc, batches: Iterable[tuple[PacketBatch, AddressTable]]) -> list[Step]:
    """The connection's packets from the first frame of the RPC to the acknowledgement of its reply."""
    if rpc.connection.transport == "iWARP":
        return _segment_steps(rpc)
    own = frames_of(rpc)
    if not own:
        return []
    first, last = min(own), max(own)
    messages = {m.operation.last_frame: m for m in (rpc.call, rpc.reply) if m}
    replier = rpc.reply.operation.initiator if rpc.reply else None
    found: list[Step] = []
    lingered = 0
    for packets, addresses in batches:
        rows = packets.rows
        if not len(rows) or int(rows["frame"][-1]) < first:
            continue
        sender = _senders(packets, addresses, rpc.connection)
        wanted = np.flatnonzero((sender >= 0) & (rows["frame"] >= first))
        for at in wanted.tolist():
            row = rows[at]
            frame, opcode, end = int(row["frame"]), int(row["opcode"]), int(sender[at])
            acknowledges = bool(opcodes.IS_ACKNOWLEDGE[opcode])
            if frame > last:
                lingered += 1
                if replier is None or lingered > LINGER:
                    return found
                if not acknowledges or end == replier:
                    continue
            kind = OWN if frame in own else ACKNOWLEDGEMENT if acknowledges else OTHER
            label = _label(opcode, row, messages.get(frame))
            found.append(Step(frame, int(row["time"]), end, _family(opcode), label, int(row["length"]), kind))
            if frame > last:
                return found
    return found


_IWARP_NAMES = {
    Kind.SEND: "RDMAP Send",
    Kind.WRITE: "RDMA Write",
    Kind.READ: "RDMA Read Response",
    Kind.ATOMIC: "Atomic",
}


def _segment_steps(rpc: Rpc) -> list[Step]:
    """iWARP: the stretches of TCP payload that carried the RPC; TCP's own acknowledgements are not among them."""
    messages = [message for message in (rpc.call, rpc.reply) if message]
    procedures = {
        message.operation: procedure_name(message.header.version, message.header.procedure) for message in messages
    }
    moved = {one: None for chunk in rpc.chunks for use in chunk.segments for one in use.operations}
    found: list[Step] = []
    for operation in [*procedures, *moved]:
        sender = operation.initiator
        if operation.kind is Kind.READ:
            label = f"RDMA Read Request {size(operation.length)}, STag {operation.handle:#010x}"
            found.append(Step(operation.first_frame, operation.first_time, sender, "RDMA Read Request", label, 0, OWN))
            sender = 1 - sender
        name = _IWARP_NAMES[operation.kind]
        procedure = procedures.get(operation)
        for _, _, rows in operation.payload.runs:
            for frame, time, length in zip(
                rows["frame"].tolist(), rows["time"].tolist(), rows["length"].tolist(), strict=True
            ):
                label = f"{name} {size(length)}"
                if procedure:
                    label += f", {procedure}"
                found.append(Step(frame, time, sender, name, label, length, OWN))
    return sorted(found, key=lambda step: (step.frame, step.time))


def _senders(packets: PacketBatch, addresses: AddressTable, connection: Connection) -> np.ndarray:
    """Which endpoint sent each packet: 0, 1, or -1 where it is not the connection's."""
    rows = packets.rows
    sender = np.full(len(rows), -1, np.int8)
    names = {addresses.name(number): number for number in range(len(addresses))}
    ends = [(names.get(end.address, -1), end.qpn) for end in connection.endpoints]
    for end in (0, 1):
        address, qpn = ends[1 - end]
        sender[(rows["dest_qp"] == qpn) & (rows["destination"] == address) & (rows["source"] == ends[end][0])] = end
    return sender


def _family(opcode: int) -> str:
    name = opcodes.opcode_name(opcode).removeprefix("RC ")
    return re.split(" (?:First|Middle|Last|Only)", name)[0]


def _label(opcode: int, row: np.void, message: Message | None) -> str:
    name = opcodes.opcode_name(opcode).removeprefix("RC ")
    if opcodes.HAS_RETH[opcode]:
        return f"{name} {size(int(row['dma_length']))}, R_key {int(row['r_key']):#010x}"
    if opcodes.IS_ACKNOWLEDGE[opcode]:
        return opcodes.syndrome_name(int(row["syndrome"]))
    length = int(row["length"])
    if message is not None and message.header.procedure is not None:
        return f"{name} {size(length)}, {procedure_name(message.header.version, message.header.procedure)}"
    return f"{name} {size(length)}"
