"""Silent hosts, credits, calls without a reply, connections that ended or were refused, and inline thresholds."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from ...onc.rpc_header import procedure_label
from ...rpcrdma.conversation import ENDS, Conversation
from ...rpcrdma.unanswered import ConnectionEnds, service_of
from ...transport.connection import REFUSED, UNANSWERED, Connection, ending_words
from ...transport.rc.health import NOT_RETRANSMITTED
from ...units import duration, moment, percent, plural, size, with_port
from ..facts import Cause, Facts, Limits, Severity, detector, label
from ..rpc_facts import Unanswered

DAMAGE_UNKNOWN = "frames are truncated, so that no ICRC shows whether one of the two was damaged on the way"
MAX_LINES = 3
NOT_LISTENING = "REJ (Invalid Service ID)", REFUSED
"""How a connection ends if nothing listens on its port."""
SECOND = 1_000_000_000
RECONNECTING = 5_000_000_000
"""Nanoseconds that a new connection may begin before the last packet of the one that it replaces."""


@detector(
    "credits-exhausted",
    "Calls wait for credits",
    Severity.PROBLEM,
    "calls outstanding against the credits granted",
    {
        "blocked_share": (0.1, "share of the time with calls outstanding during which all credits were in use"),
        "least_replies": (20, "replies that brought back a credit while all were in use"),
        "refilled_share": (0.5, "share of these replies that the next call followed within 100 µs"),
    },
    (
        "rdmascope transport --credits FILE: requested, granted and outstanding over time",
        "the server's slots for RPC-over-RDMA (svc_rdma max_requests) and the client's (rdma_slot_table_entries): the"
        " lower number decides",
        "more connections (nconnect): each has credits of its own",
    ),
)
def credits_exhausted(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The client had as many calls outstanding as the server's credits allow, and had to hold back the next until a
    reply came (RFC 8166, 3.3). Calls that follow such a reply at once show that it did. The time that calls wait before
    they are sent is not on the wire, nor in any latency shown here.
    """
    if facts.hosts.all.whole("client"):
        return  # The client's own trace tells what waited: credit-wait.
    for (number, backward), state in facts.rpcs.at_limit(int(limits["least_replies"])).items():
        if not state.busy or state.freed < limits["least_replies"]:
            continue
        blocked, refilled = state.blocked / state.busy, state.refilled / state.freed
        if blocked < limits["blocked_share"] or refilled < limits["refilled_share"]:
            continue
        who = ENDS[int(backward)]
        used = f"the {who}'s only credit" if state.limit == 1 else f"all {state.limit} credits of the {who}"
        yield Cause(
            f"{used} in use for {percent(blocked)} of the time",
            state.refilled,
            blocked,
            "the time with calls outstanding",
            None,
            (
                f"{facts.ends(number)}: {duration(state.blocked)} of {duration(state.busy)};"
                f" {state.refilled:,} of {state.freed:,} replies were followed by the next call at once",
            ),
            (number,),
            confidence=0.5 + 0.45 * refilled if state.limit > 1 else 0.5,
            weakened_by=()
            if state.limit > 1
            else ("with a single credit, a program that makes one call at a time looks the same",),
            lost=state.blocked,
        )


