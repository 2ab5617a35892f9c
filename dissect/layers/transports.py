"""What may carry an InfiniBand transport packet, as the codes that columns hold."""

from __future__ import annotations

ROCEV2, ROCEV1, NATIVE = range(3)

TRANSPORTS = "RoCEv2", "RoCEv1", "InfiniBand"
"""What carries an InfiniBand transport packet, by the code that columns hold."""
