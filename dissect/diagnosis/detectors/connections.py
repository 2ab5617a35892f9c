"""Credits, calls without a reply, connections that ended or were refused, and inline thresholds."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator

from ...rpcrdma.conversation import ENDS, Conversation
from ...units import duration, percent, plural, size
from ..detector import Limits, detector
from ..facts import Facts, label
from ..rpc_facts import Unanswered
from ..statement import Cause, Severity

MAX_LINES = 3
CAPTURE_WENT_ON = "the first for {} until the capture ended"
RECONNECTING = 5_000_000_000
"""Nanoseconds that a new connection may begin before the last packet of the one that it stands for."""


@detector(
    "credits-exhausted",
    "Calls wait for credits",
    Severity.PROBLEM,
    "calls outstanding against the credits granted",
    {
        "blocked_share": (0.1, "share of the time with calls outstanding in which all credits were in use"),
        "least_replies": (20, "replies that brought back a credit while all were in use"),
        "refilled_share": (0.5, "share of those after which the next call came within 100 µs"),
    },
    (
        "rdmascope credits FILE: requested, granted and outstanding over time",
        "the server's slots for RPC-over-RDMA (svc_rdma max_requests) and the client's (rdma_slot_table_entries): the"
        " lower number decides",
        "more connections (nconnect): each has credits of its own",
    ),
)
def credits_exhausted(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """As many calls were outstanding as the server's credits allow, so the client had to hold back the next until a
    reply came (RFC 8166, 3.3). That it did hold one back shows in calls that follow such a reply at once. What calls
    waited before they were sent is not on the wire, and in no latency that a capture shows.
    """
    for (number, backward), one in facts.rpcs.at_limit().items():
        if not one.busy or one.freed < limits["least_replies"]:
            continue
        blocked, refilled = one.blocked / one.busy, one.refilled / one.freed
        if blocked < limits["blocked_share"] or refilled < limits["refilled_share"]:
            continue
        who = ENDS[int(backward)]
        yield Cause(
            f"the {who} used all {plural(one.limit, 'credit')} for {percent(blocked)} of the time",
            one.refilled,
            blocked,
            "the time with calls outstanding",
            None,
            (
                f"{facts.ends(number)}: {duration(one.blocked)} of {duration(one.busy)};"
                f" {one.refilled:,} of {one.freed:,} replies were followed by the next call at once",
            ),
            (number,),
            confidence=0.5 + 0.45 * refilled if one.limit > 1 else 0.5,
            weakened_by=()
            if one.limit > 1
            else ("a program that makes one call after the other looks the same with a single credit",),
        )


@detector(
    "calls-hung",
    "Calls were never answered",
    Severity.PROBLEM,
    "calls without a reply although the capture went on",
    {
        "least_seconds": (1, "seconds that the capture went on after the call"),
        "times_slowest": (3, "how many times the slowest answered RPC of the capture that is, up to 10 s"),
    },
    (
        "rdmascope rpcs FILE --errors, and show FILE --rpc N: the call, and what came of its chunks",
        "rdmascope transport FILE: whether the server's transport acknowledged it",
        "the server: its log at that moment, threads that hang (D state, hung_task)",
    ),
)
def calls_hung(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A call was sent, and no reply came in all the time that the capture went on. Where the server's transport
    acknowledged the call, its upper layers have it; where it did not, the server or the way to it was gone. A call
    whose Read chunks were never read shows that the server did not begin to work on it.
    """
    slowest = facts.statistics.slowest()
    least = max(
        limits["least_seconds"] * 1e9,
        min(10e9, limits["times_slowest"] * slowest[0].latency.total) if slowest else 0,
    )
    hung = [one for one in facts.rpcs.unanswered if facts.last_time - one.time >= least]
    if not hung:
        return
    by_connection: dict[int, list[Unanswered]] = defaultdict(list)
    for one in hung:
        by_connection[one.connection].append(one)
    lines: list[str] = []
    missing = 0
    for number, mine in sorted(by_connection.items(), key=lambda one: -len(one[1])):
        names = Counter(label(one.key) for one in mine)
        text = f"{facts.ends(number)}: " + ", ".join(f"{count} {name}" for name, count in names.most_common(3))
        unread = sum(one.unread for one in mine)
        if unread:
            text += (
                "; no Read chunk of them was ever read"
                if unread == len(mine)
                else f"; of {unread} no Read chunk was ever read"
            )
        health = facts.healths.get(number)
        if health is not None:
            text += f"; {health.ended}"
            missing += sum(one.missing for one in health.directions)
        lines.append(text)
    hung.sort(key=lambda one: one.time)
    connection = facts.by_number[hung[0].connection].connection
    when = "the first {} before its connection ended" if connection.ended_time else CAPTURE_WENT_ON
    longest = (connection.ended_time or facts.last_time) - hung[0].time
    yield Cause(
        f"{plural(len(hung), 'call')} without a reply, {when.format(duration(longest))}",
        len(hung),
        len(hung) / facts.calls,
        "all RPCs",
        hung[0].time,
        tuple(lines[:3]),
        tuple(by_connection),
        tuple(one.number for one in hung[:5]),
        tuple(one.frame for one in hung[:5] if one.frame),
        0.5 if missing else 0.95,
        (f"{plural(missing, 'packet')} of these connections are not in the capture; replies may be among them",)
        if missing
        else (),
    )


