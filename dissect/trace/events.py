"""Event: one tracepoint that was hit, with its fields under the names that the kernel's format files have.

TEXTS has the form of each event's line as ``trace-cmd report``, ``trace_pipe`` and ``perf script`` print it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from ..named_tuple import NamedTuple

Value = int | str | None
LOST = "lost"
"""Name of a pseudo-event: some events were lost after the previous one."""


class Event(NamedTuple):
    """A tracepoint that a thread hit."""

    number: int
    """1-based, counting all events of the trace."""
    time: int
    """Nanoseconds on the trace's clock."""
    name: str
    pid: int
    """The thread."""
    values: tuple[Value, ...]
    """In the order of ``EVENTS[name]``; None if this kernel does not tell."""


_TASK = "task:{task_id:t}@{client_id:t} "
_WC = "cq.id={cq_id} cid={completion_id:q}"
_STATUS = " status={_} ({status}/{_})"
_SEGMENT = "{length}@{offset:q}:{handle}"
_MR = "mr.id={mr_id} nents={nents} " + _SEGMENT
_LI = ("cq.id={cq_id} mr.id={completion_id:q}" + _STATUS, "mr.id={completion_id:q} {_} ({status}/{_})")
_PEER = "peer=[{addr:s}]:{port:w}"
_ENDS = "server={server:s} client={client:s}"
_XPRT = (_ENDS, "addr={client:s} ")
_FILE = "fileid={_} fhandle={fhandle}"
_CALL = "xid={xid} {progname:s}v{version} {procname:s}"
_BUFFER = ("head=[{_},{head_len}] page={page_len}({_}) tail=[{_},{tail_len}] len={msg_len}",
           "head=[{_},{head_len}] page={page_len} tail=[{_},{tail_len}] len={msg_len}")  # fmt: skip
_WORK = (_WC + _STATUS, _WC)
_CHUNK = _WC + " sqecount={sqecount}"
_CM = "cm.id={cm_id} src={srcaddr:s} dst={dstaddr:s}"

LONG = frozenset(("offset", "completion_id", "execute", "dir"))
"""Fields that may have 64 bits; others are limited to 32, whatever a kernel declares."""

