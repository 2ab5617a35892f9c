"""The events of the kernel's tracepoints, as RPCs: what a host knows of its own NFS over RDMA."""
