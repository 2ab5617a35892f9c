"""A client that has one registered buffer for call after call, and a server that fills it as far as there are data."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from playbook import Capture, Wire, call, fetch, nfs3, reply
from playbook.audits import audit_capture, broken_rules
from playbook.iwarp import IwarpCapture, IwarpWire

SHAPES = (4, 2), (1, 0), (1, 1), (100, 100)
"""Bytes asked for, and given."""


def talk(wire: Wire, shapes: tuple[tuple[int, int], ...], xid: int | None = None) -> None:
    connection = wire.connect()
    (buffer,) = connection.register(8192)
    for asked, given in shapes:
        rpc = call(connection, nfs3.read(0, asked), xid=xid, writes=[[buffer._replace(length=asked)]])
        reply(rpc, nfs3.read_reply(bytes(given)))
        rpc = call(connection, nfs3.write(0, bytes(asked)), xid=xid, reads={0: [buffer._replace(length=asked)]})
        fetch(rpc)
        reply(rpc, nfs3.write_reply(asked))


@pytest.mark.parametrize("transport", ["RoCE", "iWARP"])
def test_it_breaks_no_rule(transport: str) -> None:
    for shapes in product(SHAPES, repeat=3):
        wire = Wire(seed=1) if transport == "RoCE" else IwarpWire(seed=1)
        talk(wire, shapes)
        capture = IwarpCapture(wire) if isinstance(wire, IwarpWire) else Capture(wire)
        assert not broken_rules(audit_capture(capture)) - {"V1-HANDLE-PERSISTENT"}, shapes


@pytest.mark.parametrize("transport", ["RoCE", "iWARP"])
def test_nor_where_a_call_a_reply_or_data_are_missing(transport: str) -> None:
    for shapes in ((4, 2), (100, 100), (1, 0)), ((100, 50), (200, 200), (50, 20)), ((1, 0), (4, 4), (100, 100)):
        wire = Wire(seed=1) if transport == "RoCE" else IwarpWire(seed=1)
        talk(wire, shapes)
        whole = IwarpCapture(wire) if isinstance(wire, IwarpWire) else Capture(wire)
        for true in wire.truth:
            for gone in {true.call_operation}, {true.reply_operation}, {*true.operations}:
                kept = [at for at in range(len(whole.frames)) if not gone & {*whole.operations(at + 1)}]
                capture = (
                    IwarpCapture(wire, [whole.segments[at] for at in kept])
                    if isinstance(whole, IwarpCapture) and isinstance(wire, IwarpWire)
                    else Capture(wire, [wire.packets[at] for at in kept])
                )
                assert not broken_rules(audit_capture(capture)) - {"V1-HANDLE-PERSISTENT"}, (shapes, true.index, gone)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("by", [1, 4, 9, 20])
@pytest.mark.parametrize("xid", [None, 7])
def test_nor_where_one_interface_is_shown_behind_the_other(xid: int | None, by: int, late: int) -> None:
    wire = Wire(seed=1)
    talk(wire, SHAPES, xid)
    places = {one.uid: index + by * (one.sender == late) for index, one in enumerate(wire.packets)}
    packets = sorted(wire.packets, key=lambda one: places[one.uid])
    capture = Capture(wire, packets)
    capture.frames = [replace(frame, time=one.time) for frame, one in zip(capture.frames, packets, strict=True)]
    assert not broken_rules(audit_capture(capture)) - {"V1-HANDLE-PERSISTENT"}
