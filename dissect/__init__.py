"""The pure half of rdmascope: it opens nothing, prints nothing and reads no clock.

One straight line of nouns, each a module (or a folder) of its own::

    frames.py                Frame      bytes with a time and a number, as captured  (columns: FrameBatch)
    link/packets.py          Packet     one InfiniBand transport packet              (columns: PacketBatch)
    transport/operations.py  Operation  one verb as its initiator meant it, found by the observers of RC and iWARP
    rpcrdma/messages.py      Message    one RPC-over-RDMA message: transport header and payload stream
    rpcrdma/rpcs.py          Rpc        a call and its reply, put together by reassembly.py and matching.py
    rpcrdma/analyzer.py                 the line itself: feed it FrameBatches, take Rpcs
    audit/rule.py            Finding    one rule's verdict about one of the above

``layers/`` declares every header once, as Scapy packets after their specifications; ``columns.py`` compiles the
fixed-size ones into NumPy extractors.  ``onc/`` knows ONC RPC and the programs on top of it.

Everything is incremental: observers are fed batches and carry their state, so a file, a pipe and a live interface
run the same code.  An observer is not an endpoint: it never raises because of bytes from the wire.
"""
