"""What a noun has, as bits: a rule says what it needs, and is not asked about nouns that have it not."""

from __future__ import annotations

FIRST = 1 << 0
"""Sent: version 1, or an unknown one."""
SECOND = 1 << 1
"""Sent: version 2.  Transaction: call or reply is."""
CALL = 1 << 2
"""Sent: a call."""
REPLY = 1 << 3
"""Sent: a reply.  Transaction: it has one."""
ERROR = 1 << 4
"""Sent: RDMA_ERROR."""
NOMSG = 1 << 5
"""Sent: RDMA_NOMSG.  Transaction: its reply is."""
READS = 1 << 6
"""A Read list."""
CHUNKS = 1 << 7
"""Transaction: the call has chunks."""
RETURNS = 1 << 8
"""Transaction: the reply returns Write chunks or the Reply chunk, or should."""
CHUNK_LISTS = NOMSG | READS | CHUNKS | RETURNS
"""Whatever shows chunks."""
GSS = 1 << 9
"""Transaction: an RPCSEC_GSS credential."""
INVALIDATE = 1 << 10
"""Sent: Send With Invalidate."""
