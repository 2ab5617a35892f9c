"""Every record type that ``--json`` prints, with all its fields: the source of the reference in ``docs``."""

from __future__ import annotations

from .audit import TYPES as AUDIT
from .comparison import TYPES as COMPARISON
from .connection import TYPES as CONNECTION
from .diagnosis import TYPES as DIAGNOSIS
from .kernel_counters import TYPES as KERNEL
from .nfs_state import TYPES as STATE
from .report import TYPES as REPORT
from .rpc import TYPES as PACKET
from .rpc_lines import TYPES as RPC
from .schema import RecordType, common

BATCH: dict[str, RecordType] = {
    "batch_capture": RecordType(
        "A capture of a data set.",
        "`batch`",
        {
            "capture": ("string", "its name in the data set, made of its contents"),
            "host": ("string", "where it was made, as the folders say"),
            "files": ("array of string", "paths; several where they are rotated"),
            "known": ("boolean", "the data set had it"),
            "problem": ("string|null", "why it could not be read at all"),
            "damage": ("string|null", "why it was not read to its end"),
            "frames": ("integer", "frames read"),
            "rpcs": ("integer", "RPCs"),
            "connections": ("integer", "connections"),
        },
    ),
    "batch": RecordType(
        "All captures of a data set.",
        "`batch`",
        {
            "data_set": ("string", "path"),
            "captures": ("integer", "captures that were given"),
            "known": ("integer", "of these, already in the data set"),
            "unread": ("integer", "of these, unreadable"),
        },
    ),
}


PROBE = "`probe`"
SUITE = "`probe --suite`"
SERVE = "`probe --serve`"

