"""Whole conversations with headers changed, and lengths and CRCs made right again, so that the deep code is reached.

An input is a program: two bytes choose a stretch of a sample and the size of batches, each eight bytes behind them
change one frame.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator

from playbook.mpa import crc
from playbook.packets import icrc
from playbook.rows import decided
from playbook.wrap import Raw, batch
from rdmascope.dissect.audit.auditor import Auditor, Result
from rdmascope.dissect.frames import FrameBatch
from rdmascope.dissect.layers.fpdus import fpdu_bytes
from rdmascope.dissect.records.audit import finding_records, sum_records, verdict_lines
from rdmascope.dissect.records.connection import transport_record
from rdmascope.dissect.records.rpc import full_fields
from rdmascope.dissect.records.rpc_lines import rpc_records
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

from .target import Target, first_frames

BASES = (
    ("bidir-rxe", 0, 90),
    ("loss-rxe", 0, 120),
    ("longcall-rxe", 0, 120),
    ("rxe-nfs-all", 0, 150),
    ("nconnect-rxe", 0, 100),
    ("ipv6-rxe", 0, 100),
    ("v2-characteristics", 0, 60),
    ("v2-settles", 0, 60),
    ("siw-nfs-all", 0, 150),
    ("loss-siw", 0, 120),
    ("meta-rxe", 300, 400),
)
BATCHES = (1, 7, 40, 1000)
EXTREMES = (
    0,
    1,
    2,
    3,
    0x7F,
    0xFF,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFE,
    0xFFFFFFFF,
    0x40000000,
    0xFFFFFF,
)
EDIT = struct.Struct(">HBBI")
ROCE = b"\x12\xb7"
UDP, TCP = 17, 6


def header_size(frame: bytes) -> int:
    """Bytes before the UDP or TCP header of an Ethernet frame with IPv4 or IPv6; 0 where it has none."""
    if frame[12:14] == b"\x08\0" and len(frame) >= 34:
        return 14 + 4 * (frame[14] & 15)
    return 54 if frame[12:14] == b"\x86\xdd" and len(frame) >= 54 else 0


def protocol(frame: bytes) -> int:
    return frame[23] if frame[12:14] == b"\x08\0" else frame[20]


def split(frame: bytes) -> tuple[bytes, bytes]:
    """What stands before the RoCE transport packet or the TCP payload, and that without its ICRC."""
    at = header_size(frame)
    if at and protocol(frame) == UDP and frame[at + 2 : at + 4] == ROCE:
        return frame[: at + 8], frame[at + 8 : -4]
    if at and protocol(frame) == TCP and len(frame) > at + 13:
        end = at + 4 * (frame[at + 12] >> 4)
        return frame[:end], frame[end:]
    return frame, b""


def joined(head: bytes, body: bytes) -> bytes:
    """The frame with its lengths and its checks made right."""
    at = header_size(head)
    if not at or not body:
        return head + body
    made = bytearray(head)
    roce = protocol(head) == UDP
    size = len(head) - at + len(body) + (4 if roce else 0)
    if head[12:14] == b"\x08\0":
        made[16:18] = (size + at - 14 & 0xFFFF).to_bytes(2, "big")
    else:
        made[18:20] = (size & 0xFFFF).to_bytes(2, "big")
    if not roce:
        return bytes(made) + checked(body)
    made[at + 4 : at + 6] = (size & 0xFFFF).to_bytes(2, "big")
    return bytes(made) + body + (icrc(bytes(made[14:at]), bytes(made[at:]), body) if len(body) >= 12 else bytes(4))


def checked(payload: bytes) -> bytes:
    """The payload of a TCP segment with the CRCs of the FPDUs right that stand in it from its beginning on."""
    made, at = bytearray(payload), 0
    while at + 2 <= len(made):
        end = at + fpdu_bytes(int.from_bytes(made[at : at + 2], "big"))
        if end > len(made):
            break
        made[end - 4 : end] = crc(made[at : end - 4])
        at = end
    return bytes(made)


def edited(frames: list[Raw], frame: int, kind: int, place: int, value: int) -> None:
    """One change."""
    index = frame % len(frames)
    one = frames[index]
    head, body = split(one.data)
    kind %= 13
    if kind <= 3 and 4 * place + 4 <= len(body):
        made = bytearray(body)
        old = int.from_bytes(made[4 * place : 4 * place + 4], "big")
        word = (value, EXTREMES[value % len(EXTREMES)], old + (value % 9) - 4, old ^ 1 << value % 32)[kind]
        made[4 * place : 4 * place + 4] = (word & 0xFFFFFFFF).to_bytes(4, "big")
        body = bytes(made)
    elif kind == 4 and body:
        body = bytes([value & 0xFF]) + body[1:]  # opcode, or the length of an FPDU
    elif kind == 5 and len(body) >= 12:
        psn = int.from_bytes(body[9:12], "big") + (value % 2049) - 1024
        body = body[:9] + (psn & 0xFFFFFF).to_bytes(3, "big") + body[12:]
    elif kind == 6:
        body = body[: max(12, len(body) - value % (len(body) + 1))]
    elif kind == 7:
        body = body + bytes(value % 256)
    elif kind == 8:
        frames[index] = one._replace(data=one.data[: value % (len(one.data) + 1)], original=len(one.data))
        return
    elif kind == 9:
        frames.insert(value % len(frames), one)
        return
    elif kind == 10 and len(frames) > 1:
        frames.insert(value % len(frames), frames.pop(index))
        return
    elif kind == 11 and len(frames) > 1:
        del frames[index : index + 1 + value % 8]
        return
    elif kind == 12:
        frames[index] = one._replace(time=max(0, one.time + (value - 0x80000000) * 1000))
        return
    frames[index] = one._replace(data=joined(head, body))


def conversation(program: bytes) -> tuple[list[Raw], int]:
    """The frames, and how many make a batch."""
    choice = program[:2].ljust(2, b"\0")
    name, first, count = BASES[choice[0] % len(BASES)]
    frames = list(first_frames(name, count)[first:])
    for at in range(2, len(program) - EDIT.size + 1, EDIT.size):
        if frames:
            edited(frames, *EDIT.unpack_from(program, at))
    return frames, BATCHES[choice[1] % len(BATCHES)]


def batches(frames: list[Raw], size: int) -> Iterator[FrameBatch]:
    for at in range(0, len(frames), size):
        yield batch(frames[at : at + size], at + 1)


def analysed(frames: list[Raw], size: int, columns: bool) -> str:
    """All that the analysis says, as JSON."""
    auditor = Auditor(one_by_one=not columns)
    analyzer = Analyzer(listener=auditor.listener)
    said = []
    rpcs = []
    for one in batches(frames, size):
        rpcs += analyzer.feed(one)
    rpcs += analyzer.finish()
    auditor.finish(analyzer.conversations)
    said += rpc_records(RpcTable(rpcs))
    for rpc in rpcs:
        said.append(full_fields(rpc))
        for message in (reassembled_call(rpc), reassembled_reply(rpc)):
            assert message is None or sum(len(piece) for _, piece in message.pieces) <= message.length
    for talk in analyzer.conversations:
        said.append(transport_record(talk, analyzer.health(talk.connection.number)))
    result = Result("it", auditor, len(rpcs))
    said += [*finding_records(result), *map(json.loads, verdict_lines(result)), *sum_records(result)]
    return json.dumps(said)


def run(program: bytes) -> None:
    """Both ways, by columns and one by one, say the same."""
    frames, size = conversation(program)
    if frames:
        # Batches are small here; the columns take them all the same.
        with decided(True):
            by_columns = analysed(frames, size, True)
        with decided(False):
            assert by_columns == analysed(frames, size, False)


def seeds() -> Iterator[bytes]:
    for base in range(len(BASES)):
        for size in range(len(BATCHES)):
            yield bytes([base, size])
        for frame in range(8, 120, 16):
            for kind in range(13):
                yield bytes([base, frame % 4]) + EDIT.pack(frame, kind, 3 + frame % 12, 0x80000003 + kind)


CONVERSATION_TARGETS = {"conversation": Target(run, seeds, 512)}
