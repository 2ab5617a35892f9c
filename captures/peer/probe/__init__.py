"""The active probe: a requester and a server of its own, over ``rdmascope.captures.peer.verbs``.

``serve.py`` connects the reference endpoint with a device, as a requester and as a server, sends arbitrary messages,
and examines a server; ``checks.py`` is the conformance suite, ``record.py`` keeps the traffic as frames.
"""
