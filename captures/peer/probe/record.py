"""The traffic as frames: recorded on the device where this host can, else built from the messages.

Only the device sees the packets. If it cannot be recorded, frames are built from what was sent and received: the Sends
of both ends are exact; the peer's RDMA Writes are those that its reply returns, with the contents of the memory; its
RDMA Reads leave no trace, and are assumed for each answered call. Every such frame says so in a comment.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path as File

from rdmascope.dissect.layers.rpcrdma_codes import RDMA_ERROR
from rdmascope.dissect.rpcrdma.messages import Segment, TransportHeader, WriteChunk
from rdmascope.dissect.rpcrdma.transport_header import decode_header

from ...errors import CaptureError, system_errors
from ...live import CaptureSettings, Keep, Keeper, Live, open_live
from ...write.output import open_output
from ...write.pcapng_writer import PcapngWriter
from ..verbs import interface as verbs
from ..verbs.interface import devices as all_devices, is_iwarp
from ..wire import IwarpLink, Path, Rocev2Link, Tape

APPLICATION = "rdmascope probe"
LINKTYPE_ETHERNET = 1
_LARGEST = 1 << 40
_AFTERWARDS = 0.3
"""Seconds to wait for the last frames."""
_UNKNOWN_PEER = {4: "192.0.2.2", 6: "2001:db8::2"}
"""Stands for a client's address, which no device tells."""

BUILT = "built by rdmascope probe of what was sent and received, not recorded"
WRITTEN = "built by rdmascope probe of what the reply says was written, and what the memory holds; not recorded"
ASSUMED = "assumed by rdmascope probe, since the call was answered; RDMA Reads of the peer cannot be seen from here"


class _FollowedVerbs:
    """``Verbs`` that pass requests on."""

    def __init__(self, inner: verbs.Verbs, file: File) -> None:
        self.inner = inner
        self._file = file
        self.now, self.listen = inner.now, inner.listen

    def close(self) -> None:
        self.inner.close()


class Recorded(_FollowedVerbs):
    """``Verbs`` whose device is recorded by ``live``."""

    def __init__(self, inner: verbs.Verbs, live: Live, file: File) -> None:
        super().__init__(inner, file)
        self._live = live
        self._keeper = Keeper(Keep(str(file), _LARGEST, files=1), live, APPLICATION)
        self._frames = 0

    def connect(
        self, target: verbs.PeerAddress, terms: verbs.ConnectionParameters, deadline: int
    ) -> verbs.VerbsConnection:
        try:
            return self.inner.connect(target, terms, deadline)
        finally:
            self._drain()

    def poll(self, deadline: int) -> verbs.Event | None:
        event = self.inner.poll(deadline)
        self._drain()
        return event

    def close(self) -> None:
        self.inner.close()
        time.sleep(_AFTERWARDS)
        self._drain()
        self._keeper.close()
        self._live.close()

    def finish(self) -> str:
        lost = f", {self._live.dropped:,} more were lost" if self._live.dropped else ""
        return f"{self._file}: {self._frames:,} frames, recorded on {self._live.device}{lost}"

    def _drain(self) -> None:
        while (batch := self._live.read()) is not None and len(batch.rows):
            self._frames += len(batch.rows)
            self._keeper.write(batch)


class Built(_FollowedVerbs):
    """``Verbs`` whose frames are built from the messages."""

    def __init__(self, inner: verbs.Verbs, file: File, port: int, why: str) -> None:
        super().__init__(inner, file)
        self.port = port
        self.tape = Tape(start=time.time_ns())
        self._why = why
        self._comments: list[str] = []
        self._links: dict[int, BuiltLink] = {}
        """By the identity of the recorded connection."""

    def connect(
        self, target: verbs.PeerAddress, terms: verbs.ConnectionParameters, deadline: int
    ) -> verbs.VerbsConnection:
        return self.follow(self.inner.connect(target, terms, deadline), terms, 0)

    def poll(self, deadline: int) -> verbs.Event | None:
        event = self.inner.poll(deadline)
        if event is None:
            return None
        if isinstance(event, verbs.ConnectRequested):
            return verbs.ConnectRequested(BuiltRequest(self, event.request))
        link = self._links[id(event.link)]
        link.happened(event)
        return replace(event, link=link)

    def finish(self) -> str:
        with system_errors(self._file), open_output(self._file, ()) as file:
            writer = PcapngWriter(file, LINKTYPE_ETHERNET, application=APPLICATION)
            for frame, comment in zip(self.tape.frames, self._comments, strict=True):
                writer.write(frame.time, frame.data, comment=comment)
        return f"{self._file}: {len(self.tape.frames):,} frames, built and not recorded: {self._why}"

    def follow(self, link: verbs.VerbsConnection, terms: verbs.ConnectionParameters, side: int) -> BuiltLink:
        made = BuiltLink(self, link, side)
        self._links[id(link)] = made
        private = terms.private_data, link.private_data
        with self:
            made.wire.connect(private[side], private[1 - side])
        return made

    def __enter__(self) -> Built:
        self.tape.now = max(self.tape.now, time.time_ns())
        return self

    def __exit__(self, *_: object) -> None:
        self.note(BUILT)

    def note(self, comment: str) -> None:
        """Give a comment to all frames that have none so far."""
        self._comments += [comment] * (len(self.tape.frames) - len(self._comments))


