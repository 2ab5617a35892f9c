"""A peer of our own: what speaks RPC-over-RDMA itself, on devices or on a wire in memory.

``rpc.py`` makes and answers RPC messages for all of them.  ``endpoint/`` is one end of a connection without input and
output, and ``faults/`` what it can be set to do wrong; ``wire/`` plays scripts between two of them (``scripts/``,
``shipped.py``).  ``verbs/`` are RDMA devices, on which ``probe/`` examines servers and serves ``nfs_server/``.
"""