TEXTS: dict[str, str | tuple[str, ...]] = {
    # A client's RPC, from the task that waits for it (net/sunrpc).
    "rpc_task_begin": _TASK + "flags={_}",
    "rpc_request": _TASK + "{progname:s}v{version} {procname:s} (",
    "xprt_reserve": _TASK + "xid={xid}",
    "xprt_reserve_cong": _TASK + "snd_task:{snd_task_id:x} cong={cong} cwnd={cwnd}",
    "rpc_xdr_sendto": (_TASK + _BUFFER[0], _TASK + _BUFFER[1]),
    "xprt_transmit": _TASK + "xid={xid} seqno={_} status={status}",
    "rpc_task_sleep": _TASK + "flags={_} runstate={_} status={status} timeout={timeout} queue={q_name:l}",
    "rpc_task_wakeup": _TASK + "flags={_} runstate={_} status={status} timeout={timeout} queue={q_name:l}",
    "rpc_xdr_recvfrom": (_TASK + _BUFFER[0], _TASK + _BUFFER[1]),
    "rpc_task_end": _TASK + "flags={_} runstate={_} status={status} ",
    "rpc_stats_latency": _TASK + _CALL + " backlog={backlog} rtt={rtt} execute={execute:q}",
    "nfs_xdr_status": _TASK + _CALL + " error=-{error} ",
    "rpc_clnt_new": (
        "client={client_id:t} " + _PEER + " program={program:s} server={server:s}",
        "client={client_id:t} program={program:s} server={server:s}",
    ),
    # A client's transport (net/sunrpc/xprtrdma).
    "xprtrdma_inline_thresh": (
        "{srcaddr:s} -> {dstaddr:s} neg send/recv={inline_send}/{inline_recv}, calc send/recv={max_send}/{max_recv}"
    ),
    "xprtrdma_marshal_failed": _TASK + "xid={xid} ret={ret}",
    "xprtrdma_prepsend_failed": _TASK + "xid={xid} ret={ret}",
    "xprtrdma_chunk_read": _TASK + "pos={pos} " + _SEGMENT,
    "xprtrdma_chunk_write": _TASK + _SEGMENT,
    "xprtrdma_chunk_wp": _TASK + _SEGMENT,
    "xprtrdma_chunk_reply": _TASK + _SEGMENT,
    "xprtrdma_marshal": _TASK + "xid={xid} hdr={hdrlen} xdr={headlen}/{pagelen}/{taillen} {rtype:c}/{wtype:c}",
    "xprtrdma_mr_localinv": (_TASK + _MR, _MR),
    "xprtrdma_mr_reminv": (_TASK + _MR, _MR),
    "xprtrdma_post_send": (
        _TASK + _WC + " ({num_sge} SGE",
        _TASK + "req={_} sc={completion_id:x} ({num_sge} SGE",
    ),
    "xprtrdma_wc_send": (_WC + _STATUS, "req={_} sc={completion_id:x} unmapped={_} {_} ({status}/{_})"),
    "xprtrdma_wc_receive": (
        _WC + _STATUS + " received={received}",
        "rep={completion_id:x} {received} bytes: {_} ({status}/{_})",
    ),
    "xprtrdma_wc_fastreg": _LI,
    "xprtrdma_wc_li": _LI,
    "xprtrdma_wc_li_wake": _LI,
    "xprtrdma_wc_li_done": _LI,
    "xprtrdma_reply": (_TASK + "xid={xid} credits={credits}", _TASK + "xid={xid}, {credits} credits, "),
    "xprtrdma_decode_seg": _SEGMENT,
    "xprtrdma_err_vers": _TASK + "xid={xid} versions=[{min}, {max}]",
    "xprtrdma_err_chunk": _TASK + "xid={xid}",
    "xprtrdma_cb_call": (_PEER + " xid={xid}", "xid={xid}, "),
    # A server's transport (net/sunrpc/xprtrdma/svc_rdma*), and its threads.
    "svcrdma_wc_recv": (_WC + " received={received}", _WC + _STATUS + " received={received}", _WC + _STATUS),
    "svcrdma_wc_recv_err": _WC + _STATUS,
    "svc_xprt_enqueue": _XPRT,
    "svc_xprt_dequeue": (
        _ENDS + " flags={_} wakeup-us={wakeup}",
        _ENDS + " flags={_} qtime-us={wakeup}",
        "addr={client:s} flags={_} wakeup-us={wakeup}",
    ),
    "svcrdma_decode_rseg": (_WC + " segno={segno} position={position} " + _SEGMENT, _SEGMENT),
    "svcrdma_decode_wseg": (_WC + " segno={segno} " + _SEGMENT, _SEGMENT),
    "svcrdma_decode_rqst": _WC + " xid={xid} vers={vers} credits={credits} proc={proc:c} hdrlen={hdrlen}",
    "svcrdma_post_read_chunk": _CHUNK,
    "svcrdma_wc_read": (_WC + " totalbytes={totalbytes} latency-us={read_latency}", *_WORK),
    "svcrdma_wc_read_err": _WC + _STATUS,
    "svc_xdr_recvfrom": "xid={xid} " + _BUFFER[1],
    "svc_process": "addr={addr:s} xid={xid} service={service:s} vers={vers} proc={procedure:s}",
    "svc_xdr_sendto": ("xid={xid} " + _BUFFER[0], "xid={xid} " + _BUFFER[1]),
    "svc_stats_latency": (
        "xid={xid} " + _ENDS + " proc={procedure:s} execute-us={execute:q}",
        "addr={client:s} xid={xid} proc={procedure:s} execute-us={execute:q}",
        "addr={client:s} xid={xid} execute-us={execute:q}",
    ),
    "svcrdma_post_write_chunk": _CHUNK,
    "svcrdma_post_chunk": _CHUNK,  # of any kind, before 5.15
    "svcrdma_post_reply_chunk": _CHUNK,
    "svcrdma_encode_wseg": (_WC + " segno={segno} " + _SEGMENT, _SEGMENT),
    "svcrdma_send_pullup": (_WC + " hdr={hdrlen} msg={msglen}", "len={msglen}"),
    "svcrdma_post_send": _WC + " num_sge={num_sge} inv_rkey={inv_rkey}",
    "svcrdma_wc_write": _WORK,
    "svcrdma_wc_write_err": _WC + _STATUS,
    "svcrdma_wc_send": _WORK,
    "svcrdma_wc_send_err": _WC + _STATUS,
    "svcrdma_wc_send_flush": _WC + _STATUS,
    "svc_send": "xid={xid} ",
    # NFS in the server (fs/nfsd).
    "nfsd_compound_status": "op={resp_opcnt}/{args_opcnt} {name:s} status={status}",
    "nfsd_fh_verify": "xid={xid} fh_hash={fh_hash}",
    **dict.fromkeys(
        (
            *("nfsd_read_start", "nfsd_read_done", "nfsd_write_start", "nfsd_write_done"),
            *("nfsd_commit_start", "nfsd_commit_done"),
        ),
        "xid={xid} fh_hash={fh_hash} offset={offset:q} len={len}",
    ),
    # NFS in the client (fs/nfs).
    "nfs_initiate_read": _FILE + " offset={offset:q} count={count}",
    "nfs_initiate_write": _FILE + " offset={offset:q} count={count}",
    "nfs_initiate_commit": _FILE + " offset={offset:q} count={count}",
    "nfs4_open_file": "error={_} flags={_} fmode={_} " + _FILE + " name={_}:{dir:q}/{name:s} stateid={_}",
    # The connection manager (drivers/infiniband/core/cma_trace.h).
    "cm_disconnect": _CM,
    "cm_event_handler": _CM + " tos={_} {_} ({event}/{status})",
}
"""Event: the forms of its line, first that of 6.1, then those of other kernels; '{_}' is skipped."""

