"""Why something cannot be done, as both versions of NFS number it (RFC 1813, 2.6; RFC 8881, 15.1)."""

from __future__ import annotations

from enum import IntEnum


class NfsStatus(IntEnum):
    """A status of NFSv4; those below 10009 mean the same in NFSv3."""

    OK = 0
    NOENT = 2
    IO = 5
    ACCESS = 13
    EXIST = 17
    XDEV = 18
    NOTDIR = 20
    ISDIR = 21
    INVAL = 22
    FBIG = 27
    NOSPC = 28
    MLINK = 31
    NAMETOOLONG = 63
    NOTEMPTY = 66
    STALE = 70
    BADHANDLE = 10001
    NOT_SYNC = 10002  # of NFSv3 alone
    BAD_COOKIE = 10003
    NOTSUPP = 10004
    TOOSMALL = 10005
    BADTYPE = 10007
    DELAY = 10008
    SAME = 10009
    DENIED = 10010
    SHARE_DENIED = 10015
    CLID_INUSE = 10017
    NOFILEHANDLE = 10020
    MINOR_VERS_MISMATCH = 10021
    STALE_CLIENTID = 10022
    OLD_STATEID = 10024
    BAD_STATEID = 10025
    NOT_SAME = 10027
    SYMLINK = 10029
    RESTOREFH = 10030
    ATTRNOTSUPP = 10032
    NO_GRACE = 10033
    BADXDR = 10036
    LOCKS_HELD = 10037
    OPENMODE = 10038
    BADOWNER = 10039
    BADCHAR = 10040
    BADNAME = 10041
    LOCK_NOTSUPP = 10043
    OP_ILLEGAL = 10044
    BADSESSION = 10052
    BADSLOT = 10053
    COMPLETE_ALREADY = 10054
    SEQ_MISORDERED = 10063
    SEQUENCE_POS = 10064
    REQ_TOO_BIG = 10065
    REP_TOO_BIG = 10066
    REP_TOO_BIG_TO_CACHE = 10067
    RETRY_UNCACHED_REP = 10068
    TOO_MANY_OPS = 10070
    OP_NOT_IN_SESSION = 10071
    CLIENTID_BUSY = 10074
    SEQ_FALSE_RETRY = 10076
    BAD_HIGH_SLOT = 10077
    NOT_ONLY_OP = 10081
    WRONG_TYPE = 10083


class NfsError(Exception):
    """An operation fails with a status."""

    def __init__(self, status: NfsStatus) -> None:
        super().__init__(status.name)
        self.status = status
