"""What ``rdmascope report`` has, as records: the capture, procedures, transfers, slowest RPCs, what was not decoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ..diagnosis.facts import Diagnosis, Facts, HostFacts
from ..link.addresses import AddressTable
from ..measure.statistics import (
    PARTS,
    Bin,
    ConnectionCounts,
    Procedure,
    ProcedureKey,
    SlowRpc,
    connection_counts,
    undecoded,
)
from ..onc.rpc_header import program_name
from ..percentiles import LONGEST_NS, Distribution
from ..rpcrdma.analyzer import Analyzer
from .connection import connection_record, evicted_record, transport_record
from .diagnosis import STATEMENT, statements
from .rpc import HOST_PHASES, latency_fields
from .schema import COMMON, DISTRIBUTION, LATENCY, RANGE, RPC_NAMES, Fields, Record, RecordType, common, objects, record

if TYPE_CHECKING:
    from ..link.capture_points import Clocks, CommonTraffic
    from ..measure.call_groups import CallGroup, CallGroups, LatencyInterval, ServiceLevelCounts
    from ..measure.files import File, FileTable


FULL_DISTRIBUTION = {
    **{name: DISTRIBUTION[name] for name in ("count", "min_ns", "median_ns")},
    "p95_ns": ("integer", "95th percentile"),
    **{name: DISTRIBUTION[name] for name in ("p99_ns", "max_ns")},
    "total_ns": ("integer", "sum"),
    "exact_to_ns": ("integer|null", "values above this are lower bounds, of calls without a reply; null: none is"),
}
LIMITS: Fields = {
    "frames": ("integer", "frames"),
    "truncated_frames": ("integer", "frames that are truncated"),
    "dropped_frames": ("integer", "frames that the capture says it lost: pcapng interface statistics"),
}
UNANSWERED: Fields = {
    "rpcs": ("integer", "calls without a reply whose reply the capture did not miss"),
    "waiting_ns": ("integer", "sum of the times they have been outstanding"),
    "longest_ns": ("integer", "the longest of these times"),
}

STATISTICS = {
    "received": ("integer|null", "frames received, as the capture says"),
    "accepted": ("integer|null", "frames that passed the filter, as the capture says"),
    "dropped": ("integer|null", "frames that the interface dropped, as the capture says"),
    "dropped_by_os": ("integer|null", "frames that the operating system dropped, as the capture says"),
    "delivered": ("integer|null", "frames delivered to the capturing program, as the capture says"),
}

INTERFACE = {
    "name": ("string|null", "name"),
    "description": ("string|null", "description"),
    "link_type": ("integer", "number of the link type"),
    "snaplen": ("integer|null", "bytes kept of a frame, at most; null: no limit"),
    "filter": ("string|null", "capture filter"),
    "operating_system": ("string|null", "operating system"),
    "speed": ("integer|null", "bits per second"),
    "time_resolution_ns": ("integer", "resolution of its time stamps in nanoseconds; 1 if finer"),
    "frames": ("integer", "frames of it in the capture"),
    **STATISTICS,
    "lost_between_frames": ("integer", "frames that the frames themselves say were lost before them"),
}

CHECKSUMS = {
    "good": ("integer", "packets whose checksum is right"),
    "wrong": ("integer", "packets whose checksum is wrong"),
    "not_checked": ("integer", "packets whose checksum cannot be checked"),
}

EXTENT = {
    "offset": ("integer", "offset in the file"),
    "length": ("integer", "bytes"),
}

EXTRACTED = {
    "name": ("string", "name of the file written"),
    "length": ("integer", "bytes of the file written"),
    "complete": ("boolean", "the size and every byte are known"),
    "sha256": ("string|null", "SHA-256 of the file, gaps as zeros; null where it was not computed"),
    "md5": ("string|null", "MD5 of the file; null where it was not computed"),
    "problem": ("string|null", "why part of it was not written or not computed"),
}

SOURCE = {
    "from": ("string", "read, write or zeros: how the bytes are known"),
    "rpc": ("integer", "number of the RPC"),
    **common("first_frame", "last_frame"),
}

CHANGE = {
    **EXTENT,
    "differing": ("integer", "bytes that differ"),
    **objects("earlier", "object", "where the earlier bytes came from", SOURCE),
    **objects("later", "object", "where the later bytes came from", SOURCE),
}

FILE = {
    "number": ("integer", "number of the file, from 1 in order of appearance"),
    "server": ("string", "address of the server"),
    "handle": ("string", "file handle in hexadecimal"),
    "handle_hash": ("integer", "Wireshark's hash of the handle (unsigned, 32 bits)"),
    "path": ("string|null", "path; … stands for directories that no call named"),
    "other_paths": ("array of string", "further paths: hard links"),
    "removed_path": ("string|null", "last path, if all were removed"),
    "earlier_names": ("array of object", "former names, the latest first"),
    "earlier_names[].path": ("string", "path, with the names of the directories at that time"),
    "earlier_names[].since_ns": ("integer", "when a reply first had the name, in nanoseconds since the Unix epoch"),
    "earlier_names[].until_ns": ("integer", "when the file lost the name"),
    "earlier_names[].ended": ("string", "removed, renamed, or replaced (by another file of this name)"),
    "file_type": ("string|null", "file, directory, symbolic link, …"),
    "protocols": ("array of string", "versions of NFS that it was used with"),
    "reads": ("integer", "READs that were answered"),
    "writes": ("integer", "WRITEs, answered or not"),
    **objects("latency", "object|null", "latencies of RPCs that read or wrote it; null for none", FULL_DISTRIBUTION),
    "size": ("integer|null", "latest size in bytes"),
    "least_size": ("integer", "the size; if unknown, its lower bound"),
    "read": ("integer", "bytes that READ replies carried"),
    "written": ("integer", "bytes that the server says it wrote"),
    "written_unconfirmed": ("integer", "bytes of WRITE calls without a reply"),
    "write_refused": ("integer", "bytes of WRITE calls that the server did not write"),
    "uncommitted": ("integer", "bytes written UNSTABLE that no COMMIT followed"),
    "verifier_changed": ("boolean", "the write verifier changed before a COMMIT: the server may have lost data"),
    "missing": ("map of integer", "reason -> bytes read or written that are not in the capture"),
    "calls": ("map of integer", "procedure or operation -> calls"),
}

FILTER: Fields = {"filter": ("string|absent", "filters that all of these RPCs pass; absent without filters")}
_SPAN = {"begin_ns": ("integer", "from when on"), "end_ns": ("integer", "before when")}
KEYS: Fields = {
    "client": ("string|null|absent", "address of the client"),
    "server": ("string|null|absent", "address of the server"),
    "connection": ("integer|null|absent", "number of the connection"),
    "export": ("string|null|absent", "server and top directory of the path; / for files in its root"),
    "path": ("string|null|absent", "path of the file, as it was called then"),
    "user": ("string|null|absent", "user ID, or gss: and the context handle"),
    "procedure": ("string|null|absent", "program, version and procedure; for a COMPOUND its operations"),
    "linux_operation": ("string|null|absent", "Linux's client's name of the COMPOUND, if its shape tells"),
    "slot": ("string|null|absent", "slot and session"),
    "begin_ns": ("integer|null|absent", "beginning of the interval in which the calls were made"),
}
COUNTS: Fields = {
    **common("rpcs"),
    "errors": ("integer", "replies that report an error"),
    "incomplete": ("integer", "RPCs without reply, without call, or damaged"),
    **common("call_bytes", "reply_bytes"),
}

TYPES = {
    "info": RecordType(
        "What a capture file is, without decoding RPCs.",
        "`info`",
        {
            **common("file"),
            "format": ("string", "pcap, pcapng, …"),
            "compression": ("string|null", "gzip, zstd, …; null for none"),
            "byte_order": ("string", "little or big"),
            "size": ("integer|null", "bytes of the file"),
            "unpacked_size": ("integer", "bytes after decompression"),
            "link_types": ("array of object", "link types of its frames"),
            "link_types[].number": ("integer", "number"),
            "link_types[].name": ("string|null", "name"),
            "link_types[].frames": ("integer", "frames of it"),
            **objects("interfaces", "array of object", "interfaces it was captured from", INTERFACE),
            "application": ("string|null", "program that wrote it"),
            "operating_system": ("string|null", "operating system it ran on"),
            "hardware": ("string|null", "hardware it ran on"),
            "comments": ("array of string", "comments on the capture"),
            "frame_comments": ("integer", "frames with a comment"),
            "other_blocks": ("map of integer", "pcapng blocks that were passed over -> how many"),
            "frames": ("integer", "frames"),
            "captured_bytes": ("integer", "bytes of frames in the file"),
            "original_bytes": ("integer", "bytes of frames on the wire"),
            "truncated_frames": ("integer", "frames that the capture truncated"),
            "longest_captured": ("integer", "bytes of the longest frame in the file"),
            "snaplen": ("integer|null", "bytes kept of a frame, at most; null: no limit"),
            "first_time_ns": ("integer|null", "earliest time; null without frames"),
            "last_time_ns": ("integer|null", "latest time; null without frames"),
            "duration_ns": ("integer", "from the earliest to the latest"),
            "out_of_order_frames": ("integer", "frames with an earlier time than the one before"),
            "frames_per_second": ("number|null", "frames per second; null without a duration"),
            "bits_per_second": ("number|null", "bits on the wire per second; null without a duration"),
            "decoded": ("map of integer", "transport -> packets"),
            "not_decoded": ("map of integer", "protocol or reason -> frames"),
            "duplicates": ("integer", "frames captured twice, not counted twice"),
            "contradictions": ("map of integer", "contradiction between headers -> frames"),
            **objects("icrc", "object|null", "invariant CRC; null without --checksums", CHECKSUMS),
            **objects("vcrc", "object|null", "variant CRC; null without --checksums", CHECKSUMS),
            "error": ("string|null", "why reading ended early"),
        },
    ),
    "trace_info": RecordType(
        "What a kernel trace is, without decoding RPCs.",
        "`info`",
        {
            **common("file"),
            "format": ("string", "trace.dat, or trace text"),
            "size": ("integer|null", "bytes of the file"),
            "kernel": ("string|null", "the host's uname; null: not known"),
            "clock": ("string|null", "the clock of its times: local, mono, boot, tai, …; null: not known"),
            "events": ("integer", "events of any kind"),
            "known": ("map of integer", "events that RPCs are made of -> how many"),
            "lost_events": ("integer", "events that the trace itself says were lost"),
            "first_time_ns": ("integer|null", "earliest time on that clock; null without events"),
            "last_time_ns": ("integer|null", "latest time on that clock; null without events"),
            "error": ("string|null", "why reading ended early"),
        },
    ),
    "capture_limits": RecordType(
        "What a capture says that it lacks.",
        "`compare`, `sessions`",
        {**LIMITS, **common("file")},
    ),
    "capture": RecordType(
        "What was read for a report.",
        "`report`, `live`",
        {
            **LIMITS,
            "packets": ("integer", "RDMA packets"),
            "first_time_ns": ("integer|null", "earliest time; null without frames"),
            "last_time_ns": ("integer|null", "latest time; null without frames"),
            "connections": ("integer", "connections, evicted and refused ones included"),
            "rpcrdma_connections": ("integer", "connections with RPC-over-RDMA"),
            "refused_connections": ("integer", "connections that the server refused"),
            **common("rpcs"),
            "states": ("map of integer", "state -> RPCs"),
            "duplicate_replies": ("integer", "second replies to RPCs that had one; not among the RPCs"),
            "error": ("string|null", "why reading ended early"),
            "filter": ("string|null", "condition on the RPCs that count; null where all do"),
            **objects("diagnosis", "array of object", "what is wrong, the worst first, as in diagnose", STATEMENT),
            **common("file"),
        },
    ),
    "capture_point": RecordType(
        "A file whose traffic another file shows from another capture point; it is read from that one.",
        "`report`",
        {
            "capture": ("string", "the file, or the first of its ring"),
            "first_capture": ("string", "the file that the traffic is read from"),
            "hosts": ("array of array of string", "pairs of addresses of the hosts whose packets both files show"),
            "packets_at_both": ("integer", "packets of these hosts in both files"),
            "packets_only_here": ("integer", "packets only in this capture"),
            "packets_only_first": ("integer", "packets only in the first one"),
            "compared_whole": ("boolean", "both were compared to their ends, not at their beginnings"),
            "clock_offset_ns": ("integer", "this capture's clock minus the first one's"),
            "clock_offset_error_ns": (
                "integer|null",
                "how far the offset may be wrong; null: from one direction",
            ),
            "transit_from_first_ns": ("integer|null", "median time from the first capture point to this one"),
            "transit_to_first_ns": ("integer|null", "median time back"),
            **common("file"),
        },
    ),
    "joined_trace": RecordType(
        "A trace of a host's kernel that was joined with the capture.",
        "`report`",
        {
            "trace": ("string", "the file"),
            "side": ("string", "client or server: whose kernel it traced"),
            "rpcs": ("integer", "RPCs over RDMA in it that have a reply"),
            "joined": ("integer", "of these, found in the capture"),
            "clock_offset_ns": ("integer|null", "clock of the capture minus the trace's; null: no RPC is in both"),
            "clock_offset_error_ns": ("integer|null", "how far the offset may be wrong"),
            "clock_drift": (
                "number|null",
                "drift of the capture's clock against the trace's, as a fraction; 0: none is certain",
            ),
            **common("file"),
        },
    ),
    "host_procedure": RecordType(
        "What RPCs of one procedure took inside a host, by the trace of its kernel.",
        "`report`",
        {
            **RPC_NAMES,
            "side": ("string", "client or server"),
            "rpcs": ("integer", "RPCs"),
            "total_ns": ("integer", "all phases of all RPCs"),
            "phases": ("map of integer", "phase -> nanoseconds, all RPCs together"),
            **common("file"),
        },
    ),
    "procedure": RecordType(
        "What RPCs of one procedure took; of an NFSv4 COMPOUND, of one sequence of operations.",
        "`report`, `live`",
        {
            **RPC_NAMES,
            **common("rpcs"),
            "failed": ("integer", "RPCs that failed"),
            "statuses": ("map of integer", "name of the failure -> RPCs"),
            "states": ("map of integer", "state -> RPCs"),
            **common("call_bytes", "reply_bytes"),
            **objects("latency", "object|null", "latencies, and times of longer outstanding calls", FULL_DISTRIBUTION),
            **objects("unanswered", "object|null", "calls without a reply; null for none", UNANSWERED),
            **objects("parts", "map of object|null", "call, reads, server, writes, reply -> parts", FULL_DISTRIBUTION),
            **common("file"),
        },
    ),
    "transfer": RecordType(
        "How RPC messages were transferred.",
        "`report`, `live`",
        {
            "way": ("string", "inline_call, inline_reply, read_chunk, position_zero, write_chunk or reply_chunk"),
            "messages": ("integer", "messages that used it"),
            "chunks": ("integer", "chunks"),
            "segments": ("integer", "RDMA segments"),
            "advertised": ("integer", "bytes advertised"),
            "transferred": ("integer", "bytes transferred"),
            "unused_chunks": ("integer", "chunks that were advertised and not used"),
            **common("file"),
        },
    ),
    "slowest": RecordType(
        "One of the slowest RPCs.",
        "`report`, `live`",
        {
            "rank": ("integer", "1 is the slowest"),
            "number": ("integer", "number of the RPC"),
            **common("connection", "xid"),
            **RPC_NAMES,
            "state": ("string", "complete, error, damaged, undecidable or no reply"),
            "status": ("string|null", "OK, or the name of the failure"),
            "call_frame": ("integer", "frame of the call"),
            "reply_frame": ("integer|null", "frame of the reply; null without one"),
            **common("call_bytes", "reply_bytes"),
            "retransmitted_packets": ("integer", "packets (iWARP: segments) retransmitted for it"),
            **objects("latency", "object|null", "latency and its parts; null without a reply", LATENCY),
            "waiting_ns": ("integer", "total latency; without a reply, how long it has been outstanding"),
            **common("file"),
        },
    ),
    "histogram": RecordType(
        "RPCs whose latency is between two values.",
        "`report`, `live`",
        {
            "low_ns": ("integer", "at least"),
            "high_ns": ("integer", "less than"),
            **common("rpcs", "file"),
        },
    ),
    "throughput": RecordType(
        "RPCs and their bytes over time.",
        "`report`, `live`",
        {
            "seconds_each": ("number", "length of an interval in seconds"),
            "rpcs": ("array of integer", "RPCs in each interval"),
            "call_bytes": ("array of integer", "bytes of calls in each interval"),
            "reply_bytes": ("array of integer", "bytes of replies in each interval"),
            **common("file"),
        },
    ),
    "undecoded": RecordType(
        "What was not decoded, and why.",
        "`report`, `live`",
        {
            "what": ("string", "what is counted: frames, packets, segments, rpcs, …"),
            "reason": ("string", "why"),
            "count": ("integer", "how many"),
            **common("file"),
        },
    ),
    "credits": RecordType(
        "Flow control in one direction of a connection.",
        "`transport --credits`",
        {
            **common("connection"),
            "direction": ("string", "forward (called by the client) or backward"),
            "calls": ("integer", "calls"),
            "replies": ("integer", "replies"),
            **objects("requested", "object|null", "credits requested", RANGE),
            **objects("granted", "object|null", "credits granted", RANGE),
            "max_outstanding": ("integer", "calls outstanding at one time, at most"),
            "mean_outstanding": ("number", "calls outstanding, averaged over time"),
            "at_limit_ns": ("integer", "time with as many calls outstanding as the credits allow"),
            "at_limit_count": ("integer", "how often it got there"),
            "exceeded": ("integer", "calls sent beyond the credits"),
            "filter": (
                "string|absent",
                "filters: only connections of RPCs that pass are shown; absent without filters",
            ),
            **common("first_time_ns", "last_time_ns"),
            "interval_ns": ("integer", "length of an interval"),
            "intervals": ("array of object", "intervals with traffic"),
            "intervals[].time_ns": ("integer", "begin of the interval"),
            "intervals[].requested": ("integer|null", "credits requested in it; null: none were"),
            "intervals[].granted": ("integer|null", "credits granted in it; null: none were"),
            "intervals[].outstanding": ("integer", "calls outstanding, at most"),
            "intervals[].at_limit_ns": ("integer", "part of the interval at that limit"),
            **common("file"),
        },
    ),
    "file": RecordType(
        "A file that NFS calls used.",
        "`files`",
        {
            **FILE,
            **objects("holes", "array of object|null", "bytes not seen; null where none was read or written", EXTENT),
            **objects(
                "extracted",
                "object|null",
                "what --extract wrote; null: nothing",
                {**EXTRACTED, "conflicts": ("integer", "ranges of bytes that two RPCs disagree on")},
            ),
        },
    ),
    "manifest": RecordType(
        "manifest.json, beside the files that `files --extract` writes: one object, not a line of output.",
        "`files --extract`",
        {
            "capture": ("string", "names of the captures"),
            "files": ("array of object", "records of type file, with what was written of each"),
            **{
                f"files[].{name}": field
                for name, field in {
                    "schema": ("string", "schema of the record file"),
                    "type": ("string", "file"),
                    **FILE,
                    **EXTRACTED,
                    **objects("ranges", "array of object", "where each range of bytes came from", {**EXTENT, **SOURCE}),
                    "ranges[].doubt": ("string|null", "why the bytes may be wrong"),
                    **objects("holes", "array of object", "bytes not known", EXTENT),
                    "holes[].why": ("string", "why not"),
                    **objects("conflicts", "array of object", "bytes that two RPCs disagree on", CHANGE),
                    "conflicts_not_listed": ("integer", "further ones"),
                    **objects("versions", "array of object", "bytes that were overwritten", CHANGE),
                    "versions_not_listed": ("integer", "further ones"),
                }.items()
            },
        },
    ),
    "export": RecordType(
        "What an export wrote.",
        "`export`",
        {
            "output": ("string", "path written"),
            "messages": ("integer", "RPC messages written"),
            "incomplete": ("integer", "messages with missing bytes, written truncated"),
            "skipped": ("integer", "messages left out because bytes are missing"),
            "not_reconstructed": ("integer", "messages left out because they are no RPC messages"),
            "packets": ("integer", "packets written"),
        },
    ),
    "exported_table": RecordType(
        "A table that an export wrote.",
        "`export --to parquet`, `csv` or `arrow`",
        {
            "format": ("string", "parquet, csv or arrow"),
            "table": ("string", "name of the table"),
            "output": ("string", "path written"),
            "rows": ("integer", "rows written"),
            "bytes": ("integer", "size of the file"),
        },
    ),
    "extract": RecordType(
        "A part of a capture, written as a separate capture.",
        "`export --to capture`",
        {
            "output": ("string", "path written"),
            "rpcs": ("integer", "RPCs whose frames were written"),
            "connections": ("integer", "connections that they are of"),
            "frames": ("integer", "frames written"),
            "bytes": ("integer", "bytes of the frames written"),
            "left_out": (
                "integer",
                "frames left out: their headers are not understood, so they cannot be made anonymous",
            ),
        },
    ),
    "group": RecordType(
        "RPCs that have something in common.",
        "`report --by`",
        {
            **objects("by", "object", "what they have in common; null: not known", KEYS),
            "others": ("boolean", "these are the RPCs of all groups beyond the first 4,096; ``by`` is null then"),
            **COUNTS,
            **objects(
                "latency",
                "object|null",
                "from call to reply; longer outstanding calls count",
                FULL_DISTRIBUTION,
            ),
            **objects("unanswered", "object|null", "calls without a reply; null for none", UNANSWERED),
            **objects(
                "parts",
                "object",
                "sums of the parts of latencies",
                {k: v for k, v in LATENCY.items() if k != "total_ns"},
            ),
            "time_share": ("number|null", "share of all waiting time, 0 to 1; null if nothing waited"),
            "percentiles": ("string", "exact; or to 2 %, where the latencies are too many to be kept"),
            **FILTER,
            "file": COMMON["file"],
        },
    ),
    "interval": RecordType(
        "The RPCs that began in an interval of time; 100 of them at most.",
        "`report --over-time`",
        {
            **_SPAN,
            **COUNTS,
            "unanswered": ("integer", "RPCs without a reply, counted with the time they have been outstanding"),
            "median_ns": ("integer|null", "median latency, to 2 %; null without latencies"),
            "p95_ns": ("integer|null", "95th percentile, to 2 %"),
            "p99_ns": ("integer|null", "99th percentile, to 2 %"),
            **objects(
                "histogram",
                "array of object",
                "RPCs by latency, ascending",
                {
                    "low_ns": ("integer", "from this latency on"),
                    "high_ns": ("integer", "below this latency"),
                    "rpcs": ("integer", "RPCs"),
                },
            ),
            **FILTER,
            "file": COMMON["file"],
        },
    ),
    "service_level": RecordType(
        "A service level, and whether it was kept.",
        "`report --slo`",
        {
            "service_level": ("string", "as it was given"),
            "procedure": ("string", "name of the procedure or operation that it is about"),
            "measure": ("string", "median, mean, max or a percentile such as p99"),
            "limit_ns": ("integer", "the limit"),
            "verdict": ("string", "pass, fail or undecidable"),
            "value_ns": ("integer|null", "measured value for these calls; null without calls"),
            "value_is_lower_bound": ("boolean", "a call without a reply decides it"),
            "rpcs": ("integer", "calls with a latency, or outstanding for longer than the limit"),
            "beyond": ("integer", "of these, beyond the limit"),
            "unknown": ("integer", "other calls: the whole of a reply was not seen"),
            "unanswered": ("integer", "calls outstanding for longer than the limit"),
            **objects(
                "violated",
                "array of object",
                "when it was not kept: spans of sixtieths of the time, each judged by itself",
                {
                    **_SPAN,
                    "rpcs": ("integer", "calls with a latency that began in it"),
                    "beyond": ("integer", "of these, beyond the limit"),
                    "worst_ns": ("integer", "the longest latency"),
                    "worst_rpc": ("integer", "number of an RPC that took that long"),
                },
            ),
            **FILTER,
            "file": COMMON["file"],
        },
    ),
}


def limits_record(analyzer: Analyzer) -> Record:
    """What keeps the capture that the analyzer was fed from telling all."""
    return record("capture_limits", **{name: getattr(analyzer, name) for name in LIMITS})


def capture_record(
    *,
    frames: int,
    truncated_frames: int,
    dropped_frames: int,
    packets: int,
    first_time: int | None,
    last_time: int | None,
    connections: ConnectionCounts,
    states: dict[str, int],
    duplicate_replies: int,
    error: str | None,
    diagnosis: list[Record],
    filter: str = "",
) -> Record:
    """What was read.  ``error`` says why reading it ended early; ``diagnosis`` has what is wrong, the worst first."""
    return record(
        "capture",
        frames=frames,
        truncated_frames=truncated_frames,
        dropped_frames=dropped_frames,
        packets=packets - connections.records,
        first_time_ns=first_time,
        last_time_ns=last_time,
        connections=connections.total,
        rpcrdma_connections=connections.rpcrdma,
        refused_connections=connections.refused,
        rpcs=sum(states.values()),
        states=states,
        duplicate_replies=duplicate_replies,
        error=error,
        diagnosis=diagnosis,
        filter=filter or None,
    )


def capture_point_record(path: str, first: str, common: CommonTraffic, names: AddressTable, whole: bool) -> Record:
    """``path``: with traffic that is read from ``first``; ``whole``: both were compared to their ends."""
    return record(
        "capture_point",
        capture=path,
        first_capture=first,
        hosts=sorted(sorted(names.name(names.id(end)) for end in pair) for pair in common.hosts),
        packets_at_both=common.both,
        packets_only_here=common.only_other,
        packets_only_first=common.only_first,
        compared_whole=whole,
        clock_offset_ns=common.offset,
        clock_offset_error_ns=common.error,
        transit_from_first_ns=common.transit[0],
        transit_to_first_ns=common.transit[1],
    )


def joined_trace_record(path: str, side: str, rpcs: int, joined: int, clocks: Clocks | None) -> Record:
    """``clocks``: the trace's, and the other one's, that of what is read."""
    return record(
        "joined_trace",
        trace=path,
        side=side,
        rpcs=rpcs,
        joined=joined,
        clock_offset_ns=None if clocks is None else clocks.offset - round(clocks.since * clocks.drift),
        clock_offset_error_ns=None if clocks is None else clocks.error,
        clock_drift=None if clocks is None else clocks.drift,
    )


def host_procedure_records(hosts: HostFacts) -> Iterator[Record]:
    """The times of each side that has a trace, the busiest procedure first."""
    for side, phases in groupby(HOST_PHASES, lambda phase: phase.side):
        fields = [phase.field for phase in phases]
        for key, sums in sorted(hosts.procedures.items(), key=lambda times: -times[1].whole(side)):
            if sums.whole(side):
                yield record(
                    "host_procedure",
                    **_names(key),
                    side=side,
                    rpcs=sums.calls,
                    total_ns=sums.whole(side),
                    phases={field: sums.times[field] for field in fields},
                )


def procedure_record(procedure: Procedure) -> Record:
    return record(
        "procedure",
        **_names(procedure.key),
        rpcs=procedure.calls,
        failed=procedure.failed,
        statuses=procedure.statuses,
        states=procedure.states,
        call_bytes=procedure.call_bytes,
        reply_bytes=procedure.reply_bytes,
        latency=distribution_fields(procedure.latency()),
        unanswered=unanswered_fields(procedure.outstanding),
        parts={name: distribution_fields(part) for name, part in procedure.parts().items()},
    )


def _names(key: ProcedureKey) -> Record:
    return {
        "direction": "backward" if key.backward else "forward",
        "program": None if key.program is None else program_name(key.program),
        "program_number": key.program,
        "version": key.version,
        "minor_version": key.minor_version,
        "procedure": key.name or None,
        "procedure_number": key.procedure,
        "operations": list(key.operations),
    }


def distribution_fields(latency: Distribution | None) -> Record | None:
    """None where there is none."""
    if latency is None:
        return None
    return {
        "count": latency.count,
        "min_ns": latency.minimum,
        "median_ns": latency.median,
        "p95_ns": latency.p95,
        "p99_ns": latency.p99,
        "max_ns": latency.maximum,
        "total_ns": latency.total,
        "exact_to_ns": None if latency.exact_to == LONGEST_NS else max(0, latency.exact_to),
    }


def unanswered_fields(latency: Distribution | None) -> Record | None:
    """Calls without a reply, and how long they are outstanding; None where there are none."""
    return (
        None if latency is None else {"rpcs": latency.count, "waiting_ns": latency.total, "longest_ns": latency.maximum}
    )


def slowest_record(rank: int, slow: SlowRpc) -> Record:
    return record(
        "slowest",
        rank=rank,
        number=slow.number,
        connection=slow.connection,
        xid=slow.xid,
        **_names(slow.key),
        state=slow.state,
        status=slow.status or None,
        call_frame=slow.call_frame,
        reply_frame=slow.reply_frame or None,
        call_bytes=slow.call_bytes,
        reply_bytes=slow.reply_bytes,
        retransmitted_packets=slow.retransmissions,
        latency=latency_fields(slow.latency),
        waiting_ns=slow.waiting,
    )


def throughput_record(seconds: float, bins: list[Bin]) -> Record:
    return record(
        "throughput",
        seconds_each=seconds,
        rpcs=[interval.calls for interval in bins],
        call_bytes=[interval.call_bytes for interval in bins],
        reply_bytes=[interval.reply_bytes for interval in bins],
    )


THROUGHPUT_BINS = 100
"""Intervals of time in the record of throughput."""


def report_records(facts: Facts, analyzer: Analyzer, diagnosis: Diagnosis, filter: str = "") -> Iterator[Record]:
    """All records of a report; ``filter``: the condition on the RPCs in it."""
    statistics, error = facts.statistics, facts.damage or None
    yield capture_record(
        frames=analyzer.frames,
        truncated_frames=analyzer.truncated_frames,
        dropped_frames=analyzer.dropped_frames,
        packets=analyzer.packets,
        first_time=analyzer.earliest_time,
        last_time=analyzer.last_time,
        connections=connection_counts(analyzer.conversations, analyzer.evicted),
        states=statistics.states,
        duplicate_replies=statistics.duplicate_replies,
        error=error,
        diagnosis=statements(diagnosis.statements),
        filter=filter,
    )
    for conversation in analyzer.conversations:
        yield connection_record(conversation, statistics.connections.get(conversation.connection.number))
    for conversation in analyzer.conversations:
        yield transport_record(conversation, facts.healths[conversation.connection.number])
    if analyzer.evicted.connections:
        yield evicted_record(analyzer.evicted, statistics.evicted)
    for procedure in statistics.procedures():
        yield procedure_record(procedure)
    yield from host_procedure_records(facts.hosts)
    for way, transfer in statistics.transfers.items():
        yield record(
            "transfer",
            way=way.replace(" ", "_"),
            messages=transfer.messages,
            chunks=transfer.chunks,
            segments=transfer.segments,
            advertised=transfer.advertised,
            transferred=transfer.transferred,
            unused_chunks=transfer.unused,
        )
    for rank, slow in enumerate(statistics.slowest(), 1):
        yield slowest_record(rank, slow)
    for low, high, number in statistics.histogram():
        yield record("histogram", low_ns=low, high_ns=high, rpcs=number)
    if statistics.calls:
        yield throughput_record(*statistics.timeline.intervals(THROUGHPUT_BINS))
    for what, reason, number in undecoded(analyzer, statistics, error):
        yield record("undecoded", what=what, reason=reason, count=number)


INTERVALS = 100
"""Intervals of the records over time, at most."""


def group_record(group: CallGroup, names: Sequence[str], groups: CallGroups, first_time: int) -> Record:
    """``names``: what RPCs are grouped by."""
    others = group is groups.others
    by: Record = {name: None if others else value for name, value in zip(names, group.key, strict=not others)}
    if "begin" in by:
        begin = by.pop("begin")
        by["begin_ns"] = None if others else first_time + begin
    return record(
        "group",
        by=by,
        others=others,
        rpcs=group.calls,
        errors=group.errors,
        incomplete=group.incomplete,
        call_bytes=group.call_bytes,
        reply_bytes=group.reply_bytes,
        latency=distribution_fields(group.latency()),
        unanswered=unanswered_fields(group.outstanding.distribution()),
        parts={f"{name}_ns": total for name, total in zip(PARTS, group.parts, strict=True)},
        time_share=group.waited / groups.waited if groups.waited else None,
        percentiles="exact" if groups.exact else "to 2 %",
    )


def interval_record(interval: LatencyInterval) -> Record:
    from ..measure.call_groups import bounds  # Only here: reports do without.

    histogram = [
        dict(zip(("low_ns", "high_ns", "rpcs"), (*bounds(bin), count), strict=True))
        for bin, count in zip(interval.bins.tolist(), interval.counts.tolist(), strict=True)
    ]
    return record(
        "interval",
        begin_ns=interval.begin,
        end_ns=interval.end,
        rpcs=interval.calls,
        errors=interval.errors,
        incomplete=interval.incomplete,
        call_bytes=interval.call_bytes,
        reply_bytes=interval.reply_bytes,
        unanswered=interval.outstanding,
        median_ns=interval.percentile(50),
        p95_ns=interval.percentile(95),
        p99_ns=interval.percentile(99),
        histogram=histogram,
    )


def service_level_record(counts: ServiceLevelCounts) -> Record:
    level = counts.level
    return record(
        "service_level",
        service_level=level.text,
        procedure=level.procedure,
        measure=level.measure,
        limit_ns=level.limit,
        verdict=counts.verdict,
        value_ns=counts.value,
        value_is_lower_bound=counts.value_is_bound,
        rpcs=counts.calls,
        beyond=counts.beyond,
        unknown=counts.unknown,
        unanswered=counts.outstanding,
        violated=[
            {
                "begin_ns": span.begin,
                "end_ns": span.end,
                "rpcs": span.calls,
                "beyond": span.beyond,
                "worst_ns": span.worst,
                "worst_rpc": span.worst_rpc,
            }
            for span in counts.spans()
        ],
    )


def file_record(table: FileTable, file: File) -> Record:
    """``holes`` are null where nothing was read from the file or written to it."""
    from ..onc.file_operations import TYPE_NAMES  # Only here: reports do without.

    paths = table.paths(file)
    return record(
        "file",
        number=file.number,
        server=file.server,
        handle=file.handle.hex(),
        handle_hash=file.hash,
        path=paths[0] if paths else None,
        other_paths=paths[1:],
        removed_path=table.removed_path(file),
        earlier_names=[
            {"path": path, "since_ns": since, "until_ns": until, "ended": ended}
            for path, since, until, ended in table.earlier_names(file)
        ],
        file_type=None if file.type is None else TYPE_NAMES.get(file.type, str(file.type)),
        protocols=sorted(
            f"NFSv{version}" + ("" if minor is None else f".{minor}") for version, minor in file.protocols
        ),
        reads=file.reads,
        writes=file.writes,
        latency=distribution_fields(file.latency),
        size=file.size,
        least_size=file.length,
        read=file.read,
        written=file.written,
        written_unconfirmed=file.unconfirmed,
        write_refused=file.refused,
        uncommitted=file.uncommitted,
        verifier_changed=file.restarted,
        missing=dict(file.missing),
        calls=dict(file.calls),
        holes=ranges_of(file.gaps()) if file.transfers else None,
    )


def ranges_of(ranges: list[tuple[int, int]]) -> list[Record]:
    return [{"offset": start, "length": end - start} for start, end in ranges]
