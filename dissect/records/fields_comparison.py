"""The records of ``rdmascope compare``."""

from __future__ import annotations

from .field_types import RecordType, objects

SPREAD = {
    "min_ns": ("integer", "the least"),
    "median_ns": ("integer", "the median"),
    "p99_ns": ("integer", "99 of 100 are no longer"),
    "max_ns": ("integer", "the greatest"),
}
PHASES = {
    "rpcs": ("integer", "RPCs with call and reply at both points"),
    **objects("waited", "object", "from a call's first packet to its reply's last, at the client's point", SPREAD),
    "waited_mean_ns": ("number", "their mean, which is the sum of the following"),
    "server_mean_ns": ("number", "at the server's point, without RDMA Reads"),
    "there_mean_ns": ("number", "the calls' way from the client's point to the server's, by the offset of the clocks"),
    "back_mean_ns": ("number", "the replies' way, likewise"),
    "reads_network_mean_ns": ("number", "RDMA Reads took so much longer at the server's point than at the client's"),
    "writes_network_mean_ns": ("number", "RDMA Writes, and waiting for retransmissions, at the server's point"),
    "client_mean_ns": ("number", "RDMA Reads at the client's point: how long the client took to answer them"),
}
RUN = {
    "rpcs": ("integer", "RPCs"),
    "failed": ("integer", "of them, those whose reply reports an error"),
    **objects("latency", "object|null", "null: none is known", SPREAD),
    "call_bytes": ("integer", "bytes of the RPC calls"),
    "reply_bytes": ("integer", "of the RPC replies"),
    "chunk_bytes": ("integer", "of both, transferred by RDMA Read and Write"),
}
_FRAMES = "array of integer"

TYPES: dict[str, RecordType] = {
    "points": RecordType(
        "Two captures of the same traffic, at two points.",
        "`compare`, `report`",
        {
            "client_capture": ("string", "the capture that calls pass first"),
            "server_capture": ("string", "the other one"),
            "packets_at_both": ("integer", "packets that both show"),
            "compared_whole": ("boolean", "all packets were compared, not only those at the beginning"),
            "clock_offset_ns": ("integer", "the server's clock less the client's, at the beginning"),
            "clock_offset_error_ns": ("integer|null", "how far that may be wrong; null: from one direction"),
            "clock_drift_ppm": (
                "number|null",
                "what the server's clock gains, in parts per million; 0: nothing that is certain; null: not known",
            ),
            "clock_drift_error_ppm": ("number|null", "how far that may be wrong"),
            "transit_to_server_ns": ("integer|null", "median time of a packet to the server's point"),
            "transit_to_client_ns": ("integer|null", "median time back"),
            "lost_to_server_frames": (_FRAMES, "at the client's point alone, and sent by clients"),
            "missed_by_server_frames": (_FRAMES, "at the client's point alone, though they passed the server's"),
            "lost_to_client_frames": (_FRAMES, "at the server's point alone, and sent by servers"),
            "missed_by_client_frames": (_FRAMES, "at the server's point alone, though they passed the client's"),
            "rpcs_only_client": ("integer", "RPCs with call and reply at the client's point alone"),
            "rpcs_only_server": ("integer", "at the server's point alone"),
            **objects("phases", "object|null", "all RPCs together; null: none is whole at both points", PHASES),
        },
    ),
    "points_procedure": RecordType(
        "Where the time of one procedure's RPCs went, between two capture points.",
        "`compare`, `report`",
        {
            "procedure": ("string", "program, version and procedure, or the operations of a COMPOUND"),
            **objects("phases", "object", "its RPCs", PHASES),
        },
    ),
    "points_rpc": RecordType(
        "An RPC that two capture points saw: when, and where its time went.",
        "`compare --rpcs`, `report`",
        {
            "procedure": ("string", "program, version and procedure, or the operations of a COMPOUND"),
            "xid": ("integer", "its XID"),
            "client_rpc": ("integer", "its number in the client's capture"),
            "server_rpc": ("integer", "its number in the server's capture"),
            "client_time_ns": ("integer", "the call's first packet at the client's point, by the clock there"),
            "server_time_ns": ("integer", "the same at the server's point, by the clock there"),
            "client_latency_ns": ("integer", "latency at the client's point: the sum of the five parts"),
            "server_latency_ns": ("integer", "latency at the server's point"),
            "server_ns": ("integer", "at the server's point, without RDMA Reads"),
            "there_ns": ("integer", "the call's way to the server's point, by the offset of the clocks"),
            "back_ns": ("integer", "the reply's way, likewise"),
            "way_error_ns": ("integer|null", "how far either may be wrong, the other by as much the other way"),
            "reads_network_ns": ("integer", "RDMA Reads took so much longer at the server's point"),
            "writes_network_ns": ("integer", "RDMA Writes, and waiting for retransmissions, at the server's point"),
            "client_ns": ("integer", "RDMA Reads at the client's point"),
        },
    ),
    "runs": RecordType(
        "Two captures of different traffic.",
        "`compare`",
        {
            "before": ("string", "the first capture"),
            "after": ("string", "the second"),
            "seconds_before": ("number", "from its first frame to its last"),
            "seconds_after": ("number", "of the second"),
            **objects("diagnosis", "array of object", "what one run's diagnosis alone has, the worst of each kind", {
                "run": ("string", "before or after: the run that has it"),
                "kind": ("string", "the detector"),
                "severity": ("string", "problem, warning or note"),
                "title": ("string", "what is wrong, in general"),
                "text": ("string", "what is wrong in this run"),
            }),
            **objects("settings", "array of object", "what the ends agreed, where it differs", {
                "name": ("string", "of the setting"),
                "before": ("array of string", "every value that a connection has of it"),
                "after": ("array of string", "in the second capture"),
            }),
            **objects("rules", "array of object", "rules of the audit that one run alone broke", {
                "rule": ("string", "its id"),
                "role": ("string", "client or server"),
                "violations_before": ("integer", "in the first run"),
                "violations_after": ("integer", "in the second"),
            }),
        },
    ),
    "runs_procedure": RecordType(
        "One procedure in two runs.",
        "`compare`",
        {
            "procedure": ("string", "program, version and procedure, or the operations of a COMPOUND"),
            **objects("before", "object", "in the first run", RUN),
            **objects("after", "object", "in the second", RUN),
            "chance": (
                "number|null",
                "how often chance alone makes latencies differ as much (test of Mann and Whitney, two-sided); null: "
                "fewer than 8 in one of the runs",
            ),
            "slower_share": (
                "number|null",
                "the share of pairs, an RPC of each run, in which the second one's took longer; half of those alike",
            ),
            "significant": ("boolean", "chance is below 0.01"),
        },
    ),
}  # fmt: skip
