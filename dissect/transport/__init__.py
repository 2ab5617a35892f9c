"""From packets to Operations, whichever transport carried them; it knows nothing of RPC."""
