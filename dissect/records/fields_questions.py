"""The fields of records of groups, of time and of service levels."""

from __future__ import annotations

from .field_types import COMMON, LATENCY, Fields, RecordType, common, objects
from .fields_report import FULL_DISTRIBUTION, UNANSWERED

FILTER: Fields = {"filter": ("string|absent", "filters, which all of these RPCs pass; absent without filters")}
_SPAN = {"begin_ns": ("integer", "from when on"), "end_ns": ("integer", "before when")}
KEYS: Fields = {
    "client": ("string|null|absent", "address of the client"),
    "server": ("string|null|absent", "address of the server"),
    "connection": ("integer|null|absent", "number of the connection"),
    "export": ("string|null|absent", "server and top directory of the path, / for what is in its root"),
    "path": ("string|null|absent", "path of the file, as it was called then"),
    "user": ("string|null|absent", "user ID, or gss: and the context handle"),
    "procedure": ("string|null|absent", "program, version and procedure, of a COMPOUND its operations"),
    "linux_operation": ("string|null|absent", "what Linux's client calls the COMPOUND, where its shape tells it"),
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
    "group": RecordType(
        "RPCs that have something in common.",
        "`report --by`",
        {
            **objects("by", "object", "what they have in common; null is not known", KEYS),
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
            "time_share": ("number|null", "share of all time spent waiting, 0 to 1; null where nothing waited"),
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
            "unanswered": ("integer", "RPCs without a reply, counted with the time for which they are outstanding"),
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
            "value_ns": ("integer|null", "what was measured, of these calls; null without one"),
            "value_is_lower_bound": ("boolean", "a call without a reply decides it"),
            "rpcs": ("integer", "calls with a latency, or outstanding for longer than the limit"),
            "beyond": ("integer", "of them, those beyond the limit"),
            "unknown": ("integer", "other calls: the whole of a reply was not seen"),
            "unanswered": ("integer", "calls outstanding for longer than the limit"),
            **objects(
                "violated",
                "array of object",
                "when it was not kept: spans of sixtieths of the time, each judged by itself",
                {
                    **_SPAN,
                    "rpcs": ("integer", "calls with a latency that began in it"),
                    "beyond": ("integer", "of them, those beyond the limit"),
                    "worst_ns": ("integer", "the longest latency"),
                    "worst_rpc": ("integer", "number of an RPC that took that long"),
                },
            ),
            **FILTER,
            "file": COMMON["file"],
        },
    ),
}
