"""What a thread reads comes out in order, wakes the reader, and waits where nothing is taken."""

from __future__ import annotations

import select
import threading

import pytest

from playbook import Wire, call, nfs3, reply
from playbook.capture import Capture, frame_batches
from rdmascope.captures.errors import CaptureError
from rdmascope.captures.live.device import MAX_WAITING, Handover


def readable(handover: Handover, timeout: float = 0) -> bool:
    return bool(select.select([handover], [], [], timeout)[0])


def test_batches_come_in_order_and_wake_the_reader() -> None:
    wire = Wire()
    connection = wire.connect()
    for _ in range(MAX_WAITING * 2):
        reply(call(connection, nfs3.null()), nfs3.null_reply())
    frames = Capture(wire).frames
    batches = frame_batches(frames, range(len(frames)))
    assert len(batches) > 2 * MAX_WAITING
    handover = Handover()
    assert handover.take() is None and not readable(handover)

    def read() -> None:
        for batch in batches:
            handover.put(batch)
        handover.put(CaptureError("the end"))

    reader = threading.Thread(target=read)
    reader.start()
    taken = []
    with pytest.raises(CaptureError, match="the end"):
        while readable(handover, 10):
            if (batch := handover.take()) is not None:
                taken.append(int(batch.rows["number"][0]))
    reader.join(10)
    assert taken == [int(batch.rows["number"][0]) for batch in batches]
    with pytest.raises(CaptureError, match="the end"):
        handover.take()
    handover.close()


def test_a_reader_that_takes_no_more_ends_the_thread() -> None:
    handover = Handover()
    error = CaptureError("one of many")

    def read() -> None:
        for _ in range(MAX_WAITING + 1):
            handover.put(error)

    reader = threading.Thread(target=read)
    reader.start()
    reader.join(0.5)
    assert reader.is_alive()
    handover.stop()
    reader.join(10)
    assert not reader.is_alive()
    handover.close()