@detector(
    "connection-lost",
    "Connections broke, and were made again",
    Severity.PROBLEM,
    "how each connection ended, and what came after it between the same hosts",
    {"least_connections": (1, "connections that ended in an error, or with requests unanswered")},
    (
        "rdmascope transport FILE: how each connection ended, and the last packets before it",
        "both hosts' kernel logs at that moment (xprtrdma, svcrdma: the completion's status)",
        "rdmascope audit FILE: a fatal NAK or a Terminate message mostly answers a violation",
    ),
)
def connection_lost(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A connection ended by a fatal NAK, a Terminate message, a reset, or after requests that nothing answered. RPCs
    that were outstanding are called again on the next connection, and wait for all of it: the timeout, the connecting,
    and the second attempt.
    """
    broken: dict[int, str] = {}
    for number, health in facts.healths.items():
        connection = facts.by_number[number].connection
        error = any(one.fatal_naks for one in health.directions) or connection.ended_by.startswith(("RST", "Terminate"))
        silent = "unanswered" in health.ended
        if (error or silent) and not connection.refused:
            broken[number] = health.ended
    if len(broken) < limits["least_connections"]:
        return
    beginnings: dict[tuple[str, str, int | None], list[tuple[int, int]]] = {}
    for one in facts.conversations:
        beginnings.setdefault(_service(one), []).append((one.connection.first_time, one.connection.number))
    for times in beginnings.values():
        times.sort()
    lines: list[str] = []
    again = 0
    for number, ended in broken.items():
        old = facts.by_number[number]
        times = beginnings[_service(old)]
        soonest = max(old.connection.first_time + 1, old.connection.last_time - RECONNECTING)
        at = bisect_left(times, (soonest, 0))
        again += at < len(times)
        if len(lines) < MAX_LINES:
            then = f"; then connection {times[at][1]}" if at < len(times) else ""
            lines.append(f"{facts.ends(number)}: {ended}{then}")
    numbers = tuple(broken)
    waiting = [one for one in facts.rpcs.unanswered if one.connection in broken]
    yield Cause(
        f"{plural(len(broken), 'connection')} broke; {again} of them made again",
        len(broken),
        len(broken) / len(facts.conversations),
        "all connections",
        None,
        tuple(lines),
        numbers,
        tuple(one.number for one in waiting[:5]),
        tuple(facts.by_number[number].connection.last_frame for number in numbers[:5]),
    )


def _service(conversation: Conversation) -> tuple[str, str, int | None]:
    """The two hosts, and the port between them."""
    client, server = conversation.connection.endpoints
    return client.address, server.address, conversation.connection.service_port


@detector(
    "connections-refused",
    "Connections were refused",
    Severity.PROBLEM,
    "connection management: REJ, MPA rejections",
    {"least_refused": (1, "connections that were refused")},
    (
        "whether the server listens on that port: 'rdma 20049' in its portlist (/proc/fs/nfsd/portlist)",
        "where it accepted connections before: whether it crashed or was restarted at that moment",
        "the reason: an invalid service ID means that nothing listens there",
    ),
)
def connections_refused(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The server, or its RDMA stack, answered a request to connect with a rejection. A mount fails with that, or falls
    back to TCP, where it may go unnoticed that nothing uses RDMA.
    """
    refused = [one.connection for one in facts.conversations if one.connection.refused]
    if len(refused) < limits["least_refused"]:
        return
    reasons = Counter(one.ended_by for one in refused)
    before = [one for one in facts.conversations if one.connection.first_time < refused[0].first_time]
    services = {_service(one) for one in facts.conversations if one.connection.refused}
    served = [one.connection for one in before if _service(one) in services and not one.connection.refused]
    last = max(served, key=lambda one: one.last_time, default=None)
    gone = (
        f"it had accepted connections until then: the last, connection {last.number}, ended"
        f" {duration(refused[0].first_time - last.ended_time)} before ({facts.healths[last.number].ended})"
        if last is not None and last.ended_time and last.number in facts.healths
        else ""
    )
    yield Cause(
        f"{plural(len(refused), 'connection')} refused: " + ", ".join(reason for reason, _ in reasons.most_common(3)),
        len(refused),
        len(refused) / len(facts.conversations),
        "all connections",
        refused[0].first_time,
        (*((gone,) if gone else ()), *(f"{facts.ends(one.number)}: {one.ended_by}" for one in refused[:3])),
        tuple(one.number for one in refused),
        (),
        tuple(one.first_frame for one in refused[:5]),
    )


@detector(
    "inline-threshold",
    "The inline threshold is too small",
    Severity.WARNING,
    "sizes of messages with chunks, against the inline threshold of their connection",
    {
        "least_messages": (50, "messages that took a chunk and would fit one of twice the size"),
        "message_share": (0.1, "share of all RPCs that they are"),
        "latency_share": (0.02, "share of the latency of all RPCs that their RDMA Reads and Writes took"),
    },
    (
        "rdmascope report FILE: the inline thresholds, and which end's private data set them",
        "the client's setting (xprtrdma: rdma_max_inline_read, rdma_max_inline_write) and the server's (svc_rdma"
        " max_req_size): the smaller counts",
        "where no private data was sent, 1024 bytes is the rule: newer software on one end may be all it takes",
    ),
)
def inline_threshold(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A message that does not fit into one Send of the inline threshold takes a chunk: memory is registered, and RDMA
    Reads or Writes and an invalidation come on top. Many of these messages would have fit, had the threshold been twice
    as large.
    """
    larger = facts.rpcs.larger
    total = sum(one.examples.count for one in larger.values())
    saved = sum(one.examples.total for one in larger.values())
    part = facts.share(saved) or 0.0
    if (
        total < limits["least_messages"]
        or total < limits["message_share"] * facts.calls
        or part < limits["latency_share"]
    ):
        return
    worst = sorted(larger, key=lambda place: -larger[place].examples.total)
    yield Cause(
        f"{plural(total, 'message')} took a chunk and would fit twice the inline threshold; that would save"
        f" {duration(saved)} of RDMA Reads and Writes",
        total,
        part,
        "the latency of all RPCs",
        None,
        tuple(
            f"{facts.ends(number)}: {larger[number, sender].examples.count:,} from the {ENDS[sender]},"
            f" whose threshold is {size(larger[number, sender].threshold)}"
            for number, sender in worst[:3]
        ),
        tuple(dict.fromkeys(number for number, _ in worst if number)),
        tuple(number for place in worst for number in larger[place].examples.rpcs)[:5],
        tuple(frame for place in worst for frame in larger[place].examples.frames)[:5],
        0.8,
        ("what registering memory costs the client is not on the wire, and comes on top",),
    )
