"""Procedures, errors and directions of RPC-over-RDMA, as tables (RFC 8166, 4; version-two-01, 4)."""

from __future__ import annotations

RDMA_MSG, RDMA_NOMSG, RDMA_MSGP, RDMA_DONE, RDMA_ERROR, RDMA_OPTIONAL = range(6)

PROCEDURE_NAMES = {
    RDMA_MSG: "RDMA_MSG",
    RDMA_NOMSG: "RDMA_NOMSG",
    RDMA_MSGP: "RDMA_MSGP",
    RDMA_DONE: "RDMA_DONE",
    RDMA_ERROR: "RDMA_ERROR",
}
"""Procedures of version 1 (RFC 8166, 4.2)."""

PROCEDURE_NAMES_2 = {
    RDMA_MSG: "RDMA2_MSG",
    RDMA_NOMSG: "RDMA2_NOMSG",
    RDMA_ERROR: "RDMA2_ERROR",
    RDMA_OPTIONAL: "RDMA2_OPTIONAL",
}
"""Of version 2 (version-two-01, 4.2)."""

ERR_VERS, ERR_CHUNK, ERR_INVAL_OPTION = 1, 2, 3

ERROR_NAMES = {ERR_VERS: "RDMA_ERR_VERS", ERR_CHUNK: "RDMA_ERR_CHUNK (RDMA_ERR_BADHEADER)"}
"""Errors of version 1 (RFC 8166, 4.5)."""

ERROR_NAMES_2 = {
    ERR_VERS: "RDMA2_ERR_VERS",
    ERR_CHUNK: "RDMA2_ERR_BAD_HEADER",
    ERR_INVAL_OPTION: "RDMA2_ERR_INVAL_OPTION",
}
"""Of version 2 (version-two-01, 4.2)."""

DIRECTION_NAMES = {0: "CALL", 1: "REPLY"}
"""The msg_type of RPC, which version 2 has in its header, too (version-two-01, 4.2)."""


NO_RDMA = -1
"""In place of a version where a message came over TCP or UDP, without a transport header."""


def procedure_name(version: int, procedure: int | None) -> str:
    """rdma_proc in words; 'procedure 77' where the version does not define it, '' where it is not there.

    An RDMA_ERROR has one layout in every version (RFC 8166, 4.5), and so a name in those not known here.
    """
    if procedure is None or version == NO_RDMA:
        return ""
    known = {1: PROCEDURE_NAMES, 2: PROCEDURE_NAMES_2}.get(version, {RDMA_ERROR: "RDMA_ERROR"})
    return known.get(procedure, f"procedure {procedure}")


def error_name(version: int, code: int | None) -> str:
    """rdma_err in words; 'error 77' where the version does not define it, '' where it is not there."""
    if code is None:
        return ""
    return (ERROR_NAMES_2 if version == 2 else ERROR_NAMES).get(code, f"error {code}")
