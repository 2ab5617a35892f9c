"""The pure half of rdmascope: it opens nothing, prints nothing and reads no clock.

One straight line of nouns, each a module (or a folder) of its own::

    frames.py      Frame      bytes with a time and a number, as captured      (columns: FrameBatch)
    network.py                link, IP and UDP headers around a RoCEv2 packet  (columns: Located)
    packets.py     Packet     one InfiniBand transport packet                  (columns: PacketBatch)
    front.py                  the line up to here, for which no connection has to be known
    rc/            Operation  one verb as its initiator meant it, found by the Reliable Connection observer
    messages.py    Message    one RPC-over-RDMA message: transport header and payload stream
    rpcs.py        Rpc        a call and its reply, put together again by reassembly.py and matching.py
    analyzer.py               the line itself: feed it FrameBatches, take Rpcs

``layers/`` declares every header once, as Scapy packets after their specifications; ``columns.py`` compiles the
fixed-size ones into NumPy extractors.  ``onc/`` knows ONC RPC and the programs on top of it.

Everything is incremental: observers are fed batches and carry their state, so a file, a pipe and a live interface
run the same code.  An observer is not an endpoint: it never raises on what it sees on the wire.
"""
