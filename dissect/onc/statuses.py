"""Statuses of NFS as they are shown: success is OK."""

from __future__ import annotations

from .shapes import nfs4_types, rfc1813

OK = "OK"
NFS3_STATUS: dict[int, str] = {**rfc1813.TYPES["nfsstat3"].values, 0: OK}
NFS4_STATUS: dict[int, str] = {**nfs4_types.TYPES["nfsstat4"].values, 0: OK}
