"""iWARP: RDMA over TCP, that is MPA (RFC 5044, 6581), DDP (RFC 5041) and RDMAP (RFC 5040, 7306).

``stream`` puts the bytes of one TCP direction in order, ``framing`` finds the FPDUs in them, ``assembly`` makes
Operations of those, ``observer`` finds the TCP connections that are iWARP and gives the Operations of both
directions in the order of events.
"""
