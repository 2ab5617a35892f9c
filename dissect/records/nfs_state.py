"""NFSv4 clients, sessions, delegations, requests out of order, security contexts and waits, as records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..measure.data_servers import DataServer, DataServers
from ..measure.gss_contexts import GssContext
from ..measure.nfs_state import (
    HeldState,
    NfsClient,
    NfsSession,
    SlotEvent,
    SlotTable,
    SlotUse,
    StateTable,
    StatusTally,
    Wait,
)
from ..measure.nfs_state_history import NfsStateHistory
from ..measure.nfs_waits import waits
from ..onc.naming import handle_hash
from ..onc.shapes.rfc8881 import SEQ4_STATUS
from .schema import Record, RecordType, common, decoded, objects, record

HELD = {
    "kind": ("string|null", "read, write, read and write; of a layout its type; null: not known"),
    "stateid": ("string", "stateid without its sequence ID, in hexadecimal"),
    "handle": ("string|null", "file handle in hexadecimal; null: in no message"),
    "handle_hash": ("integer|null", "Wireshark's hash of the handle (unsigned, 32 bits)"),
    "granted_frame": ("integer|null", "frame in which it was granted; null: before the capture"),
    "granted_time_ns": ("integer|null", "when; null: before the capture"),
    "reclaimed": ("boolean", "it was taken up again after state was lost"),
}

STATES = {
    "granted": ("integer", "granted in the capture"),
    "returned": ("integer", "closed, unlocked or returned"),
    "granted_before_capture": ("integer", "of these, granted before the capture"),
    "recalled": ("integer", "recalled by the server"),
    "held_at_end": ("integer", "granted or recalled in the capture, and not seen to be returned"),
    **objects("held", "array of object", "the first of those", HELD),
}

TALLY = {
    "count": ("integer", "replies, or calls without one"),
    **common("first_frame", "first_time_ns", "last_frame", "last_time_ns"),
}

CHANNEL = {
    "slots_agreed": ("integer|null", "ca_maxrequests of CREATE_SESSION's reply; null: not in the capture"),
    "max_request_size": ("integer|null", "ca_maxrequestsize"),
    "max_response_size": ("integer|null", "ca_maxresponsesize"),
    "max_response_size_cached": ("integer|null", "ca_maxresponsesize_cached"),
    "max_operations": ("integer|null", "ca_maxoperations"),
    "lowest_target_slot": ("integer|null", "lowest target for the highest slot in replies; null without replies"),
    "highest_target_slot": ("integer|null", "highest target for it"),
    "requests": ("integer", "requests with a slot"),
    "requests_cached": ("integer", "of these, with a reply to be kept for a retransmission"),
    "highest_slot": ("integer|null", "highest slot used; null without requests"),
    "max_in_use": ("integer", "slots in use at one time, at most"),
    "in_use_at_end": ("integer", "slots in use at the end"),
    "at_limit_ns": ("integer", "time with all slots in use that may be"),
    "at_limit_count": ("integer", "how often it got there"),
    "sent_when_freed": ("integer", "of these, sent on the only slot that had just become free"),
    "retries": ("integer", "requests with the sequence ID of the one before on their slot"),
    "gaps": ("integer", "requests with neither that sequence ID nor the next"),
}

USE = {
    "rpc": ("integer", "number of the RPC"),
    **common("connection"),
    "call_frame": ("integer", "frame of the call"),
    "reply_frame": ("integer|null", "frame of the reply; null without"),
    "operations": ("array of string", "operations of the COMPOUND"),
    "status": ("string|null", "OK, or the name of the failure; null without a reply"),
    "cached": ("boolean", "the reply was to be kept for a retransmission"),
}

TYPES = {
    "gss_context": RecordType(
        "A security context of RPCSEC_GSS.",
        "`sessions`",
        {
            "number": ("integer", "number of the context, from 1 in order of appearance"),
            "server": ("string", "address of the server"),
            "client": ("string", "address of the client"),
            "handle": ("string", "its handle in hexadecimal"),
            "version": ("integer", "version of RPCSEC_GSS, 1 to 3"),
            "first_frame": ("integer|null", "frame of the reply that completed it; null: not in the capture"),
            "first_time_ns": ("integer|null", "when; null: not in the capture"),
            "round_trips": ("integer", "calls that it took to create it"),
            "window": ("integer|null", "calls that may be outstanding with it; null: not in the capture"),
            "calls": ("map of integer", "service (none, integrity, privacy) -> calls"),
            "first_sequence": ("integer|null", "lowest sequence number; null without calls"),
            "highest_sequence": ("integer|null", "highest sequence number; null without calls"),
            "late": ("integer", "calls with a sequence number below the highest so far"),
            "below_window": ("integer", "calls with one too low for the window, which the server drops"),
            "repeated": ("integer", "calls with the sequence number of the call before"),
            "ended_frame": ("integer|null", "frame of the reply to RPCSEC_GSS_DESTROY; null without"),
            "failures": ("map of integer", "status of replies that refuse its calls -> replies"),
            **common("file"),
        },
    ),
    "nfs_client": RecordType(
        "An NFSv4 client as a server knows it: a client ID, and the state that goes with it.",
        "`sessions`",
        {
            "number": ("integer", "number of the client, from 1 in order of appearance"),
            "server": ("string", "address of the server"),
            "addresses": ("array of string", "addresses of the client"),
            "server_addresses": ("array of string", "further addresses of the server, by which the client reached it"),
            "minor_version": ("integer|null", "0 to 2; null: not known"),
            "client_id": ("string|null", "clientid4 in hexadecimal; null: not in the capture"),
            "owner": ("string|null", "client owner, as the client names itself; null: not in the capture"),
            "verifier": ("string|null", "its verifier in hexadecimal: another one after each restart"),
            "implementation": ("string|null", "what the client says it is"),
            "server_implementation": ("string|null", "what the server says it is"),
            "server_roles": ("array of string", "pNFS metadata server, pNFS data server, no pNFS"),
            "first_frame": ("integer|null", "frame of the reply that gave the client ID; null: before the capture"),
            "first_time_ns": ("integer|null", "when; null: before the capture"),
            "before_capture": ("boolean", "it had its client ID before the capture"),
            "confirmed_frame": ("integer|null", "frame of the reply that confirmed it"),
            "ended_by": ("string|null", "DESTROY_CLIENTID, or a new client ID; null: it did not end"),
            "ended_frame": ("integer|null", "frame of that"),
            "ended_time_ns": ("integer|null", "when"),
            "previous": ("integer|null", "number of the client with the owner's client ID before"),
            "previous_lost": ("string|null", "why it needed a new one; null: the one before was ended, or none"),
            "lease_s": ("integer|null", "lease in seconds, as the attribute lease_time says; null: in no reply"),
            "renewals": ("integer", "replies that renewed the lease"),
            **objects(
                "longest_without_renewal",
                "object|null",
                "longest interval between two renewals; null: fewer than two",
                {"duration_ns": ("integer", "how long"), **common("first_frame", "last_frame")},
            ),
            "last_renewal_to_end_ns": ("integer|null", "from the last renewal to the end of the capture"),
            "reclaims": ("integer", "opens and locks reclaimed"),
            "reclaim_complete_frame": ("integer|null", "frame of the reply to RECLAIM_COMPLETE"),
            "locks_denied": ("integer", "locks that another owner had"),
            **objects("states", "map of object", "opens, locks, delegations, layouts -> how many", STATES),
            **objects("statuses", "map of object", "failure that is about state, or no reply -> calls", TALLY),
            **common("file"),
        },
    ),
    "nfs_data_server": RecordType(
        "A pNFS data server that a metadata server named.",
        "`sessions`",
        {
            "address": ("string", "its address"),
            "port": ("integer|null", "its port; null: not known"),
            "networks": ("array of string", "how it is reached: rdma, tcp6, …"),
            "devices": ("array of string", "device IDs with it, in hexadecimal"),
            "metadata_server": ("string", "address of the server that named it first"),
            "first_frame": ("integer", "frame of the reply to GETDEVICEINFO that named it first"),
            **objects(
                "connections",
                "array of object",
                "connections to it that READ and WRITE were on",
                {
                    **common("connection"),
                    "calls": ("integer", "READ and WRITE calls"),
                    "bytes": ("integer", "bytes of these calls and their replies, chunks included"),
                    "calls_in_layouts": ("integer", "of these, calls with a file handle of a layout"),
                },
            ),
            **common("file"),
        },
    ),
    "nfs_delegation": RecordType(
        "A delegation that a client had.",
        "`sessions`",
        {
            "client": ("integer", "number of the client"),
            "server": ("string", "address of the server"),
            **HELD,
            "recalled_frame": ("integer|null", "frame of the CB_RECALL; null without"),
            "recalled_time_ns": ("integer|null", "when"),
            "returned_frame": ("integer|null", "frame of the reply to DELEGRETURN; null without"),
            "returned_time_ns": ("integer|null", "when"),
            "recall_ns": ("integer|null", "from the recall to the return; null without one of them"),
            "calls_delayed": ("integer", "calls that the server answered NFS4ERR_DELAY meanwhile"),
            "revoked": ("boolean", "the client freed it with FREE_STATEID, as after a revocation"),
            **common("file"),
        },
    ),
    "nfs_session": RecordType(
        "A session of NFSv4.1 or later.",
        "`sessions`",
        {
            "number": ("integer", "number of the session, from 1 in order of appearance"),
            "client": ("integer", "number of the client"),
            "server": ("string", "address of the server"),
            "session_id": ("string", "sessionid4 in hexadecimal"),
            "first_frame": ("integer|null", "frame of the reply to CREATE_SESSION; null: before the capture"),
            "first_time_ns": ("integer|null", "when; null: before the capture"),
            "before_capture": ("boolean", "it was created before the capture"),
            "ended_by": ("string|null", "DESTROY_SESSION, or the failure that said it is gone; null: it did not end"),
            "ended_frame": ("integer|null", "frame of that"),
            "ended_time_ns": ("integer|null", "when"),
            "persistent": ("boolean|null", "its replies survive a restart of the server; null: not known"),
            "back_channel": ("boolean|null", "CREATE_SESSION's connection is its back channel; null: not known"),
            "data_server": ("boolean", "its server is one that GETDEVICEINFO named as a data server"),
            **objects(
                "connections",
                "array of object",
                "connections that belong to it",
                {
                    **common("connection"),
                    "how": ("string", "CREATE_SESSION, BIND_CONN_TO_SESSION with its direction, used, callbacks"),
                },
            ),
            **objects("fore", "object", "requests of the client", CHANNEL),
            **objects("back", "object", "requests of the server", CHANNEL),
            **objects("status_flags", "map of object", "flag of sr_status_flags -> replies with it", TALLY),
            **common("file"),
        },
    ),
    "nfs_slot_event": RecordType(
        "A request that is not the next one on its slot.",
        "`sessions`",
        {
            "kind": ("string", "retry (the same sequence ID and operations), false retry (the same ID), gap"),
            "session": ("integer", "number of the session"),
            "channel": ("string", "fore or back"),
            "slot": ("integer", "slot"),
            "sequence": ("integer", "sequence ID"),
            "expected": ("integer", "the next sequence ID"),
            **common("time_ns"),
            **USE,
            **objects(
                "earlier",
                "object|null",
                "the request before on the slot; null: none since the session was created",
                {"sequence": ("integer", "sequence ID"), **USE},
            ),
            **common("file"),
        },
    ),
    "nfs_wait": RecordType(
        "Something that kept a client waiting, as far as messages show it.",
        "`sessions`",
        {
            "reason": ("string", "no slot, no credit, recall, delay, grace, no reply, state lost"),
            "client": ("integer|null", "number of the client; null: of a connection"),
            "session": ("integer|null", "number of the session; null: of a client or a connection"),
            "connection": ("integer|null", "number of the connection; null: of a client"),
            "first_time_ns": ("integer", "when it began"),
            "duration_ns": ("integer|null", "how long in all; null: no message says, or the capture may lack a return"),
            "ended": ("boolean", "it was over before the end of the capture"),
            "count": ("integer", "how often; recall, delay, grace, no reply: calls"),
            "first_frame": ("integer|null", "first frame that shows it"),
            "last_frame": ("integer|null", "last frame that shows it"),
            **common("file"),
        },
    ),
}


MAX_HELD = 100
"""States held at the end that are listed of a client and a kind."""


def state_records(history: NfsStateHistory) -> Iterator[Record]:
    """Clients with their delegations, sessions with what was out of order, contexts, then what was waited for."""
    for client in history.clients:
        yield client_record(client, history.last_time)
        for state in client.listed:
            yield delegation_record(client, state)
    for session in history.sessions:
        yield session_record(session, history.pnfs)
        for direction, table in (("fore", session.fore), ("back", session.back)):
            for event in table.events:
                yield slot_record(session, direction, event)
    for server in history.pnfs.servers.values():
        yield data_server_record(server, history.pnfs)
    for context in history.security.contexts:
        yield context_record(context)
    for wait in waits(history):
        yield wait_record(wait)


def client_record(client: NfsClient, last_time: int) -> Record:
    longest = client.longest
    return record(
        "nfs_client",
        number=client.number,
        server=client.server,
        addresses=list(client.addresses),
        server_addresses=list(client.server_addresses),
        minor_version=client.minor_version,
        client_id=None if client.id is None else f"{client.id:016x}",
        owner=decoded(client.owner),
        verifier=client.verifier.hex() if client.verifier is not None else None,
        implementation=client.implementation or None,
        server_implementation=client.server_implementation or None,
        server_roles=list(client.roles),
        first_frame=client.frame or None,
        first_time_ns=client.time or None,
        before_capture=not client.frame,
        confirmed_frame=client.confirmed_frame or None,
        ended_by=client.ended_by or None,
        ended_frame=client.ended_frame or None,
        ended_time_ns=client.ended_time or None,
        previous=client.before.number if client.before is not None else None,
        previous_lost=client.lost or None,
        lease_s=client.lease,
        renewals=client.renewals,
        longest_without_renewal=None
        if longest is None
        else {"duration_ns": longest[0], "first_frame": longest[1], "last_frame": longest[2]},
        last_renewal_to_end_ns=None if client.renewed is None else last_time - client.renewed[0],
        reclaims=client.reclaims,
        reclaim_complete_frame=client.reclaim_complete or None,
        locks_denied=client.denied,
        states={kind: _states(table) for kind, table in client.states()},
        statuses=_tallies(client.statuses),
    )


def _states(table: StateTable) -> Record:
    return {
        "granted": table.granted,
        "returned": table.returned,
        "granted_before_capture": table.earlier,
        "recalled": table.recalled,
        "held_at_end": len(table.held) + table.untracked,
        "held": [_held(state) for state in list(table.held.values())[:MAX_HELD]],
    }


def _held(state: HeldState) -> Record:
    return {
        "kind": None if state.kind == "?" else state.kind,
        "stateid": state.stateid.hex(),
        "handle": state.handle.hex() if state.handle is not None else None,
        "handle_hash": handle_hash(state.handle) if state.handle is not None else None,
        "granted_frame": state.frame or None,
        "granted_time_ns": state.time or None,
        "reclaimed": state.reclaimed,
    }


def delegation_record(client: NfsClient, state: HeldState) -> Record:
    return record(
        "nfs_delegation",
        client=client.number,
        server=client.server,
        **_held(state),
        recalled_frame=state.recalled_frame or None,
        recalled_time_ns=state.recalled_time or None,
        returned_frame=state.returned_frame or None,
        returned_time_ns=state.returned_time or None,
        recall_ns=state.recall_time,
        calls_delayed=state.delays,
        revoked=state.revoked,
    )


def data_server_record(server: DataServer, servers: DataServers) -> Record:
    return record(
        "nfs_data_server",
        address=server.address,
        port=server.port,
        networks=list(server.networks),
        devices=[device.hex() for device in server.devices],
        metadata_server=server.metadata_server,
        first_frame=server.frame,
        connections=[
            {
                "connection": number,
                "calls": traffic.calls,
                "bytes": traffic.bytes,
                "calls_in_layouts": traffic.in_layout,
            }
            for number, (traffic, other) in servers.connections().items()
            if other is server
        ],
    )


def session_record(session: NfsSession, servers: DataServers) -> Record:
    return record(
        "nfs_session",
        number=session.number,
        client=session.client.number,
        server=session.client.server,
        session_id=session.id.hex(),
        first_frame=session.frame or None,
        first_time_ns=session.time or None,
        before_capture=not session.frame,
        ended_by=session.ended_by or None,
        ended_frame=session.ended_frame or None,
        ended_time_ns=session.ended_time or None,
        persistent=session.persistent,
        back_channel=session.back_channel,
        data_server=servers.of(session.client.server) is not None,
        connections=[{"connection": number, "how": how} for number, how in session.connections.items()],
        fore=_channel(session.fore, session.fore_sizes),
        back=_channel(session.back, session.back_sizes),
        status_flags=_tallies({SEQ4_STATUS.flags.get(bit, f"{bit:#x}"): flag for bit, flag in session.flags.items()}),
    )


def _channel(table: SlotTable, sizes: tuple[int, int, int, int] | None) -> Record:
    request, response, cached, operations = sizes or (None, None, None, None)
    low, high = table.targets or (None, None)
    return {
        "slots_agreed": table.agreed,
        "max_request_size": request,
        "max_response_size": response,
        "max_response_size_cached": cached,
        "max_operations": operations,
        "lowest_target_slot": low,
        "highest_target_slot": high,
        "requests": table.requests,
        "requests_cached": table.cached,
        "highest_slot": table.highest,
        "max_in_use": table.max_in_use,
        "in_use_at_end": table.in_use,
        "at_limit_ns": table.at_limit,
        "at_limit_count": table.at_limit_count,
        "sent_when_freed": table.refilled,
        "retries": table.retries,
        "gaps": table.gaps,
    }


def slot_record(session: NfsSession, direction: str, event: SlotEvent) -> Record:
    use = event.use
    return record(
        "nfs_slot_event",
        kind=event.kind,
        session=session.number,
        channel=direction,
        slot=event.use.slot,
        sequence=use.sequence,
        expected=event.expected,
        time_ns=use.time,
        **_use(use),
        earlier=None if event.earlier is None else {"sequence": event.earlier.sequence, **_use(event.earlier)},
    )


def _use(use: SlotUse) -> Record:
    return {
        "rpc": use.rpc,
        "connection": use.connection,
        "call_frame": use.frame,
        "reply_frame": use.reply_frame or None,
        "operations": list(use.operations),
        "status": use.status or None,
        "cached": use.cached,
    }


def context_record(context: GssContext) -> Record:
    return record(
        "gss_context",
        number=context.number,
        server=context.server,
        client=context.client,
        handle=context.handle.hex(),
        version=context.version,
        first_frame=context.frame or None,
        first_time_ns=context.time or None,
        round_trips=context.round_trips,
        window=context.window,
        calls=dict(context.calls),
        first_sequence=context.first,
        highest_sequence=context.highest,
        late=context.late,
        below_window=context.below_window,
        repeated=context.repeated,
        ended_frame=context.ended_frame or None,
        failures=dict(context.failures),
    )


def wait_record(wait: Wait) -> Record:
    return record(
        "nfs_wait",
        reason=wait.reason,
        client=wait.client.number if wait.client is not None else None,
        session=wait.session.number if wait.session is not None else None,
        connection=wait.connection,
        first_time_ns=wait.first_time,
        duration_ns=wait.duration,
        ended=wait.ended,
        count=wait.count,
        first_frame=wait.first_frame or None,
        last_frame=wait.last_frame or None,
    )


def _tallies(tallies: Mapping[str, StatusTally]) -> Record:
    return {
        name: {
            "count": tally.count,
            "first_frame": tally.first_frame,
            "first_time_ns": tally.first_time,
            "last_frame": tally.last_frame,
            "last_time_ns": tally.last_time,
        }
        for name, tally in tallies.items()
    }
