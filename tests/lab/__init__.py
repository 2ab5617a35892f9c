"""A virtual RDMA lab: kernel NFS client and knfsd in two emulated guests, over rxe (RoCEv2) or siw (iWARP).

build.py makes, once, what the guests boot from; guests.py runs one scenario in a pair of them and records the wire
between them from outside; scenarios/ has what they do and what must be found afterwards; evidence.py holds the
analysis of the capture against what others counted: the guests' kernels, md5sum, tshark.
"""
