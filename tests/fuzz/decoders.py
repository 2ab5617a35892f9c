"""Each decoder by itself: any bytes give what can be read, never an exception, and two decoders agree."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
from rich.console import Console, Group
from scapy.packet import Packet

from playbook.mpa import fpdu, tagged, untagged
from playbook.samples import sample_frames
from rdmascope.cli.views.rpc import layer_trees
from rdmascope.dissect import layers
from rdmascope.dissect.frames import Frame
from rdmascope.dissect.layers.fpdus import remove_markers, split_fpdus
from rdmascope.dissect.link.numbers import COOKED, ERF, ETHERNET, INFINIBAND, RAW_IP
from rdmascope.dissect.onc import xdr
from rdmascope.dissect.onc.compound import (
    OperationSequences,
    compound_call,
    compound_calls,
    compound_replies,
    compound_reply,
)
from rdmascope.dissect.onc.file_operations import FileMessages, file_events, operations_of
from rdmascope.dissect.onc.rpc_header import NFS, NFS_CALLBACK, call_head, call_header, reply_header, results_at
from rdmascope.dissect.onc.shapes.decode_cache import flat_fields
from rdmascope.dissect.onc.shapes.messages import call_tree, reply_tree
from rdmascope.dissect.onc.shapes.registry import PROGRAMS
from rdmascope.dissect.onc.shapes.rfc5531 import RPC_CALL, RPC_REPLY
from rdmascope.dissect.onc.shapes.skips import skip_of
from rdmascope.dissect.onc.shapes.types import SparseBytes, XdrType, decode
from rdmascope.dissect.onc.summary import call_summary
from rdmascope.dissect.records.frame_layers import frame_fields
from rdmascope.dissect.records.rpc import node_json
from rdmascope.dissect.rpcrdma.transport_header import decode_header

from .target import SampleMessage, Target, sample_messages, sends

LAYERS: list[Any] = [getattr(layers, name) for name in sorted(layers.__all__)]
LINK_TYPES = (ETHERNET, ERF, INFINIBAND, *COOKED, *RAW_IP, 9999)
MAX_NODES = 2000

SHAPES: list[XdrType] = [RPC_CALL, RPC_REPLY]
CALLED: list[tuple[int, int, int]] = []
for (program, version), procedures in sorted(PROGRAMS.items()):
    for number, procedure in sorted(procedures.items()):
        CALLED.append((program, version, number))
        SHAPES += [shape for shape in (procedure.arguments, procedure.results) if shape is not None]


def choice(data: bytes, count: int) -> tuple[int, bytes]:
    """Two bytes choose one of ``count``; the rest."""
    return int.from_bytes(data[:2], "big") % count, data[2:]


def layer(data: bytes) -> None:
    which, wire = choice(data, len(LAYERS))
    packet = LAYERS[which](wire)
    assert isinstance(packet, Packet)
    assert packet.show(dump=True) and packet.summary() and repr(packet)
    bytes(packet)


def layer_seeds() -> Iterator[bytes]:
    for number, one in enumerate(LAYERS):
        yield number.to_bytes(2, "big") + bytes(one())


def frame(data: bytes) -> None:
    """Its layers as trees and as JSON; the bytes before it choose the link type."""
    which, wire = choice(data, 2 * len(LINK_TYPES))
    link_type, rpcrdma = LINK_TYPES[which // 2], which % 2 == 1
    console = Console(file=io.StringIO(), width=100)
    console.print(Group(*layer_trees(Frame(1, 0, len(wire), link_type, 0, wire), rpcrdma)))
    json.dumps(frame_fields(wire, link_type, rpcrdma))


def frame_seeds() -> Iterator[bytes]:
    for wire, link_type in sample_frames():
        yield (2 * LINK_TYPES.index(link_type) + 1).to_bytes(2, "big") + wire


def transport_header(data: bytes) -> None:
    """Truncated by the capture or not, as the first byte says."""
    beyond, wire = (data[0], data[1:]) if data else (0, b"")
    header = decode_header(wire, 0, len(wire), len(wire) + beyond)
    assert 0 <= header.length <= len(wire)
    assert sum(len(chunk.segments) for chunk in header.writes) <= len(wire) // 16
    moved = decode_header(b"abc" + wire, 3, 3 + len(wire), len(wire) + beyond)  # at any address
    assert asdict(moved) == asdict(header)


def transport_header_seeds() -> Iterator[bytes]:
    for one in sends():
        yield b"\0" + one


def shape(data: bytes) -> None:
    """The tree of a declared type; and the skip of it, which must end where the tree does."""
    which, wire = choice(data, len(SHAPES))
    type = SHAPES[which]
    found = decode(type, "it", SparseBytes([(0, wire)], len(wire)), 0, len(wire), MAX_NODES)
    assert 0 <= found.end <= len(wire)
    count = 0
    for node in found.root.walk():
        count += 1
        assert 0 <= node.offset <= node.offset + node.length <= len(wire)
    assert count <= MAX_NODES + 200
    json.dumps(node_json(found.root))
    if not found.problem:
        end = xdr.as_skip(skip_of(type))(memoryview(wire + bytes(4)), 0)
        assert end in (found.end, found.end + -found.end % 4), (end, found.end)


def shape_seeds() -> Iterator[bytes]:
    for one in sample_messages():
        yield (0 if one.is_call else 1).to_bytes(2, "big") + one.data
    for number in range(len(SHAPES)):
        yield number.to_bytes(2, "big") + bytes(64)


def message(data: bytes) -> None:
    """An RPC message: its header by both decoders, its tree, its flat fields, its line."""
    which, wire = choice(data, len(CALLED))
    sparse = SparseBytes([(0, wire)], len(wire))
    whole = call_header(wire, 0, len(wire))
    call_head(wire, 0, len(wire))
    call_summary(wire, 0, len(wire))
    call = call_tree(sparse, MAX_NODES)
    reply_header(wire, 0, len(wire))
    reply = reply_tree(sparse, *CALLED[which], None, MAX_NODES)
    for tree in (call, reply):
        for root in (tree.header, tree.body, tree.rest):
            if root is not None:
                json.dumps(node_json(root))
    if whole is not None:
        program = call.header.child("prog")
        assert program is None or program.value is None or program.value == whole.program
    flat_fields(call.body, reply.body, call.header)


def message_seeds() -> Iterator[bytes]:
    for one in sample_messages():
        if one.called in CALLED:
            yield CALLED.index(one.called).to_bytes(2, "big") + one.data


def compound(data: bytes) -> None:
    """The walk over a COMPOUND, one by one, and that over many at once."""
    kind, body = (data[0], data[1:]) if data else (0, b"")
    callback, results = bool(kind & 1), bool(kind & 2)
    pieces = [body[at : at + 256] for at in range(0, len(body), 256)] if kind & 4 else [body]
    lengths = np.array([len(one) for one in pieces], np.int64)
    ends = lengths.cumsum()
    joined = np.frombuffer(body, np.uint8)
    known = OperationSequences()
    if results:
        replies = compound_replies(joined, ends - lengths, ends, known, callback)
        for one, walked, status, sequence in zip(pieces, *(column.tolist() for column in replies), strict=True):
            right = compound_reply(one, 0, len(one), callback=callback)
            assert walked == (right.complete and not right.problem and len(right.results) <= 64)
            if walked:
                named = tuple(number for number, _ in right.results)
                assert (status, known.sequences[sequence]) == (right.status, named)
    else:
        calls = compound_calls(joined, ends - lengths, ends, known, callback)
        for one, walked, minor, sequence, _ in zip(pieces, *(column.tolist() for column in calls), strict=True):
            call = compound_call(one, 0, len(one), callback=callback)
            assert walked == (call.complete and not call.problem and len(call.operations) <= 64)
            if walked:
                assert (minor, known.sequences[sequence]) == (call.minor_version, call.operations)


def bodies() -> Iterator[tuple[SampleMessage, bytes]]:
    for one in sample_messages():
        if one.called[:2] not in ((NFS, 4), (NFS_CALLBACK, 1)) or one.called[2] != 1:
            continue
        if one.is_call:
            head = call_head(one.data, 0, len(one.data))
            at = head[4] if head is not None else -1
        else:
            at = results_at(one.data, None)
        if at >= 0:
            yield one, one.data[at:]


def compound_seeds() -> Iterator[bytes]:
    for one, body in bodies():
        yield bytes([one.backward | (not one.is_call) << 1]) + body


def files(data: bytes) -> None:
    """What a call and its reply say of files and names; the first two bytes say where the reply begins."""
    size, both = choice(data, 4096)
    call, reply = both[:size], both[size:]
    file_events(call, reply)
    operations_of(FileMessages(call, reply))
    file_events(call, None)
    operations_of(FileMessages(None, reply))


def files_seeds() -> Iterator[bytes]:
    messages = sample_messages()
    for one, other in pairwise(messages):
        if one.is_call and not other.is_call:
            yield len(one.data).to_bytes(2, "big") + one.data + other.data


def fpdus(data: bytes) -> None:
    """A stream of FPDUs, with markers and without."""
    position, stream = choice(data, 1024)
    rest, markers = remove_markers(stream, position)
    assert len(rest) + 4 * len(markers) >= len(stream) - 6  # one may be truncated at either end
    for framed in (*split_fpdus(stream), *split_fpdus(stream, position)):
        assert framed is not None


def fpdu_seeds() -> Iterator[bytes]:
    for position in (None, 0, 400):
        stream = b"".join(fpdu(untagged(3, 0, one, 0, True) + bytes(40 * one), position) for one in range(1, 4))
        yield (position or 0).to_bytes(2, "big") + stream + fpdu(tagged(0, 1, 2, True) + bytes(8))


DECODERS: dict[str, Target] = {
    name: Target(run, seeds)
    for name, run, seeds in (
        ("layer", layer, layer_seeds),
        ("frame", frame, frame_seeds),
        ("transport-header", transport_header, transport_header_seeds),
        ("shape", shape, shape_seeds),
        ("message", message, message_seeds),
        ("compound", compound, compound_seeds),
        ("files", files, files_seeds),
        ("fpdus", fpdus, fpdu_seeds),
    )
}
