"""ONC RPC and the programs on top of it: bytes in, small tuples out.

======================  =============================================================================================
``rpc_header.py``       call and reply header (RFC 5531), RPCSEC_GSS wrapping (RFC 2203), names of programs
``nfs3.py``             the procedures of NFS version 3, in one table (RFC 1813)
``status.py``           where a reply carries a program-level status, and the names of NFS statuses
``xdr.py``              shapes: how many bytes a value takes (RFC 4506)
``compound.py``         COMPOUNDs, walked step by step, in columns, and with the current and the saved filehandle
``binding.py``          the upper-layer binding: which items may travel in chunks, and where they sit (RFC 8267)
``file_operations.py``  which file each operation was for, its type and its size; names, offsets and lengths
``summary.py``          one line per message, of a whole batch in columns
``shapes/``             every argument and result, declared once; trees of values, and the steps over them
======================  =============================================================================================

Every function takes ``data`` (contiguous bytes: ``bytes``, ``memoryview``, ``numpy.uint8``), ``start`` and
``end``, the end of what was captured, and never raises on what these bytes hold.
"""
