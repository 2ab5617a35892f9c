"""The active probe: a requester and a server of its own, over ``rdmascope.captures.peer.verbs``.

``driver.py`` connects the reference endpoint with a device; ``ping.py`` examines a server, ``serve.py`` is a server.
``raw_connection.py`` sends arbitrary messages and waits for the answers; ``checks.py`` and ``faults.py`` are the
conformance suite, ``suite.py`` runs it.  ``record.py`` keeps the traffic as frames.
"""
