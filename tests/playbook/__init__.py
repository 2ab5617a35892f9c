"""A playbook of RPC-over-RDMA conversations: a script in, frames out, and the truth beside them.

    wire = Wire(mtu=1024, seed=7)
    conn = wire.connect(client_psn=0xFFFFF0)
    rpc = call(conn, nfs3.read(0, 8192), writes=[conn.register(8192)])
    reply(rpc, nfs3.read_reply(data), split=3000)
    packets = faults.lose(wire, wire.packets, faults.where(wire.packets, kind="write")[2])
    capture = Capture(wire, packets)
    capture.frames, capture.missing(wire.truth[0], "reply")

Modules: packets (bytes of one packet), cm (connection management), wire (connections and verbs),
rpc, nfs3 and nfs4 (messages), rpcrdma (calls, chunks, replies), shapes (whole RPCs in a word),
foreign (other users of queue pairs), faults, capture,
judge (the analyzer against the truth), strategies (Hypothesis).
The same scripts over iWARP: tcp (bytes of one segment), mpa (bytes of an FPDU), iwarp (connections, verbs, capture),
tcp_faults, iwarp_strategies; segments and streams are one written by hand.
troubles: conversations in which one thing is wrong, for diagnosis.
samples: the captures of the repository; commands: the program on them; opinions: both sides of a comparison.
"""

from . import cm, faults, foreign, nfs3, nfs4
from .capture import Capture, frame_batch, frame_batches, write_pcap
from .packets import Frame, Packet
from .rpc import Call, Reply
from .rpcrdma import Exchange, call, error, fetch, pad_segment, reply
from .wire import Connection, Segment, TrueRpc, Wire

__all__ = [
    "Call",
    "Capture",
    "Connection",
    "Exchange",
    "Frame",
    "Packet",
    "Reply",
    "Segment",
    "TrueRpc",
    "Wire",
    "call",
    "cm",
    "error",
    "faults",
    "fetch",
    "foreign",
    "frame_batch",
    "frame_batches",
    "nfs3",
    "nfs4",
    "pad_segment",
    "reply",
    "write_pcap",
]
