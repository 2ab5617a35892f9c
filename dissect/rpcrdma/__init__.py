"""From Operations to Rpcs: RPC-over-RDMA messages, matching and reassembly (RFC 8166, 8167, 8797)."""