@detector(
    "calls-hung",
    "Calls hang",
    Severity.PROBLEM,
    "calls without a reply while the capture went on",
    {
        "least_seconds": (1, "seconds from the call to the end of the capture"),
        "times_slowest": (3, "multiple of the slowest answered RPC of the capture, up to 10 s"),
    },
    (
        "rdmascope rpcs FILE --errors, and show FILE --rpc N: the call, and what became of its chunks",
        "rdmascope transport FILE: whether the server's transport acknowledged it",
        "the server: its log at that moment, threads that hang (D state, hung_task)",
    ),
    follows_from=("host-silent",),
)
def calls_hung(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A call got no reply although the capture went on. If the server's transport acknowledged the call, its upper
    layers have it; if not, the server or the path to it was down. A call whose Read chunks were never read was not
    started by the server. Calls to a host that stopped responding are part of that statement (host-silent). If the
    capture lacks packets behind a call, its reply may be among them, and a call that was neither acknowledged nor
    retransmitted proves that packets are missing. Whether such calls hang cannot be told: they are a warning at most,
    and not mentioned if others certainly hang.
    """
    least = max(
        limits["least_seconds"] * 1e9,
        min(10e9, limits["times_slowest"] * max((procedure.longest for procedure in facts.procedures), default=0)),
    )
    silent = {number for host in facts.silences for number in host.connections}
    one_sided = {
        conversation.connection.number for conversation in facts.conversations if conversation.connection.one_sided
    }
    known = [call for call in facts.hung if call.waiting >= least and call.connection not in silent]
    doubtful = [
        call
        for call in facts.rpcs.unanswered
        if (call.waiting < 0 or facts.unacknowledged(call))
        and facts.end_of(call.frame) - call.time >= least
        and call.connection not in silent | one_sided
    ]
    hung = known or doubtful
    if not hung:
        return
    by_connection: dict[int, list[Unanswered]] = defaultdict(list)
    for call in hung:
        by_connection[call.connection].append(call)
    lines: list[str] = []
    for number, mine in sorted(by_connection.items(), key=lambda item: -len(item[1])):
        names = Counter(label(call.key) for call in mine)
        text = f"{facts.ends(number)}: " + ", ".join(f"{count} {name}" for name, count in names.most_common(3))
        unread = sum(call.unread for call in mine)
        if unread:
            text += "; Read chunks never read" if unread == len(mine) else f"; Read chunks of {unread} never read"
        health = facts.healths.get(number)
        if health is not None:
            text += f"; {ending_words(health.ended)}"
        lines.append(text)
    headline = hung_text(facts, known) if known else ""
    yield Cause(
        headline or f"{plural(len(hung), 'call')} without a reply, which the capture may have missed",
        len(hung),
        None if known else len(hung) / facts.calls,
        "" if known else "all RPCs",
        min(call.time for call in hung),
        tuple(lines[:3]),
        tuple(by_connection),
        tuple(call.number for call in hung[:5]),
        tuple(call.frame for call in hung[:5] if call.frame),
        0.95 if known else 0.5,
        ()
        if known
        else ("packets are missing from the capture, unreadable or out of order; replies may be among them",),
        severity=None if known else Severity.WARNING,
        title="" if known else "Calls without a reply",
        # The time that they waited for retransmissions belongs to those statements.
        lost=sum(call.waiting - call.delayed for call in known) if known else None,
        headline=headline,
    )


def hung_text(facts: Facts, hung: Sequence[Unanswered], speaker: bool = True) -> str:
    """'CREATE /export/w3 (RPC 26) has hung for 46.0 s; the server last spoke at 10:02:13 UTC; 7 more calls'.

    ``hung``: the longest first.  ``speaker``: say when the other end last spoke.
    """
    first = hung[0]
    called = procedure_label(first.key.name, first.key.operations)
    name = f"{called} {facts.paths.get(first.number, first.named)}".rstrip()
    until, conversation = first.time + first.waiting, facts.by_number.get(first.connection)
    ended = _ended(conversation, until < facts.end_of(first.frame) - SECOND)
    text = f"{name} (RPC {first.number}) {'hung' if ended else 'has hung for'} {duration(first.waiting)}{ended}"
    replier = 0 if first.backward else 1
    if conversation is not None and speaker:
        spoke, to_any = facts.last_spoke(first.connection, replier, until)
        to = f" to {conversation.connection.endpoints[1 - replier].address}" if to_any - spoke > SECOND else ""
        text += f"; the {ENDS[replier]} last spoke{to} at {moment(spoke)[11:19]} UTC" if spoke else ""
    more = len(hung) - 1
    return text + (f"; {plural(more, 'more call', 'more calls')}" if more else "")


def _ended(conversation: Conversation | None, went_on: bool) -> str:
    """What ended the wait on a connection; '' if the capture ended first."""
    ended = conversation.connection.ended_by if conversation is not None else ""
    how, _, who = ended.partition(" from the ")
    if who in ENDS:
        return f" until the {who} closed the connection ({how})"
    return f" until its connection ended ({ended})" if ended else " until the client connected again" * went_on


@detector(
    "connection-lost",
    "Connection lost",
    Severity.PROBLEM,
    "how each connection ended, and what came after it between the same hosts",
    {"least_connections": (1, "connections that ended in an error or with requests unanswered")},
    (
        "rdmascope transport FILE: how each connection ended, and the last packets before it",
        "both hosts' kernel logs at that moment (xprtrdma, svcrdma: the completion's status)",
        "rdmascope audit FILE: a fatal NAK or a Terminate message usually answers a violation",
    ),
    follows_from=("host-silent", "calls-hung"),
)
def connection_lost(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A connection ended by a fatal NAK, a Terminate message or a reset, or with requests unanswered. Outstanding RPCs
    are called again on the next connection, after the timeout and the reconnect.
    """
    gone = {number for host in facts.silences for number in host.connections}
    ends = ConnectionEnds(conversation.connection for conversation in facts.conversations)
    broken: dict[int, str] = {}
    for number, health in facts.healths.items():
        connection = facts.by_number[number].connection
        error = any(direction.fatal_naks for direction in health.directions) or connection.ended_by.startswith(
            ("RST", "Terminate")
        )
        since = [direction.waiting_since for direction in health.directions if direction.waiting_since is not None]
        behind = bool(since) and any(gap.time >= min(since) for gaps in connection.gaps for gap in gaps)
        behind = behind or ends.of(connection, facts.end_of(connection.last_frame)) is None
        # A sender that gets no answer retransmits.  If it did not, and packets after its request are missing from the
        # capture, the answer may be missing, too.
        silent = "unanswered" in health.ended and not (behind and health.ended.endswith(NOT_RETRANSMITTED))
        if (error or (silent and number not in gone)) and not connection.refused:
            broken[number] = ending_words(health.ended)
    if len(broken) < limits["least_connections"]:
        return
    beginnings: dict[tuple[str, str, int | None], list[tuple[int, int]]] = {}
    for conversation in facts.conversations:
        beginnings.setdefault(service_of(conversation.connection), []).append(
            (conversation.connection.first_time, conversation.connection.number)
        )
    for times in beginnings.values():
        times.sort()
    lines: list[str] = []
    again = 0
    for number, ended in broken.items():
        old = facts.by_number[number]
        times = beginnings[service_of(old.connection)]
        soonest = max(old.connection.first_time + 1, old.connection.last_time - RECONNECTING)
        at = bisect_left(times, (soonest, 0))
        again += at < len(times)
        if len(lines) < MAX_LINES:
            then = f"; then connection {times[at][1]}" if at < len(times) else ""
            lines.append(f"{facts.ends(number)}: {ended}{then}")
    numbers = tuple(broken)
    waiting = [call for call in facts.rpcs.unanswered if call.connection in broken]
    yield Cause(
        f"{plural(len(broken), 'connection')} lost"
        + (
            " and re-established"
            if again == len(broken)
            else f", {again} re-established"
            if again
            else ", not re-established"
        ),
        len(broken),
        len(broken) / len(facts.conversations),
        "all connections",
        None,
        tuple(lines),
        numbers,
        tuple(call.number for call in waiting[:5]),
        tuple(facts.by_number[number].connection.last_frame for number in numbers[:5]),
        lost=sum(max(0, call.waiting - call.delayed) for call in waiting),
    )


@detector(
    "connections-refused",
    "Connections refused",
    Severity.PROBLEM,
    "connection management: REJ, MPA rejections",
    {"least_refused": (1, "connections refused")},
    (
        "whether the server listens on that port: 'rdma 20049' in /proc/fs/nfsd/portlist",
        "if it accepted connections before: whether it crashed or was restarted at that moment",
        "the reason: an invalid service ID means that nothing listens on the port",
    ),
)
def connections_refused(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """The server or its RDMA stack rejected a connection request. The mount fails, or
    silently falls back to TCP.
    """
    refused = [conversation.connection for conversation in facts.conversations if conversation.connection.refused]
    if len(refused) < limits["least_refused"]:
        return
    reasons = Counter(connection.ended_by for connection in refused)
    before = [
        conversation
        for conversation in facts.conversations
        if conversation.connection.first_time < refused[0].first_time
    ]
    services = {
        service_of(conversation.connection) for conversation in facts.conversations if conversation.connection.refused
    }
    served = [
        conversation.connection
        for conversation in before
        if service_of(conversation.connection) in services
        and not (conversation.connection.refused or conversation.connection.unanswered)
    ]
    last = max(served, key=lambda connection: connection.last_time, default=None)
    gone = _stopped_listening(facts, last, refused[0]) if last is not None and last.number in facts.healths else ""
    yield Cause(
        f"{plural(len(refused), 'connection')} refused: " + ", ".join(reason for reason, _ in reasons.most_common(3)),
        len(refused),
        len(refused) / len(facts.conversations),
        "all connections",
        refused[0].first_time,
        (
            *((gone,) if gone else ()),
            *(f"{facts.ends(connection.number)}: {connection.ended_by}" for connection in refused[:3]),
        ),
        tuple(connection.number for connection in refused),
        (),
        tuple(connection.first_frame for connection in refused[:5]),
        lost=_asked_in_vain(facts, refused),
    )


@detector(
    "connections-unanswered",
    "Connection requests without an answer",
    Severity.PROBLEM,
    "repeated REQs and SYNs, and the answers that the capture has to them",
    {},
    (
        "whether that server is up: its console, its power, its port",
        "whether something between them drops requests: a firewall, a VLAN, UDP port 4791 of RoCE",
        "a capture at the server: whether the requests arrive, and whether it answers",
    ),
)
def connections_unanswered(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A client asked for a connection again and again, and nothing answered, not even a rejection: the server is down,
    or requests or answers do not get through.
    """
    asked: dict[tuple[str, int | None, str], dict[str, list[Connection]]] = defaultdict(lambda: defaultdict(list))
    for conversation in facts.conversations:
        connection = conversation.connection
        if connection.unanswered:
            client, server = (end.address for end in connection.endpoints)
            asked[server, connection.service_port, connection.ended_by.split()[-1]][client].append(connection)
    spoke = {
        end.address
        for number, health in facts.healths.items()
        for end, sent in zip(facts.by_number[number].connection.endpoints, health.directions, strict=True)
        if asked and sent.last_time
    }
    for (server, port, what), by_client in asked.items():
        alike: Mapping[str, list[Connection]] = by_client
        if len(by_client) > MAX_LINES:
            alike = {plural(len(by_client), "client"): [one for each in by_client.values() for one in each]}
        for who, connections in alike.items():
            count = sum(int(connection.ended_by.removeprefix(UNANSWERED).split()[0]) for connection in connections)
            since = min(connection.first_time for connection in connections)
            waited = duration(max(connection.last_time for connection in connections) - since)
            yield Cause(
                f"{who} asked {with_port(server, port)} for {plural(len(connections), 'connection')}: no answer to"
                f" {count} {what} in {waited}, from {moment(since)[11:19]} UTC on",
                count,
                len(connections) / len(facts.conversations),
                "all connections",
                since,
                tuple(f"{facts.ends(connection.number)}: {connection.ended_by}" for connection in connections[:3]),
                tuple(connection.number for connection in connections),
                (),
                tuple(connection.first_frame for connection in connections[:5]),
                0.9 if server in spoke else 0.7,
                ()
                if server in spoke
                else (f"nothing that {server} sent is in the capture, which may have one direction only",),
                lost=_asked_in_vain(facts, connections),
            )


def _asked_in_vain(facts: Facts, connections: Sequence[Connection]) -> int:
    """Nanoseconds that clients spent asking for these connections while they had no other to the same server, each from
    its first to its last attempt."""
    numbers = {connection.number for connection in connections}
    asked: dict[tuple[str, str, int | None], list[Connection]] = defaultdict(list)
    for conversation in facts.conversations:
        asked[service_of(conversation.connection)].append(conversation.connection)
    lost = served = 0
    for of_service in asked.values():
        of_service.sort(key=attrgetter("first_time"))
        for in_vain, in_a_row in groupby(of_service, lambda connection: connection.number in numbers):
            spans = [(connection.first_time, connection.last_time) for connection in in_a_row]
            last = max(end for _, end in spans)
            if in_vain:
                lost += max(0, last - max(spans[0][0], served))
            else:
                served = max(served, last)
        served = 0
    return lost


def _stopped_listening(facts: Facts, served: Connection, refused: Connection) -> str:
    """The last event on a connection that the server accepted before it refused another; '' if it continues."""
    stopped = "the server stopped listening" if refused.ended_by.startswith(NOT_LISTENING) else "the server refused"
    open_calls = [call for call in facts.hung if call.connection == served.number and not call.backward]
    first = min(open_calls, key=lambda call: call.time, default=None)
    if first is not None and first.time <= refused.first_time:
        called = procedure_label(first.key.name, first.key.operations)
        after = f"after RPC {first.number} ({called}) went unanswered"
        return f"{stopped} {duration(refused.first_time - first.time)} {after}"
    if not served.ended_time:
        return ""
    ended = f"after connection {served.number} ended ({facts.healths[served.number].ended})"
    return f"{stopped} {duration(refused.first_time - served.ended_time)} {ended}"


@detector(
    "psn-reused",
    "PSN errors: new requests taken for duplicates",
    Severity.PROBLEM,
    "PSNs of new requests, against those of earlier requests of their sender",
    {"least_errors": (1, "new requests with the PSN of an earlier one")},
    (
        "rdmascope transport FILE: which end, and the frames of both requests",
        "duplicate_request in the hw_counters of the RDMA device that receives them",
        "driver and firmware of the RDMA device that sends them",
    ),
)
def psn_reused(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A queue pair sent a new request with a PSN that one of its earlier requests had taken. The receiver takes it for
    a duplicate and drops what it carries (InfiniBand volume 1, 9.7.5.1.5), so that a call or reply is lost and the
    connection may stall.
    """
    connections = [conversation.connection for conversation in facts.conversations]
    reused = [(connection.number, error) for connection in connections for error in connection.reused_psns]
    if len(reused) < limits["least_errors"]:
        return
    doubtful = facts.truncated_frames > 0 and all(error.verb == error.earlier_verb for _, error in reused)
    yield Cause(
        f"{plural(len(reused), 'new request')} sent with the PSN of an earlier one",
        len(reused),
        evidence=tuple(
            f"{facts.ends(number)}: the {ENDS[error.sender]}'s {error.verb} in frame {error.frame} has PSN {error.psn},"
            f" as its {error.earlier_verb} in frame {error.earlier_frame}"
            for number, error in reused[:MAX_LINES]
        ),
        connections=tuple(dict.fromkeys(number for number, _ in reused)),
        frames=tuple(error.frame for _, error in reused[:5]),
        confidence=0.5 if doubtful else 1.0,
        weakened_by=(DAMAGE_UNKNOWN,) if doubtful else (),
        severity=Severity.WARNING if doubtful else None,
    )


@detector(
    "inline-threshold",
    "Inline threshold too small",
    Severity.WARNING,
    "sizes of messages with chunks, against the inline threshold of their connection",
    {
        "least_messages": (50, "messages in chunks that would fit inline with twice the threshold"),
        "message_share": (0.1, "their share of all RPCs"),
        "latency_share": (0.02, "share of the latency of all RPCs taken by their RDMA Reads and Writes"),
    },
    (
        "rdmascope report FILE: the inline thresholds, and which end's private data set them",
        "the client's setting (xprtrdma: rdma_max_inline_read, rdma_max_inline_write) and the server's (svc_rdma"
        " max_req_size): the smaller one counts",
        "without private data the threshold is 1024 bytes: newer software on one end may be all it takes",
    ),
)
def inline_threshold(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A message larger than the inline threshold needs a chunk: a memory registration, RDMA Reads or Writes and an
    invalidation. Many of these messages would fit inline if the threshold were twice as large.
    """
    larger = facts.rpcs.larger
    total = sum(excess.examples.count for excess in larger.values())
    saved = sum(excess.examples.total for excess in larger.values())
    part = facts.share(saved)
    if (
        total < limits["least_messages"]
        or total < limits["message_share"] * facts.calls
        or part < limits["latency_share"]
    ):
        return
    worst = sorted(larger, key=lambda key: (-larger[key].examples.total, key))
    yield Cause(
        f"{plural(total, 'message')} in chunks would fit twice the inline threshold; RDMA Reads and Writes of"
        f" {duration(saved)} saved",
        total,
        None,
        "",
        None,
        tuple(
            f"{facts.ends(number)}: {larger[number, sender].examples.count:,} from the {ENDS[sender]},"
            f" threshold {size(larger[number, sender].threshold)}"
            for number, sender in worst[:3]
        ),
        tuple(dict.fromkeys(number for number, _ in worst if number)),
        tuple(number for key in worst for number in larger[key].examples.rpcs)[:5],
        tuple(frame for key in worst for frame in larger[key].examples.frames)[:5],
        0.8,
        ("the client's cost of memory registration is not on the wire, and comes on top",),
        lost=saved,
    )


@detector(
    "host-silent",
    "Host stopped responding",
    Severity.PROBLEM,
    "the last packet of each host, and what others sent it after that",
    {"least_hosts": (1, "hosts that acknowledged nothing in the last 2 s of the capture, though others sent to them")},
    (
        "whether that host is up: its console, its power, its kernel log at that moment",
        "whether the path to it is up: its port, the switch, a capture at its end",
        "rdmascope transport FILE: what was sent to it and never acknowledged",
    ),
    leads=True,
)
def host_silent(facts: Facts, limits: Limits) -> Iterator[Cause]:
    """A host sent nothing more on any connection, not even an acknowledgement, though others sent to it until the
    capture ended. Either the host is down, or the path from it to the capture point: a capture cannot tell which.
    Retransmissions to it do not count as packet loss. Calls outstanding on these connections are part of this statement
    (no calls-hung beside it).
    """
    silent = facts.silences
    if len(silent) < limits["least_hosts"]:
        return
    for host in silent:
        lines: list[str] = []
        outstanding = [call for call in facts.rpcs.unanswered if call.connection in host.connections]
        for number in host.connections[:3]:
            peer = facts.healths[number].directions[1 - host.end]
            names = Counter(label(call.key) for call in outstanding if call.connection == number)
            calls = ", ".join(f"{count} {name}" for name, count in names.most_common(3)) or "no call outstanding"
            waits = duration(host.until - (peer.waiting_since or host.since))
            lines.append(f"{facts.ends(number)}: {calls}; {ENDS[1 - host.end]}'s packets unacknowledged for {waits}")
        missing = sum(
            direction.missing for number in host.connections for direction in facts.healths[number].directions
        )
        hung = [call for call in facts.hung if call.connection in host.connections]
        where = "connection" if len(host.connections) == 1 else "connections"
        calls = hung_text(facts, hung, speaker=False) if hung else "no call outstanding"
        text = (
            f"{ENDS[host.end]} {host.address} stopped responding at {moment(host.since)[11:19]} UTC,"
            f" {duration(host.until - host.since)} before the capture ended; {calls}, on {where}"
            f" {', '.join(map(str, host.connections[:5]))}{', …' if len(host.connections) > 5 else ''}"
        )
        yield Cause(
            text,
            len(outstanding),
            None,
            "",
            host.since,
            tuple(lines),
            host.connections,
            tuple(call.number for call in outstanding[:5]),
            tuple(call.frame for call in outstanding[:5] if call.frame),
            0.7 if missing else 0.95,
            (f"{plural(missing, 'packet')} of these connections not in the capture",) if missing else (),
            lost=sum(max(0, call.waiting) for call in outstanding),
            headline=hung_text(facts, hung) if hung else "",
        )
