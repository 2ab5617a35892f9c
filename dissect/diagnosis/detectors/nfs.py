"""NFS statuses, delegations, slots, and the mix of calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ...measure.statistics import Procedure
from ...transport.connection import last_gap
from ...units import duration, percent, plural
from ..facts import Cause, Facts, Limits, Severity, detector, label
from ..rpc_facts import Recall

GRACE = ("NFS4ERR_GRACE", "NLM4_DENIED_GRACE_PERIOD", "LCK_DENIED_GRACE_PERIOD")
LATER = ("NFS4ERR_DELAY", "NFS3ERR_JUKEBOX")
HARD = {
    "NFS3ERR": "IO NXIO NOSPC DQUOT ROFS STALE REMOTE BADHANDLE SERVERFAULT",
    "NFS4ERR": "IO NXIO NOSPC DQUOT ROFS STALE BADHANDLE SERVERFAULT RESOURCE BADXDR OP_ILLEGAL BADSESSION BADSLOT"
    " DEADSESSION BAD_STATEID OLD_STATEID STALE_STATEID EXPIRED STALE_CLIENTID ADMIN_REVOKED DELEG_REVOKED"
    " SEQ_MISORDERED RETRY_UNCACHED_REP SEQ_FALSE_RETRY CONN_NOT_BOUND_TO_SESSION MOVED REQ_TOO_BIG REP_TOO_BIG"
    " REP_TOO_BIG_TO_CACHE",
    "RDMA": "ERR_CHUNK",
    "RDMA2": "ERR_BAD_HEADER",
    "AUTH": "BADCRED REJECTEDCRED BADVERF REJECTEDVERF TOOWEAK INVALIDRESP FAILED",
    "GARBAGE": "ARGS",
    "SYSTEM": "ERR",
}
"""Statuses, by prefix, that programs do not meet in daily work; without NOENT, EXIST, ACCES and the like, and without
answers to probes for a version, a procedure or a feature."""
REVALIDATION = frozenset({"GETATTR", "ACCESS"})


@detector(
    "calls-failed",
    "Calls fail with server or protocol errors",
    Severity.PROBLEM,
    "statuses of replies",
    {"least_errors": (1, "failed RPCs with one status")},
    (
        "rdmascope rpcs FILE --errors: the failed RPCs",
        "rdmascope show FILE --rpc N: the call that failed",
        "the server's log and file system, for statuses of its own (IO, NOSPC, SERVERFAULT)",
    ),
)
def calls_failed(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Replies carry a status that a healthy client and server do not exchange: the file system is full or broken,
    handles or state are stale, a session is lost, or one end does not understand the other. Harmless statuses, such as
    a name that does not exist, do not count.
    """
    for status, by_procedure in facts.rpcs.errors.items():
        total = sum(examples.count for examples in by_procedure.values())
        if not is_hard(status) or total < limits["least_errors"]:
            continue
        worst = sorted(by_procedure, key=lambda key: -by_procedure[key].count)
        yield Cause(
            f"{plural(total, 'RPC')} failed with {status}",
            total,
            total / facts.calls,
            "all RPCs",
            facts.rpcs.error_times[status][0],
            tuple(f"{label(key)}: {plural(by_procedure[key].count, 'time')}" for key in worst[:3]),
            (),
            tuple(number for key in worst for number in by_procedure[key].rpcs)[:5],
            tuple(frame for key in worst for frame in by_procedure[key].frames)[:5],
            lost=sum(examples.total for examples in by_procedure.values()),
        )


def is_hard(status: str) -> bool:
    """Whether programs do not meet this status in daily work."""
    name = status.partition(" ")[0]
    prefix, _, rest = name.partition("_")
    return rest in HARD.get(prefix, "").split()


