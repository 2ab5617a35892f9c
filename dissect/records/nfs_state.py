"""NFSv4 clients, sessions, delegations, requests out of order, security contexts and waits, as records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..measure.gss_contexts import GssContext
from ..measure.nfs_slots import SlotEvent, SlotTable, SlotUse
from ..measure.nfs_state import HeldState, NfsClient, NfsSession, StateTable, StatusTally, Wait
from ..measure.nfs_state_history import NfsStateHistory
from ..measure.nfs_waits import waits
from ..measure.pnfs import DataServer, DataServers
from ..onc.hashes import handle_hash
from ..onc.shapes.rfc8881 import SEQ4_STATUS
from .schema import Record, record

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
        owner=_text(client.owner),
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
            for number, (traffic, one) in servers.connections().items()
            if one is server
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
        status_flags=_tallies({SEQ4_STATUS.flags.get(bit, f"{bit:#x}"): one for bit, one in session.flags.items()}),
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
        slot=event.slot,
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


def _tallies(found: Mapping[str, StatusTally]) -> Record:
    return {
        name: {
            "count": one.count,
            "first_frame": one.first_frame,
            "first_time_ns": one.first_time,
            "last_frame": one.last_frame,
            "last_time_ns": one.last_time,
        }
        for name, one in found.items()
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")
