"""From a frame to a located packet: headers up to RDMA, tunnels, addresses, TCP segments, duplicates."""
