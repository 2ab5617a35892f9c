"""What only traces of the hosts' kernels show: waiting for memory, slots, credits, threads and disks."""

from __future__ import annotations

from collections.abc import Iterator

from ...rpcrdma.rpcs import CREDITS
from ...units import count, duration, percent, plural
from ..facts import LATE, SESSION_SLOTS, SLOTS, Cause, Facts, Limits, Severity, detector, label

_TRACES = "traces of the hosts' kernels"
_SHARE = {"time_share": (0.05, "share of the time of all RPCs on this host")}
_SHOW = "rdmascope show FILE --rpc N: the phases of one of these RPCs"


def _waiting(facts: Facts, limits: Limits, side: str, name: str, what: str, *evidence: str) -> Iterator[Cause]:
    """A cause if this part is a large enough share of the time of all RPCs on a side."""
    hosts = facts.hosts
    spent, whole = hosts.all.times[name], hosts.all.whole(side)
    if not spent or spent < limits["time_share"] * whole:
        return
    examples = hosts.examples[name]
    if examples.count < limits.get("least_calls", 1) or spent < limits.get("mean_ms", 0) * 1e6 * examples.count:
        return
    worst = sorted(hosts.procedures.items(), key=lambda item: -item[1].times[name])
    key, sums = worst[0]
    part = percent(sums.times[name] / (sums.whole(side) or 1))
    lines = [
        f"{label(each)}: {duration(own.times[name])} of {duration(own.whole(side))}, {plural(own.calls, 'RPC')}"
        for each, own in worst[:3]
        if own.times[name]
    ]
    yield Cause(
        f"{part} of {label(key)} latency on the {side} is {what}, {duration(spent)} in all",
        examples.count,
        spent / whole,
        f"the time of all RPCs on the {side}",
        evidence=(*lines, *evidence),
        rpcs=examples.rpcs[:5],
        frames=examples.frames[:5],
        lost=spent,
        procedures=(label(key),),
    )