RENAMED = {
    "svcrdma_wc_receive": "svcrdma_wc_recv",
    "svcrdma_encode_rseg": "svcrdma_decode_rseg",
    "svcrdma_wc_reply": "svcrdma_wc_write",  # since 6.8
    "svcrdma_wc_reply_err": "svcrdma_wc_write_err",
    "svc_xprt_do_enqueue": "svc_xprt_enqueue",
}
"""Event of another kernel, before 6.1 unless stated: our name of it."""
_FILLERS = re.compile(r" r_xprt=\w+:?|(?<=[0-9a-f]):(?= )")
"""What 5.10 prints between fields: a kernel address, or a colon."""

_CODES = {
    **{word: i for i, word in enumerate(("RDMA_MSG", "RDMA_NOMSG", "RDMA_MSGP", "RDMA_DONE", "RDMA_ERROR"))},
    **{word: i for i, word in enumerate(
        ("inline", "pullup", "mapped", "read list", "*read list", "write list", "reply chunk"))},
}  # fmt: skip
"""Numbers for the words of ``{...:c}``."""


def _number(text: str, bits: int = 32) -> Value:
    """The number; None if it is out of the range of the kernel's type."""
    value = int(text, 0)
    return value if -1 << bits - 1 <= value < 1 << bits else None


def _code(text: str) -> Value:
    return _CODES[text] if text in _CODES else int(text, 0) if text.isdigit() else None


_KINDS: Mapping[str, tuple[str, Callable[[str], Value]]] = {
    "": (r"(-?(?:0x)?[0-9a-f]+)", _number),
    "q": (r"(-?(?:0x)?[0-9a-f]+)", partial(_number, bits=64)),
    "t": (r"(-?[0-9a-f]+)", lambda text: int(text, 16 if len(text) == 8 else 10)),  # eight digits since 6.0
    "x": (r"([0-9a-f]+)", lambda text: int(text, 16)),
    "s": (r"(.*?)", str),
    "w": (r"(\S*?)", str),
    "l": (r"(.*)", str.rstrip),  # the rest of the line
    "c": (r"(.+?)", _code),
}
_FIELD = re.compile(r"\{(\w+)(?::(\w))?\}")


class TextForm(NamedTuple):
    """One form in which an event is printed."""

    pattern: re.Pattern[str]
    places: tuple[int, ...]
    """Index in ``Event.values`` of each group."""
    readers: tuple[Callable[[str], Value], ...]


def _fields(form: str) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind in _FIELD.findall(form) if name != "_"]


_FORMS = {name: (forms,) if isinstance(forms, str) else forms for name, forms in TEXTS.items()}

EVENTS: dict[str, tuple[str, ...]] = {
    name: tuple(dict.fromkeys(field for form in forms for field, _ in _fields(form))) for name, forms in _FORMS.items()
}
"""Event: its fields, named as in the format files of 6.1."""


def _text_form(name: str, form: str) -> TextForm:
    parts, at = [], 0
    for match in _FIELD.finditer(form):
        parts.append(re.escape(form[at : match.start()]).replace("cq\\.id=", "cq[._]id="))
        parts.append(".*?" if match[1] == "_" else _KINDS[match[2] or ""][0])
        at = match.end()
    fields = _fields(form)
    ends = "" if form[at:] else r"\s*$" if fields[-1][1] == "c" else r"(?=\s|$)"
    places = tuple(EVENTS[name].index(field) for field, _ in fields)
    return TextForm(
        re.compile("".join(parts) + re.escape(form[at:]) + ends), places, tuple(_KINDS[kind][1] for _, kind in fields)
    )


_TEXT_FORMS: dict[str, list[TextForm]] = {}
"""Made when an event is first seen as text."""


def text_values(name: str, text: str) -> tuple[Value, ...] | None:
    """The values of an event's line; None if it is not in EVENTS, or has another form."""
    if name not in EVENTS:
        return None
    forms = _TEXT_FORMS.get(name)
    if forms is None:
        forms = _TEXT_FORMS[name] = [_text_form(name, form) for form in _FORMS[name]]
    for line in (text, _FILLERS.sub("", text)):
        for form in forms:
            match = form.pattern.match(line)
            if match is not None:
                values: list[Value] = [None] * len(EVENTS[name])
                for index, read, field in zip(form.places, form.readers, match.groups(), strict=True):
                    values[index] = read(field)
                return tuple(values)
    return None
