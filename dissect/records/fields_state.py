"""The fields of the records about the state of NFSv4."""

from __future__ import annotations

from .field_types import RecordType, common, objects

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
    "held_at_end": ("integer", "held at the end of the capture, of those granted or recalled in it"),
    **objects("held", "array of object", "of these, the first", HELD),
}

TALLY = {
    "count": ("integer", "replies"),
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
    "requests_cached": ("integer", "of them, those whose reply was to be kept for a retransmission"),
    "highest_slot": ("integer|null", "highest slot used; null without requests"),
    "max_in_use": ("integer", "slots in use at one time, at most"),
    "in_use_at_end": ("integer", "slots in use at the end"),
    "at_limit_ns": ("integer", "time with all slots in use that may be"),
    "at_limit_count": ("integer", "how often it got there"),
    "sent_when_freed": ("integer", "of these, requests on the one slot that had just become free"),
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
    "nfs_client": RecordType(
        "An NFSv4 client as a server knows it: a client ID, and the state that goes with it.",
        "`sessions`",
        {
            "number": ("integer", "number of the client, from 1 in order of appearance"),
            "server": ("string", "address of the server"),
            "addresses": ("array of string", "addresses of the client"),
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
            **objects("statuses", "map of object", "failure that says something about state -> replies", TALLY),
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
            "reason": ("string", "no slot, no credit, recall, delay, grace, state lost"),
            "client": ("integer|null", "number of the client; null: of a connection"),
            "session": ("integer|null", "number of the session; null: of a client or a connection"),
            "connection": ("integer|null", "number of the connection; null: of a client"),
            "first_time_ns": ("integer", "when it began"),
            "duration_ns": ("integer|null", "how long in all; null: no message says"),
            "ended": ("boolean", "it was over before the end of the capture"),
            "count": ("integer", "how often; recall, delay and grace: calls answered so"),
            "first_frame": ("integer|null", "first frame that shows it"),
            "last_frame": ("integer|null", "last frame that shows it"),
            **common("file"),
        },
    ),
}
