"""The active probe: RPC-over-RDMA spoken by ourselves, over ``rdmascope.captures.verbs``.

``driver.py`` connects the reference endpoint with a device; ``ping.py`` asks a server who it is, ``serve.py`` is a
server.  ``exchange.py`` sends what no endpoint would, and waits for the answer; ``checks.py`` and ``faults.py`` are
the conformance suite, ``suite.py`` runs it.  ``record.py`` keeps the exchange as frames.
"""