@detector(
    "no-registrations",
    "No memory registrations",
    Severity.PROBLEM,
    _TRACES,
    _SHARE,
    (
        _SHOW,
        "how many the adapter has: max_mr of ibv_devinfo -v, and other users of it",
        "smaller rsize and wsize, or fewer mounts over this adapter, need fewer",
    ),
)
def no_registrations(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Every chunk of a call is memory registered with the adapter. If no registration is free, the client cannot send,
    allocates more, and tries again: no packet shows it."""
    times = plural(facts.hosts.all.times["failed_registrations"], "attempt")
    yield from _waiting(
        facts, limits, "client", "registration_wait", "waiting for memory registrations", f"{times} found none free"
    )


@detector(
    "no-slots",
    "No free slots",
    Severity.PROBLEM,
    _TRACES,
    {**_SHARE, "least_calls": (20, "RPCs that waited; a few do while a session begins")},
    (_SHOW, "more slots: /proc/sys/sunrpc/rdma_slot_table_entries, nconnect=, a larger session of the server"),
)
def no_slots(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Before it is encoded, an RPC takes a slot of the transport and, with NFSv4.1, one of the session. If all are
    taken, it waits, and neither the network nor the server sees it."""
    for queue, words in ((SLOTS, "a slot of the transport"), (SESSION_SLOTS, "a slot of the session")):
        yield from _waiting(facts, limits, "client", queue, f"waiting for {words}")


@detector(
    "credit-wait",
    "Waiting for credits",
    Severity.PROBLEM,
    _TRACES,
    _SHARE,
    (_SHOW, "rdmascope transport --credits FILE: what the server grants", "more credits: max_requests of the server"),
    follows_from=("no-slots",),
)
def credit_wait(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Linux's client keeps at most as many calls outstanding as the server granted credits. Further calls wait
    until a reply frees a credit."""
    yield from _waiting(facts, limits, "client", CREDITS, "waiting for credits")


@detector(
    "no-threads",
    "No free threads of nfsd",
    Severity.PROBLEM,
    _TRACES,
    {"time_share": (0.1, _SHARE["time_share"][1]), "mean_ms": (1, "mean wait of an RPC, milliseconds")},
    (_SHOW, "more threads: nfsdctl threads, or threads= in /etc/nfs.conf", "what the busy threads wait for"),
    follows_from=("slow-file-system",),
)
def no_threads(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A call that has arrived waits until a thread of nfsd takes its transport. To the network and the client the
    server looks slow."""
    yield from _waiting(facts, limits, "server", "thread", "waiting for a thread of nfsd")


@detector(
    "slow-file-system",
    "Slow file system",
    Severity.PROBLEM,
    _TRACES,
    {"time_share": (0.4, _SHARE["time_share"][1]), "mean_ms": (5, "mean of an RPC that uses it, milliseconds")},
    (_SHOW, "on the server: iostat -x, the file system's own statistics, sync exports"),
)
def slow_file_system(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """READ, WRITE and COMMIT spent the server's time in its file system: disks are slow, not the network."""
    yield from _waiting(facts, limits, "server", "file_system", "in the file system")


@detector(
    "slow-network",
    "Slow network",
    Severity.PROBLEM,
    "traces of both hosts' kernels",
    {"time_share": (0.6, _SHARE["time_share"][1]), "mean_ms": (5, "mean of an RPC, milliseconds")},
    (_SHOW, "a capture beside the traces, and rdmascope diagnose of all three"),
)
def slow_network(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The time that the client waited, minus the time that the server took from receive to reply, passed on the network
    and in the adapters."""
    yield from _waiting(facts, limits, "client", "network", "on the network and in the adapters")


@detector(
    "local-invalidation",
    "Slow invalidation of memory",
    Severity.WARNING,
    _TRACES,
    {"time_share": (0.1, _SHARE["time_share"][1])},
    (_SHOW, "rdmascope report FILE: whether both ends allow Send With Invalidate (private data)"),
    follows_from=("reply-chunk-for-small-replies",),
)
def local_invalidation(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """Before the client can use a reply, it revokes the memory that its call offered, unless the server did so with
    Send With Invalidate, which revokes a single segment."""
    revoked = plural(facts.hosts.all.times["local_invalidations"], "registration")
    yield from _waiting(facts, limits, "client", "invalidated", "its own invalidation of memory", f"{revoked} revoked")


@detector(
    "late-send-completion",
    "Replies lost on their way",
    Severity.WARNING,
    _TRACES,
    {"least_calls": (1, f"replies whose Send completed {duration(LATE)} or more after it was posted")},
    (_SHOW, "a capture beside the trace, for the retransmission", "the ACK timeout of the connection"),
)
def late_send_completion(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The adapter completes a Send when its acknowledgement arrives. If that takes an ACK timeout, the Send or its
    acknowledgement was lost."""
    late = facts.hosts.late_sends
    if late.count >= limits["least_calls"]:
        latest = duration(facts.hosts.latest_send)
        yield Cause(
            f"{plural(late.count, 'reply', 'replies')} retransmitted: the Send completed up to {latest} late",
            late.count,
            rpcs=late.rpcs[:5],
            frames=late.frames[:5],
            lost=late.total,
        )


@detector(
    "reply-chunk-for-small-replies",
    "Reply chunks for small replies",
    Severity.WARNING,
    _TRACES,
    {
        "least_calls": (20, "RPCs whose reply came through a Reply chunk, and would have gone inline"),
        "time_share": (0.1, "share of the client's time that registering and revoking the memory took"),
    },
    (_SHOW, "a larger inline threshold: sunrpc.rdma_max_inline_read, svcrdma_max_req_size of the server"),
)
def reply_chunk_for_small_replies(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The client offers a Reply chunk whenever the largest reply to a call would not fit inline. If the actual reply
    does fit, the memory is registered and revoked for nothing."""
    small, whole = facts.hosts.small_replies, facts.hosts.all.whole("client")
    if small.count >= limits["least_calls"] and whole and small.total >= limits["time_share"] * whole:
        yield Cause(
            f"{count(small.count)} replies of up to 1 KiB came through Reply chunks, whose memory took"
            f" {duration(small.total)}",
            small.count,
            small.total / whole,
            "the time of all RPCs on the client",
            rpcs=small.rpcs[:5],
            frames=small.frames[:5],
            lost=small.total,
            procedures=tuple(sorted(map(label, facts.hosts.small_procedures))),
        )


@detector(
    "completion-error",
    "Work requests failed",
    Severity.PROBLEM,
    _TRACES,
    {"least": (1, "work requests that completed with an error, flushed ones excluded")},
    (
        "RETRY_EXC_ERR: the other host does not answer; RNR_RETRY_EXC_ERR: it posts no receives",
        "REM_ACCESS_ERR, REM_INV_REQ_ERR, LOC_PROT_ERR: memory was revoked or never registered",
        "LOC_LEN_ERR: a Send is larger than the receive: rdmascope report FILE has the inline thresholds",
    ),
)
def completion_error(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The adapter reports a Send, receive, RDMA Read, RDMA Write, registration or invalidation as failed: the
    connection ends, and all outstanding work on it is flushed."""
    yield from _troubles(facts, limits, "completion", "work request failed", "work requests failed")


@detector(
    "calls-retransmitted",
    "Calls retransmitted after a reconnect",
    Severity.PROBLEM,
    _TRACES,
    {"least": (1, "calls that were sent on a second connection")},
    ("what ended the connection: completion errors, the server's log, dmesg", _SHOW),
    follows_from=("completion-error",),
)
def calls_retransmitted(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The connection was lost while the server had calls to answer, and the client retransmitted them on another one:
    each waited for both."""
    words = "retransmitted on another connection"
    yield from _troubles(facts, limits, "resent", f"call {words}", f"calls {words}")


def _troubles(facts: Facts, limits: Limits, kind: str, one: str, several: str) -> Iterator[Cause]:
    for trouble in facts.troubles:
        if trouble.kind == kind and trouble.count >= limits["least"]:
            yield Cause(
                f"{plural(trouble.count, one, several)}: {trouble.words}",
                trouble.count,
                since=trouble.time,
                rpcs=tuple(trouble.rpcs),
                frames=tuple(trouble.frames),
            )