OTHERS = {
    "live": RecordType(
        "How a live capture went; the records of `report` come before it.",
        "`live`",
        {
            "device": ("string", "device that was captured from"),
            "kind": ("string", "interface, rxe, siw, adapter or stream"),
            "interface": ("string|null", "its network interface"),
            "filter": ("string", "filter in words"),
            "snaplen": ("integer", "bytes kept of a frame, at most"),
            "seconds": ("number", "how long it ran, in seconds"),
            "frames": ("integer", "frames"),
            "kernel_received": ("integer", "frames that passed the filter, as the kernel counts them"),
            "event_cost_ns": ("integer|null", "kernel traces: CPU time of an event, at most"),
            "kernel_dropped": ("integer|null", "frames that the kernel dropped for want of room; null: not known"),
            **common("rpcs"),
            "findings": ("integer", "findings of the audit"),
            "triggers": ("integer|null", "how often the trigger fired; null: there is none"),
            "rules_broken": ("map of integer", "rule -> violations and notes"),
            "evicted_connections": ("integer", "connections evicted, of which only sums remain"),
            "evicted_calls": ("integer", "their unanswered calls; a later reply is a separate RPC"),
            "memory": ("object", "memory of the process"),
            "memory.limit": ("integer|null", "bound of `--memory`, in bytes; null: none was given"),
            "memory.peak": ("integer|null", "peak, in bytes; null: not known"),
            "memory.before": ("integer|null", "bytes of packets that may wait for a trigger; null: none do"),
            "memory.files": ("integer", "files whose names it remembers, at most"),
            "memory.answered": ("integer", "answered XIDs that a connection remembers for each direction"),
            "memory.connections": ("integer", "connections kept at the end, at most"),
            "memory.given_up": ("integer", "connections evicted since memory was short"),
            "files_removed": ("integer|null", "capture files removed to keep the number given; null: no limit"),
            "went_down": ("integer", "how often the device went down, or away"),
            "trouble": ("string|null", "why the device could deliver nothing at the end; null: it could"),
            "not_kept": ("string|null", "why packets are no longer kept; null: they are, or were not to be"),
            "ended_by": (
                "string|null",
                "duration, count, finding, trigger, quit, end, error, or the signal that ended it",
            ),
            "error": ("string|null", "what ended it, where that was an error"),
        },
    ),
    "trigger": RecordType(
        "A trigger of a live capture fired.",
        "`live --until-where`, `--until-slower-than`, `--until-rule`",
        {
            "trigger": ("string", "slower-than, condition or finding"),
            "words": ("string", "the condition; for a finding, what was observed"),
            **common("time_ns", "connection"),
            "rpc": ("integer|null", "number of the RPC"),
            "latency_ns": ("integer|null", "its latency"),
            "waiting_ns": ("integer|null", "latency; without a reply, how long it has been outstanding"),
            "rule": ("string|null", "rule that was broken; calls-hung of a call that is not answered"),
            "others": ("integer", "how often it happened again before its packets were kept"),
            "file": ("string|null", "file with the packets around it; null: none are kept"),
        },
    ),
    "probe": RecordType(
        "The connection to a server, and the first call.",
        PROBE,
        {
            **common("target"),
            "device": ("string", "local RDMA device"),
            "local": ("string|null", "local address"),
            "connect_ns": ("integer", "time to connect"),
            "private_data": ("string", "private data of the server in hexadecimal"),
            "announced": ("object|null", "RPC-over-RDMA settings in them (RFC 8797); null: none"),
            "announced.send_size": ("integer", "bytes it sends inline, at most"),
            "announced.receive_size": ("integer", "bytes it receives inline, at most"),
            "announced.remote_invalidation": ("boolean", "it supports remote invalidation"),
            "threshold_to_server": ("integer", "inline threshold to the server, in bytes"),
            "threshold_to_client": ("integer", "inline threshold to the client, in bytes"),
            "reads_served": ("integer|null", "RDMA Reads of the server that this end answers at a time"),
            "reads_issued": ("integer|null", "RDMA Reads that this end may issue at a time"),
            "credits_requested": ("integer", "credits requested"),
            "credits_granted": ("integer|null", "credits granted; null: no message granted any"),
            **common("problem"),
        },
    ),
    "probe_round": RecordType(
        "A NULL call.",
        PROBE,
        {
            **common("target"),
            "number": ("integer", "number of the call, from 1"),
            "time_ns": ("integer|null", "duration from the call to the reply; null: no reply"),
            **common("problem"),
        },
    ),
    "probe_echo": RecordType(
        "Bulk data sent to another `probe --serve` and back.",
        PROBE,
        {
            **common("target"),
            "number": ("integer", "number of the round, from 1"),
            "size": ("integer", "bytes in each direction"),
            "there_and_back_ns": ("integer|null", "duration of a call with that many bytes both ways; null: it failed"),
            "read_ns": ("integer|null", "duration of a READ of that many bytes; null: it failed"),
            **common("problem"),
        },
    ),
    "probe_version": RecordType(
        "Whether the server has version 2.",
        PROBE,
        {
            **common("target"),
            "settled": ("integer|null", "version that was settled on"),
            "supported": ("array of integer|null", "lowest and highest version of an RDMA_ERR_VERS"),
            "extended": ("boolean", "the server knows transport characteristics"),
            "characteristics": ("map of any", "characteristic -> value; opaque values in hexadecimal"),
            **common("problem"),
        },
    ),
    "probe_program": RecordType(
        "An RPC program of the server.",
        PROBE,
        {
            **common("target"),
            "program": ("string", "name of the RPC program"),
            "program_number": ("integer", "its number"),
            "versions": ("array of integer", "versions that answered NULL"),
            "low": ("integer|null", "lowest version of a PROG_MISMATCH"),
            "high": ("integer|null", "highest version of a PROG_MISMATCH"),
            "status": ("string", "answers, not there, or why that is not known"),
        },
    ),
    "probe_summary": RecordType(
        "The sum of the NULL calls.",
        PROBE,
        {
            **common("target"),
            "calls": ("integer", "calls"),
            "replies": ("integer", "replies"),
            "min_ns": ("integer|null", "least time; null: no reply at all"),
            "median_ns": ("integer|null", "median"),
            "p99_ns": ("integer|null", "99th percentile"),
            "max_ns": ("integer|null", "greatest"),
        },
    ),
    "probe_check": RecordType(
        "A check of the conformance suite.",
        SUITE,
        {
            **common("target"),
            "check": ("string", "name of the check"),
            "fault": ("boolean", "it sends something forbidden"),
            "rule": ("string", "rule that it checks"),
            "level": ("string", "MUST, SHOULD, STATED, …"),
            "document": ("string", "document that has the rule"),
            "section": ("string", "section of the document"),
            "sends": ("string", "what it sends"),
            "verdict": ("string", "pass, violation, no answer, connection lost or not applicable"),
            "observed": ("string", "what the server did"),
            "broken_rule": ("string|null", "rule that the server broke, maybe another; null: the check did not fail"),
            "time_ns": ("integer", "duration of the check"),
        },
    ),
    "probe_suite": RecordType(
        "The sum of the conformance suite.",
        SUITE,
        {
            **common("target"),
            "checks": ("integer", "checks"),
            "verdicts": ("map of integer", "verdict -> checks"),
        },
    ),
    "probe_server": RecordType(
        "Where the server listens.",
        SERVE,
        {
            "places": ("array of string", "addresses and ports"),
            "highest_version": ("integer", "highest version of RPC-over-RDMA that it accepts"),
            "fault": ("string|null", "fault that it commits"),
            "capacity": ("integer", "bytes that the files of its NFS export may hold"),
            "mount_port": ("integer|null", "TCP port at which it answers MOUNT"),
        },
    ),
    "probe_client": RecordType(
        "Something a client of the server did.",
        SERVE,
        {
            "client": ("integer", "number of the client, from 1"),
            "what": ("string", "connected, version, call, lost or refused"),
            "text": ("string", "one line about it"),
        },
    ),
    "probe_served": RecordType(
        "The sum of what was served.",
        SERVE,
        {
            "connections": ("integer", "connections"),
            "calls": ("integer", "calls"),
            "committed": ("integer", "faults committed"),
        },
    ),
    "synth": RecordType(
        "A capture that was made from a script.",
        "`synth`",
        {
            "script": ("string", "name of the script"),
            "output": ("string", "path written"),
            "frames": ("integer", "frames written"),
            "sent": ("integer", "frames sent; some of them may be lost before the capture point"),
            "connections": ("array of object", "connections played"),
            "connections[].connection": ("integer", "number of the connection, from 1"),
            "connections[].version": ("integer|null", "version of RPC-over-RDMA that was settled on"),
            "connections[].calls": ("integer", "calls"),
            "connections[].answered": ("integer", "calls that were answered as they should be"),
            "connections[].wrong": ("array of integer", "transaction IDs of the calls with a wrong reply"),
            "connections[].failed": ("array of object", "calls that failed"),
            "connections[].failed[].xid": ("integer", "transaction ID"),
            "connections[].failed[].reason": ("string", "why"),
            "connections[].faults_committed": ("array of integer", "faults of the client and of the server"),
        },
    ),
    "script": RecordType(
        "A script that comes with rdmascope.",
        "`synth --list`",
        {"name": ("string", "name"), "title": ("string", "what it shows")},
    ),
    "synth_key": RecordType(
        "A key that a script may have.",
        "`synth --keys`",
        {
            "table": ("string", "table of the script that has it"),
            "key": ("string", "name"),
            "help": ("string", "what it means"),
        },
    ),
    "fault": RecordType(
        "A fault that an endpoint can commit.",
        "`synth --faults`",
        {
            "name": ("string", "name"),
            "by": ("string", "client or server"),
            "rule": ("string|null", "rule that it breaks; null where it breaks none"),
            "description": ("string", "what it does"),
            "occasion": ("string|null", "when it happens; null: always"),
            "version": ("integer|null", "version of RPC-over-RDMA; null: either"),
        },
    ),
}


RECORD_TYPES: dict[str, RecordType] = {
    **RPC, **PACKET, **CONNECTION, **REPORT, **DIAGNOSIS, **STATE, **KERNEL, **COMPARISON, **AUDIT, **OTHERS,
    **BATCH,
}  # fmt: skip
"""In the order of the reference."""
