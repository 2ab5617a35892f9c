"""Quotas of users and groups on an NFS server: rquota versions 1 and 2 (Sun's rquota.x; no RFC has it)."""

from __future__ import annotations

from .language import declared

TYPES = declared(
    """
enum gqr_status { Q_OK = 1, Q_NOQUOTA = 2, Q_EPERM = 3 };
enum quota_type { USRQUOTA = 0, GRPQUOTA = 1 };
struct sq_dqblk {
    uint32_t rq_bhardlimit; uint32_t rq_bsoftlimit; uint32_t rq_curblocks; uint32_t rq_fhardlimit;
    uint32_t rq_fsoftlimit; uint32_t rq_curfiles; uint32_t rq_btimeleft; uint32_t rq_ftimeleft;
};
struct rquota {
    int32_t rq_bsize; bool rq_active; uint32_t rq_bhardlimit; uint32_t rq_bsoftlimit; uint32_t rq_curblocks;
    uint32_t rq_fhardlimit; uint32_t rq_fsoftlimit; uint32_t rq_curfiles; uint32_t rq_btimeleft;
    uint32_t rq_ftimeleft;
};
union getquota_rslt switch (gqr_status status) { case Q_OK: rquota gqr_rquota; default: void; };
union setquota_rslt switch (gqr_status status) { case Q_OK: rquota sqr_rquota; default: void; };
struct getquota_args { string gqa_pathp<1024>; int32_t gqa_uid; };
struct setquota_args { int32_t sqa_qcmd; string sqa_pathp<1024>; int32_t sqa_id; sq_dqblk sqa_dqblk; };
program RQUOTA1 {
    void NULL(void) = 0;
    getquota_rslt GETQUOTA(getquota_args) = 1;
    getquota_rslt GETACTIVEQUOTA(getquota_args) = 2;
    setquota_rslt SETQUOTA(setquota_args) = 3;
    setquota_rslt SETACTIVEQUOTA(setquota_args) = 4;
};
struct ext_getquota_args { string gqa_pathp<1024>; quota_type gqa_type; int32_t gqa_id; };
struct ext_setquota_args {
    int32_t sqa_qcmd; string sqa_pathp<1024>; int32_t sqa_id; quota_type sqa_type; sq_dqblk sqa_dqblk;
};
program RQUOTA2 {
    void NULL(void) = 0;
    getquota_rslt GETQUOTA(ext_getquota_args) = 1;
    getquota_rslt GETACTIVEQUOTA(ext_getquota_args) = 2;
    setquota_rslt SETQUOTA(ext_setquota_args) = 3;
    setquota_rslt SETACTIVEQUOTA(ext_setquota_args) = 4;
};
    """
)