@detector(
    "grace-period",
    "Server in grace period",
    Severity.PROBLEM,
    "statuses of replies",
    {"least_errors": (1, "replies with such a status")},
    (
        "when and why the server restarted: its log before that moment",
        "its grace and lease times (/proc/fs/nfsd/nfsv4gracetime and nfsv4leasetime); with nfsdcld, a server that has"
        " no clients to wait for ends the period at once",
    ),
)
def grace_period(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """During its grace period after a restart, often 90 s, an NFS server grants only the opens and locks that clients
    reclaim. All others get an error and must try again later; programs wait in open() or lock() meanwhile.
    """
    yield from _put_off(facts, limits, GRACE, "refused for the grace period")


@detector(
    "calls-deferred",
    "Calls deferred by the server",
    Severity.PROBLEM,
    "statuses of replies",
    {"least_errors": (3, "replies with such a status")},
    (
        "whether a delegation is being recalled: rdmascope rpcs FILE --procedure CB_RECALL,DELEGRETURN",
        "whether the server recalls files from slow storage (tape, cloud), or is out of memory or threads",
    ),
)
def calls_deferred(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """NFS4ERR_DELAY and NFS3ERR_JUKEBOX mean: try again later. The client waits, from 0.1 s to many seconds, and calls
    again; the program hangs meanwhile, although every RPC was answered quickly.
    """
    yield from _put_off(facts, limits, LATER, "deferred")


def _put_off(facts: Facts, limits: Limits, statuses: tuple[str, ...], what: str) -> Iterator[Cause]:
    seen = [status for status in statuses if status in facts.rpcs.errors]
    places = [(status, key) for status in seen for key in facts.rpcs.errors[status]]
    total = sum(facts.rpcs.errors[status][key].count for status, key in places)
    if total < limits["least_errors"]:
        return
    places.sort(key=lambda at: -facts.rpcs.errors[at[0]][at[1]].count)
    first = min(facts.rpcs.error_times[status][0] for status in seen)
    last = max(facts.rpcs.error_times[status][1] for status in seen)
    worst = [facts.rpcs.errors[status][key] for status, key in places]
    yield Cause(
        f"{plural(total, 'RPC')} {what} over {duration(last - first)}",
        total,
        (last - first) / facts.span if facts.span else None,
        "the time of the capture",
        first,
        tuple(
            f"{label(key)}: {status}, {plural(facts.rpcs.errors[status][key].count, 'time')}"
            for status, key in places[:3]
        ),
        (),
        tuple(number for failures in worst for number in failures.rpcs)[:5],
        tuple(frame for failures in worst for frame in failures.frames)[:5],
        lost=last - first,
    )


@detector(
    "recall-stalls",
    "Delegation recall slow",
    Severity.PROBLEM,
    "CB_RECALL calls, and the same client's DELEGRETURN of the same delegation",
    {"least_ms": (1000, "milliseconds from a recall to the return of the delegation or the end of the capture")},
    (
        "the client that holds the delegation: is it busy writing back its data, or down?",
        "rdmascope rpcs FILE --procedure CB_RECALL,DELEGRETURN",
        "whether clients really share these files; fs.leases-enable=0 on the server turns delegations off",
    ),
    uses="sessions",
)
def recall_stalls(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The server recalled a delegation because another client wants the file. Until it is returned, that client's open
    waits.
    """
    late: list[tuple[int, Recall]] = []
    for recall in facts.rpcs.recalls:
        state = facts.recalled.get(recall.frame)
        returned = recall.returned if state is None else state.returned_time
        if not returned and _return_missed(facts, recall):
            continue
        after = returned or facts.end_of(recall.frame)
        if after - recall.begin >= limits["least_ms"] * 1e6:
            late.append((after - recall.begin, recall))
    if not late:
        return
    late.sort(key=lambda item: (-item[0], item[1].number))
    followed = all(recall.delegation is not None or recall.frame in facts.recalled for _, recall in late)
    yield Cause(
        f"{plural(len(late), 'delegation recall')}, up to {duration(late[0][0])}",
        len(late),
        len(late) / len(facts.rpcs.recalls),
        "all recalls",
        min(recall.begin for _, recall in late),
        tuple(
            f"{facts.ends(recall.connection)}: RPC {recall.number}, "
            + (f"returned after {duration(took)}" if _returned(facts, recall) else f"outstanding {duration(took)}")
            for took, recall in late[:3]
        ),
        tuple(dict.fromkeys(recall.connection for _, recall in late)),
        tuple(recall.number for _, recall in late[:5]),
        tuple(recall.frame for _, recall in late[:5]),
        0.95 if followed else 0.7,
        ()
        if followed
        else ("the capture does not show which delegation a call returns: the client's next return is assumed",),
        lost=sum(took for took, _ in late),
    )


def _return_missed(facts: Facts, recall: Recall) -> bool:
    """The capture may lack the client's return of the delegation."""
    conversation = facts.by_number.get(recall.connection)
    return conversation is not None and last_gap(conversation.connection, 0) > recall.frame


def _returned(facts: Facts, recall: Recall) -> bool:
    state = facts.recalled.get(recall.frame)
    return bool(recall.returned if state is None else state.returned_time)


@detector(
    "slots-exhausted",
    "Calls wait for NFSv4 session slots",
    Severity.PROBLEM,
    "requests outstanding against the slots of each session",
    {
        "blocked_share": (0.1, "share of the session's time during which all slots were in use"),
        "least_requests": (20, "requests that took the last free slot"),
        "refilled_share": (0.5, "share of those sent right after the reply that freed it"),
    },
    (
        "rdmascope sessions FILE: slots negotiated, the server's target, and when all were in use",
        "the server's slots per session (nfsd: by memory and number of clients), the client's"
        " max_session_slots of module nfs",
        "more connections do not help: slots belong to the session, not to a connection",
    ),
    needs="sessions",
)
def slots_exhausted(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Each NFSv4.1 request occupies a slot of its session until the reply comes (RFC 8881, 2.10.6). All slots were in
    use, so the client had to hold back the next request, even if RPC-over-RDMA credits were free. The time that
    requests wait before they are sent is not on the wire.
    """
    for session in facts.sessions or ():
        fore = session.fore
        span = (session.ended_time or facts.last_time) - (session.time or facts.first_time)
        if span <= 0 or fore.at_limit_count < limits["least_requests"] or fore.full is None:
            continue
        blocked, refilled = fore.at_limit / span, fore.refilled / fore.at_limit_count
        if blocked < limits["blocked_share"] or refilled < limits["refilled_share"]:
            continue
        slots = fore.limit or fore.max_in_use
        used = "the only slot" if slots == 1 else f"all {slots} slots"
        (first_time, first_frame), (_, last_frame) = fore.full
        yield Cause(
            f"{used} in use for {percent(blocked)} of the time",
            fore.at_limit_count,
            blocked,
            "the time of the session",
            first_time,
            (
                f"session {session.number}: {duration(fore.at_limit)} of {duration(span)}; {fore.refilled:,} of"
                f" {fore.at_limit_count:,} requests sent right after the reply that freed the slot",
            ),
            tuple(session.connections),
            (),
            tuple(dict.fromkeys((first_frame, last_frame))),
            0.5 if slots == 1 else 0.5 + 0.45 * min(1.0, refilled),
            ("with a single slot, a program that makes one call at a time looks the same",) if slots == 1 else (),
            lost=fore.at_limit,
        )


@detector(
    "commit-storm",
    "COMMIT after nearly every WRITE",
    Severity.WARNING,
    "numbers of WRITE and COMMIT calls",
    {
        "least_commits": (50, "COMMIT calls"),
        "per_write": (0.5, "COMMIT calls per WRITE"),
        "latency_share": (0.1, "share of the latency of all RPCs that is COMMIT"),
    },
    (
        "the program: fsync() after each small write, or O_SYNC; a database log does so on purpose",
        "whether the server's storage has a non-volatile write cache",
    ),
)
def commit_storm(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """COMMIT asks the server to flush earlier writes to stable storage, and waits for its disks. A COMMIT for every
    WRITE or two defeats the purpose of unstable writes.
    """
    commits = [
        procedure
        for procedure in facts.procedures
        if _calls_for(procedure.key.name, procedure.key.operations, {"COMMIT"})
    ]
    writes = sum(
        procedure.calls
        for procedure in facts.procedures
        if _calls_for(procedure.key.name, procedure.key.operations, {"WRITE"})
    )
    total, waited = sum(commit.calls for commit in commits), sum(commit.waited for commit in commits)
    part = facts.share(waited)
    if total < limits["least_commits"] or total < limits["per_write"] * writes or part < limits["latency_share"]:
        return
    yield Cause(
        f"{plural(total, 'COMMIT')} for {plural(writes, 'WRITE')}, {duration(waited)}",
        total,
        lost=waited,
        evidence=tuple(
            f"{label(commit.key)}: {plural(commit.calls, 'RPC')}, {duration(commit.waited)}" for commit in commits[:3]
        ),
        connections=_connections(facts, commits),
        procedures=tuple(label(commit.key) for commit in commits),
    )


def _connections(facts: Facts, procedures: Iterable[Procedure]) -> tuple[int, ...]:
    """The connections with calls of these procedures, the one with the most calls first."""
    calls: Counter[int] = Counter()
    for procedure in procedures:
        for number, sums in facts.sums.get(procedure.key, {}).items():
            calls[number] += int(sums.calls.sum())
    return tuple(number for number, _ in calls.most_common() if number)


def _calls_for(name: str, operations: tuple[str, ...], wanted: set[str]) -> bool:
    return bool(wanted & set(operations)) if operations else name in wanted


@detector(
    "metadata-storm",
    "Mostly attribute revalidation",
    Severity.WARNING,
    "numbers of GETATTR and ACCESS calls without other operations",
    {
        "least_calls": (2000, "GETATTR and ACCESS calls"),
        "call_share": (0.7, "their share of all RPCs"),
        "latency_share": (0.5, "their share of the latency of all RPCs"),
    },
    (
        "attribute caching on the client: actimeo, acregmin; noac and lookupcache=none turn it off",
        "which files: rdmascope report FILE --by path --sort calls",
        "programs that poll files or directories; many clients that share and change them",
    ),
)
def metadata_storm(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """GETATTR and ACCESS on their own move no data: the client checks whether its cache is still valid. If they are
    nearly all of the traffic, caching does not work for this workload, and each check costs a round trip.
    """
    telling = [
        procedure
        for procedure in facts.procedures
        if not procedure.key.backward
        and set(procedure.key.operations or (procedure.key.name,)) - {"SEQUENCE", "PUTFH", "PUTROOTFH"} <= REVALIDATION
        and set(procedure.key.operations or (procedure.key.name,)) & REVALIDATION
    ]
    total, waited = sum(procedure.calls for procedure in telling), sum(procedure.waited for procedure in telling)
    part = facts.share(waited)
    if total < limits["least_calls"] or total < limits["call_share"] * facts.calls or part < limits["latency_share"]:
        return
    yield Cause(
        f"GETATTR and ACCESS {percent(total / facts.calls)} of all RPCs",
        total,
        lost=waited,
        evidence=tuple(
            f"{label(procedure.key)}: {plural(procedure.calls, 'RPC')}, {duration(procedure.waited)}"
            for procedure in telling[:3]
        ),
        connections=_connections(facts, telling),
    )


@detector(
    "readdir-without-plus",
    "READDIR without attributes, LOOKUP or GETATTR per entry",
    Severity.WARNING,
    "numbers of READDIR, LOOKUP and GETATTR calls of NFSv3",
    {
        "least_lists": (5, "READDIR calls"),
        "least_lookups": (500, "LOOKUP and GETATTR calls"),
        "per_list": (20, "LOOKUP and GETATTR calls per READDIR"),
    },
    (
        "the mount option nordirplus; rdmascope rpcs FILE --procedure READDIRPLUS: whether the server refused it",
        "the program that lists directories: 'ls -l' and find need attributes, 'ls' does not",
    ),
)
def readdir_without_plus(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """READDIR returns names only. A program that needs attributes then costs a LOOKUP or GETATTR per entry; READDIRPLUS
    returns them with the names.
    """
    counts: Counter[str] = Counter()
    for procedure in facts.procedures:
        if procedure.key.version == 3 and not procedure.key.operations:
            counts[procedure.key.name] += procedure.calls
    lists, lookups = counts["READDIR"], counts["LOOKUP"] + counts["GETATTR"]
    if (
        lists < limits["least_lists"]
        or lookups < limits["least_lookups"]
        or lookups < limits["per_list"] * lists
        or counts["READDIRPLUS"] * 10 > lists
    ):
        return
    listing = [
        procedure for procedure in facts.procedures if procedure.key.version == 3 and procedure.key.name == "READDIR"
    ]
    waited = sum(
        procedure.waited
        for procedure in facts.procedures
        if procedure.key.version == 3 and procedure.key.name in ("LOOKUP", "GETATTR")
    )
    yield Cause(
        f"{plural(lists, 'READDIR')} and {lookups:,} LOOKUP and GETATTR, {counts['READDIRPLUS']:,} READDIRPLUS",
        lookups,
        lost=waited,
        connections=_connections(facts, listing),
        confidence=0.6,
        weakened_by=("not checked: whether these LOOKUPs and GETATTRs are for entries of these directories",),
    )
