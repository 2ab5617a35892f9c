"""NFSv4 state: a part for each client with its sessions, then requests out of order, delegations and waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from rdmascope.dissect.measure.data_servers import DataServers, DataTraffic
from rdmascope.dissect.measure.gss_contexts import GssContext
from rdmascope.dissect.measure.nfs_state import (
    FALSE_RETRY,
    GAP,
    RETRY,
    HeldState,
    NfsClient,
    NfsSession,
    SlotEvent,
    SlotTable,
    StateTable,
    StatusTally,
    Wait,
)
from rdmascope.dissect.measure.nfs_state_history import NO_REPLY, NfsStateHistory
from rdmascope.dissect.measure.nfs_waits import DELAY, NO_CREDIT, NO_SLOT, RECALL, waits
from rdmascope.dissect.onc.naming import handle_hash
from rdmascope.dissect.onc.rpc_header import procedure_label
from rdmascope.dissect.onc.shapes.rfc8881 import SEQ4_STATUS
from rdmascope.dissect.units import count, duration, plural, size

from .tables import Cell, Grid, counted, flagged, heading, indented

MAX_LISTED = 10
"""Rows of one kind, unless all are asked for."""
BEFORE = "before the capture"
_RETURNED = {"opens": "closed", "locks": "unlocked", "delegations": "returned", "layouts": "returned"}
UNCACHED = "NFS4ERR_RETRY_UNCACHED_REP"


def state_view(history: NfsStateHistory, everything: bool = False, truncated: bool = False) -> RenderableType:
    """``truncated``: some frames of the capture are, so what none shows may have been there."""
    parts: list[RenderableType] = []
    for client in history.clients:
        parts += [client_view(client, history.last_time, truncated), Text()]
        for session in history.sessions:
            if session.client is client:
                parts += [indented(session_view(session)), Text()]
    events = [
        (session, "" if table is session.fore else "back ", event)
        for session in history.sessions
        for table in (session.fore, session.back)
        for event in table.events
    ]
    if events:
        parts += [events_view(events, everything), Text()]
    delegations = [
        (client, state)
        for client in history.clients
        for state in client.listed
        if everything or state.recalled_frame or state.revoked or not state.returned_frame
    ]
    if delegations:
        parts += [delegations_view(delegations, everything), Text()]
    if history.pnfs.servers or history.pnfs.connections():
        parts += [data_servers_view(history.pnfs, everything), Text()]
    if history.security.contexts:
        parts += [contexts_view(history.security.contexts, everything), Text()]
    parts.append(waits_view(waits(history), history.clients[0].time if history.clients else 0, everything))
    return Group(*parts)


# Clients


def client_view(client: NfsClient, last_time: int, truncated: bool = False) -> RenderableType:
    version = "NFSv4" + ("" if client.minor_version is None else f".{client.minor_version}")
    ends = f"{', '.join(client.addresses) or '?'} → {', '.join((client.server, *client.server_addresses))}"
    title = Text.assemble((f"Client {client.number}", "bold"), f"  {version}  {ends}")
    return Group(title, Grid(("", ""), (), list(_client_rows(client, last_time, truncated)), flexible=1, gap=2))


def _client_rows(client: NfsClient, last_time: int, truncated: bool) -> Iterator[list[Cell]]:
    if client.owner is not None:
        yield ["owner", client.owner.decode("utf-8", "backslashreplace")]
    made = [text for text in (client.implementation, client.server_implementation) if text]
    if made:
        yield ["implementation", " / server: ".join(made)]
    if client.roles:
        yield ["server roles", ", ".join(client.roles)]
    id = "not in the capture" if client.id is None else f"{client.id:016x}"
    since = f"frame {client.frame}" if client.frame else BEFORE + (" or in a truncated frame" if truncated else "")
    text = f"{id}, {since}"
    if client.frame and not client.confirmed_frame and truncated:
        text += ", whether it was confirmed is not known: frames are truncated"
    elif client.frame and not client.confirmed_frame:
        text += ", not confirmed: no session was created" if client.minor_version else ", not confirmed"
    if client.ended_by:
        text += f"; ended by {client.ended_by}, frame {client.ended_frame}"
    yield ["client ID", text]
    if client.before is not None:
        yield ["before that", f"client {client.before.number}" + (f": {client.lost}" if client.lost else "")]
    if client.lost_at is not None:
        yield ["state lost", Text(f"frame {client.lost_at[1]}", "red")]
    if client.reclaims or client.lost:
        done = f"RECLAIM_COMPLETE in frame {client.reclaim_complete}" if client.reclaim_complete else "not completed"
        yield ["reclaimed", f"{plural(client.reclaims, 'open or lock', 'opens and locks')}; {done}"]
    if client.renewals:
        yield ["lease", _lease(client, last_time)]
    for kind, table in client.states():
        if table.granted or table.returned or table.recalled:
            yield [kind, _states(kind, table, client)]
    if client.statuses:
        yield ["failures", ", ".join(_tally(name, status) for name, status in client.statuses.items())]


def _lease(client: NfsClient, last_time: int) -> Text:
    known = f"{client.lease} s" if client.lease is not None else "not in the capture"
    text = Text(f"{known}; renewed by {plural(client.renewals, 'reply', 'replies')}")
    if client.longest is not None:
        passed, first, last = client.longest
        late = client.lease is not None and passed > client.lease * 1_000_000_000
        text.append(f", longest interval {duration(passed)} (frames {first}-{last})", "red" if late else "")
        if late:
            text.append(": longer than the lease", "red")
    if client.renewed is not None and not client.ended_frame and last_time > client.renewed[0]:
        text.append(f", last {duration(last_time - client.renewed[0])} before the end")
    return text


def _states(kind: str, table: StateTable, client: NfsClient) -> str:
    text = f"{count(table.granted)} granted, {count(table.returned)} {_RETURNED[kind]}"
    if table.earlier:
        text += f" ({count(table.earlier)} of them granted {BEFORE})"
    if table.recalled:
        text += f", {count(table.recalled)} recalled"
    held = len(table.held) + table.untracked
    if held:
        text += f", {count(held)} {'not seen returned' if client.last_gap else 'held at the end'}"
        named = [
            f"{handle_hash(held_state.handle):#010x}"
            for held_state in table.held.values()
            if held_state.handle is not None
        ]
        if named and kind == "opens":
            text += f" (file handles {', '.join(named[:3])}{', …' if len(named) > 3 else ''})"
    if kind == "locks" and client.denied:
        text += f", {count(client.denied)} denied"
    return text


def _tally(name: str, tally: StatusTally) -> str:
    frames = (
        str(tally.first_frame) if tally.first_frame == tally.last_frame else f"{tally.first_frame}-{tally.last_frame}"
    )
    return f"{name} {count(tally.count)} (frame{'s' if '-' in frames else ''} {frames})"


# Sessions


def session_view(session: NfsSession) -> RenderableType:
    title = Text.assemble((f"Session {session.number}", "bold"), f"  {session.id.hex()}, ")
    title.append(f"frame {session.frame}" if session.frame else f"created {BEFORE}")
    if session.ended_by:
        style = "" if session.ended_by == "DESTROY_SESSION" else "red"
        title.append(f"; ended by {session.ended_by}, frame {session.ended_frame}", style)
    names = ("channel", "requests", "slots", "peak in use", "highest slot", "at the limit", "retries", "gaps")
    rows = [
        _channel_row(name, slot_table)
        for name, slot_table in (("fore", session.fore), ("back", session.back))
        if _seen(slot_table)
    ]
    parts: list[RenderableType] = [title]
    joined = ", ".join(f"{number} ({how})" for number, how in session.connections.items())
    parts.append(indented(Text(f"connections: {joined or 'none seen'}")))
    if session.flags:
        flags = ", ".join(_tally(SEQ4_STATUS.flags.get(bit, hex(bit)), flag) for bit, flag in session.flags.items())
        parts.append(indented(Text(f"status flags: {flags}", "yellow")))
    if rows:
        parts.append(Grid(names[:1], names[1:], rows, flexible=5, gap=2))
    return Group(*parts)


def _seen(table: SlotTable) -> bool:
    return bool(table.requests) or table.agreed is not None


def _channel_row(name: str, table: SlotTable) -> list[Cell]:
    slots = "?" if table.agreed is None else str(table.agreed)
    if table.targets is not None and (table.agreed is None or table.targets[0] + 1 < table.agreed):
        low, high = table.targets
        slots += f", allowed {low + 1}" + (f" to {high + 1}" if high != low else "")
    limit = f"{duration(table.at_limit)}, {plural(table.at_limit_count, 'time')}" if table.at_limit_count else "-"
    return [
        name,
        count(table.requests),
        slots,
        str(table.max_in_use) if table.requests else "-",
        "-" if table.highest is None else str(table.highest),
        Text(limit, "yellow" if table.at_limit else ""),
        flagged(table.retries, "yellow"),
        flagged(table.gaps, "red"),
    ]


# Requests that are not the next on their slot


def events_view(events: Sequence[tuple[NfsSession, str, SlotEvent]], everything: bool) -> RenderableType:
    shown = events if everything else events[:MAX_LISTED]
    rows: list[list[Cell]] = []
    for session, channel, event in shown:
        use, earlier = event.use, event.earlier
        good = use.status == "OK"
        rows.append(
            [
                event.kind,
                f"{session.number} {channel}".strip(),
                str(event.use.slot),
                str(use.sequence),
                str(use.rpc),
                f"{use.frame}-{use.reply_frame or ''}",
                str(earlier.rpc) if earlier is not None else "-",
                Text(use.status.removeprefix("NFS4ERR_") or "no reply", "" if good else "red"),
                procedure_label("", use.operations),
            ]
        )
    names = ("", "session", "slot", "seq", "RPC", "frames", "before", "answered", "operations")
    parts: list[RenderableType] = [heading("Requests out of order on their slots")]
    parts.append(Grid(names, (), rows, flexible=8))
    parts += _more(len(events) - len(shown))
    parts += [indented(Text(line)) for line in explanations([event for *_, event in events])]
    return Group(*parts)


def explanations(events: Sequence[SlotEvent]) -> Iterator[str]:
    """What servers said to such requests, and why."""
    if any(event.kind == RETRY for event in events):
        yield "retry: the request before on that slot, retransmitted with its sequence ID."
    uncached = [event for event in events if event.use.status == UNCACHED]
    if uncached:
        earlier = uncached[0].earlier
        text = "RETRY_UNCACHED_REP: the server had carried the request out, and kept no reply to give again"
        if earlier is not None and not earlier.cached:
            text += f", as RPC {earlier.rpc} had not asked for that (sa_cachethis FALSE)"
        if earlier is not None and not earlier.reply_frame:
            text += "; its reply was lost, or is not in the capture"
        yield f"{text}.  The client must send the operations anew, with the next sequence ID."
    if any(event.kind == FALSE_RETRY for event in events):
        yield "false retry: other operations than before with that sequence ID."
    if any(event.kind == GAP for event in events):
        yield "gap: requests before it are not in the capture, or, where SEQ_MISORDERED answers it, the client erred."


# Delegations


def delegations_view(delegations: Sequence[tuple[NfsClient, HeldState]], everything: bool) -> RenderableType:
    shown = delegations if everything else delegations[:MAX_LISTED]
    rows: list[list[Cell]] = [
        [
            state.kind,
            str(client.number),
            f"{handle_hash(state.handle):#010x}" if state.handle is not None else "?",
            str(state.frame) if state.frame else BEFORE,
            str(state.recalled_frame) if state.recalled_frame else "-",
            str(state.returned_frame) + (" (revoked)" if state.revoked else "") if state.returned_frame else "-",
            _took(client, state),
            counted(state.delays),
        ]
        for client, state in shown
    ]
    names = ("", "client", "handle", "granted", "recalled", "returned", "took", "calls delayed")
    title = heading("Delegations", "in frames; those recalled, revoked or held at the end")
    return Group(title, Grid(names[:3], names[3:], rows, gap=2), *_more(len(delegations) - len(shown)))


def _took(client: NfsClient, state: HeldState) -> Cell:
    if not state.recalled_frame:
        return "-"
    if state.recall_time is not None:
        return duration(state.recall_time)
    return "return not seen" if client.last_gap > state.recalled_frame else Text("not returned", "red")


# pNFS


def data_servers_view(servers: DataServers, everything: bool) -> RenderableType:
    connections = servers.connections()
    rows: list[list[Cell]] = []
    for server in servers.servers.values():
        mine = [(number, traffic) for number, (traffic, data_server) in connections.items() if data_server is server]
        address = server.address if server.port is None else f"{server.address} port {server.port}"
        named = f"{server.metadata_server}, frame {server.frame}"
        rows.append([address, ", ".join(server.networks), named, *_traffic(mine)])
    for number, (traffic, data_server) in connections.items():
        if data_server is None:
            rows.append([traffic.server, "", "file handles of layouts", *_traffic([(number, traffic)])])
    shown = rows if everything else rows[:MAX_LISTED]
    others = [traffic for number, traffic in servers.traffic.items() if number not in connections]
    names = ("", "network", "named by", "connections", "calls", "bytes")
    title = heading("pNFS data servers", "calls: READ and WRITE")
    parts: list[RenderableType] = [title, Grid(names[:4], names[4:], shown, flexible=2, gap=2)]
    parts += _more(len(rows) - len(shown))
    if others:
        calls, moved = sum(other.calls for other in others), sum(other.bytes for other in others)
        text = f"{plural(calls, 'READ or WRITE call')} ({size(moved)}) went to other servers, as the metadata server"
        parts.append(indented(Text(text)))
    return Group(*parts)


def _traffic(mine: Sequence[tuple[int, DataTraffic]]) -> list[Cell]:
    numbers = ", ".join(str(number) for number, _ in mine) or "none"
    return [
        numbers,
        count(sum(data_traffic.calls for _, data_traffic in mine)),
        size(sum(data_traffic.bytes for _, data_traffic in mine)),
    ]


# Security contexts


def contexts_view(contexts: Sequence[GssContext], everything: bool) -> RenderableType:
    shown = contexts if everything else contexts[:MAX_LISTED]
    rows: list[list[Cell]] = [
        [
            f"{gss_context.client} → {gss_context.server}",
            ", ".join(gss_context.calls) or "-",
            f"{gss_context.frame or '?'}-{gss_context.ended_frame or ''}",
            count(gss_context.calls.total()),
            "-" if gss_context.first is None else f"{gss_context.first}-{gss_context.highest}",
            "?" if gss_context.window is None else str(gss_context.window),
            _doubts(gss_context),
        ]
        for gss_context in shown
    ]
    names = ("", "service", "frames", "calls", "numbers", "window", "")
    title = heading("RPCSEC_GSS contexts", "from creation to destruction; calls with privacy are sealed")
    return Group(title, Grid(names, (), rows, flexible=6, gap=2), *_more(len(contexts) - len(shown)))


def _doubts(context: GssContext) -> Text:
    doubts = [f"{name} {count(number)}" for name, number in context.failures.items()]
    doubts += ["creation not completed"] if context.round_trips and not context.frame else []
    doubts += [f"{plural(context.below_window, 'call')} below the window"] if context.below_window else []
    doubts += [f"{plural(context.repeated, 'sequence number')} used twice"] if context.repeated else []
    return Text(", ".join(doubts), "red")


# Waits


def waits_view(waited: Sequence[Wait], start: int, everything: bool) -> RenderableType:
    title = heading("What clients waited for", "as far as messages show it")
    if not waited:
        nothing = "nothing: no slot, credit or recall; no grace period, no NFS4ERR_DELAY, no call without a reply"
        return Group(title, indented(Text(nothing)))
    shown = waited if everything else waited[: 2 * MAX_LISTED]
    rows: list[list[Cell]] = [
        [
            wait.reason,
            _who(wait),
            "-" if wait.duration is None else duration(wait.duration) + ("" if wait.ended else " outstanding"),
            _occasions(wait),
            _frames(wait),
        ]
        for wait in shown
    ]
    return Group(
        title, Grid(("", "", "time", "", "frames"), (), rows, flexible=3, gap=2), *_more(len(waited) - len(shown))
    )


def _who(wait: Wait) -> str:
    if wait.session is not None:
        return f"session {wait.session.number}"
    return f"connection {wait.connection}" if wait.client is None else f"client {wait.client.number}"


def _occasions(wait: Wait) -> str:
    if wait.reason in (NO_SLOT, NO_CREDIT):
        text = f"limit reached {plural(wait.count, 'time')}"
        refilled = wait.session.fore.refilled if wait.session is not None else 0
        return text + (f", {count(refilled)} of them right after the reply that freed a slot" if refilled else "")
    if wait.reason == RECALL:
        return f"{plural(wait.count, 'call')} answered NFS4ERR_DELAY meanwhile" if wait.count else "delegation recall"
    if wait.reason == DELAY:
        return f"{plural(wait.count, 'call')} answered NFS4ERR_DELAY"
    if wait.reason == NO_REPLY:
        return f"{plural(wait.count, 'call')} without a reply"
    if wait.reason == "grace":
        return f"{plural(wait.count, 'call')} answered NFS4ERR_GRACE"
    return f"{plural(wait.count, 'open or lock', 'opens and locks')} reclaimed"


def _frames(wait: Wait) -> str:
    if not wait.first_frame:
        return "-"
    last = wait.last_frame
    return str(wait.first_frame) + ("" if last in (0, wait.first_frame) else f"-{last}")


def _more(number: int) -> list[RenderableType]:
    return [indented(Text(f"{count(number)} more; --all lists them", "dim"))] if number else []