class BuiltRequest:
    def __init__(self, built: Built, inner: verbs.IncomingRequest) -> None:
        self._built = built
        self._inner = inner
        self.peer = inner.peer
        self.private_data = inner.private_data

    def accept(self, terms: verbs.ConnectionParameters) -> verbs.VerbsConnection:
        return self._built.follow(self._inner.accept(terms), terms, 1)

    def reject(self) -> None:
        self._inner.reject()


class BuiltLink:
    """A ``Link`` whose traffic is also recorded as frames."""

    def __init__(self, built: Built, inner: verbs.VerbsConnection, side: int) -> None:
        self._built = built
        self._inner = inner
        self._side = side
        self.device, self.local, self.peer = inner.device, inner.local, inner.peer
        self.private_data, self.depths, self.settle = inner.private_data, inner.depths, inner.settle
        family = 6 if ":" in inner.local else 4
        other = inner.peer.rpartition(":")[0].strip("[]") or _UNKNOWN_PEER[family]
        own = inner.local or "192.0.2.1"
        hosts = [host.partition("%")[0] for host in ((own, other) if side == 0 else (other, own))]
        network = IwarpLink if is_iwarp(inner.device) else Rocev2Link
        self.wire = network(built.tape, Path(hosts[0], hosts[1], built.port))
        self._memory: dict[int, verbs.RegisteredMemory] = {}
        self._asked: dict[int, TransportHeader] = {}
        """Messages with chunks that are not answered so far, by XID."""
        self._reads: dict[int, Segment] = {}
        self._closed = False

    def register(self, length: int) -> verbs.RegisteredMemory:
        made = self._inner.register(length)
        self._memory[made.handle] = made
        return made

    def window(self, memory: verbs.RegisteredMemory) -> verbs.RegisteredMemory | None:
        made = self._inner.window(memory)
        if made is not None:
            self._memory[made.handle] = made
        return made

    def release(self, memory: verbs.RegisteredMemory) -> None:
        self._memory.pop(memory.handle, None)
        self._inner.release(memory)

    def send(self, data: bytes, invalidate: int | None = None) -> None:
        self._inner.send(data, invalidate)
        header = decode_header(data, 0, len(data), len(data))
        if header.chunks:
            self._asked[header.xid] = header
        with self._built:
            self.wire.send(self._side, data, invalidate)

    def read(self, handle: int, address: int, length: int) -> int:
        number = self._inner.read(handle, address, length)
        self._reads[number] = Segment(handle, length, address)
        return number

    def write(self, handle: int, address: int, data: bytes) -> int:
        number = self._inner.write(handle, address, data)
        with self._built:
            self.wire.write(self._side, Segment(handle, len(data), address), data)
        return number

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with self._built:
                self.wire.disconnect(self._side)
        self._inner.close()

    def happened(self, event: verbs.MessageReceived | verbs.RdmaFinished | verbs.ConnectionLost) -> None:
        """Record what the peer did."""
        if isinstance(event, verbs.ConnectionLost):
            self._closed = True  # by which end, and how, is unknown
        elif isinstance(event, verbs.RdmaFinished):
            segment = self._reads.pop(event.number, None)
            if segment is not None:
                with self._built:
                    self.wire.read(self._side, segment, event.data)
        else:
            self._one_sided(decode_header(event.data, 0, len(event.data), len(event.data)))
            with self._built:
                self.wire.send(1 - self._side, event.data, event.invalidated)

    def _one_sided(self, reply: TransportHeader) -> None:
        """Record the peer's RDMA that preceded its reply to a call of this end."""
        asked = self._asked.pop(reply.xid, None)
        if asked is None or reply.procedure == RDMA_ERROR:
            return
        with self._built:
            for read in asked.reads:
                for segment in read.segments:
                    if (data := self._fetch(segment)) is not None:
                        self.wire.read(1 - self._side, segment, data)
            self._built.note(ASSUMED)
            returned: tuple[WriteChunk, ...] = (*reply.writes, *((reply.reply,) if reply.reply else ()))
            for chunk in returned:
                for segment in chunk.segments:
                    if segment.length and (data := self._fetch(segment)) is not None:
                        self.wire.write(1 - self._side, segment, data)
            self._built.note(WRITTEN)

    def _fetch(self, segment: Segment) -> bytes | None:
        """The contents of this end's memory at a segment; None if it is not this end's."""
        memory = self._memory.get(segment.handle)
        at = -1 if memory is None else segment.offset - memory.address
        if memory is None or not 0 <= at <= memory.length - segment.length:
            return None
        return memory.fetch(at, segment.length)


def record(inner: verbs.Verbs, target: verbs.PeerAddress, file: File) -> Recorded | Built:
    """``inner``, followed by a recorder; it writes ``file`` as it closes, or with ``finish``."""
    names = [target.device] if target.device else list(all_devices())
    if len(names) != 1:
        return Built(inner, file, target.port, "there are several devices; --device chooses one to record on")
    try:
        live = open_live(str(names[0]), CaptureSettings((target.port,)))
    except CaptureError as error:
        return Built(inner, file, target.port, str(error))
    return Recorded(inner, live, file)
