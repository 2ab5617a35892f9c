"""The RPC message header: call and reply (RFC 5531, 9), and what RPCSEC_GSS wraps (RFC 2203, 5)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import dropwhile
from struct import Struct, error as StructError

from ..layers.oncrpc_codes import (
    ACCEPT_STATUS_NAMES,
    AUTH_ERROR,
    AUTH_STATUS_NAMES,
    CALL,
    GSS_INTEGRITY,
    GSS_PRIVACY,
    GSS_PROCEDURE_NAMES,
    MSG_ACCEPTED,
    MSG_DENIED,
    PROG_MISMATCH,
    REJECT_STATUS_NAMES,
    REPLY,
    RPC_MISMATCH,
    RPC_VERSION,
    RPCSEC_GSS,
    RPCSEC_GSS_DATA,
    SUCCESS,
)
from ..named_tuple import NamedTuple
from .programs import (
    MOUNT as MOUNT,
    NFS as NFS,
    NFS_CALLBACK as NFS_CALLBACK,
    NFSACL as NFSACL,
    NLM as NLM,
    PORTMAP as PORTMAP,
    PROGRAM_NAMES as PROGRAM_NAMES,
    STATUS_MONITOR as STATUS_MONITOR,
    TRANSIENT_END,
    program_name as program_name,
)
from .shapes.registry import PROCEDURES as PROCEDURES, procedure_name as procedure_name
from .xdr import Data, round_up, word, words2

CB_COMPOUND = 1


def is_callback(program: int) -> bool:
    """Whether an NFS client serves it to its server: NFS_CB, or another transient number (RFC 5531, 8.4)."""
    return NFS_CALLBACK <= program < TRANSIENT_END


def calls_back(data: Data, start: int, end: int) -> bool | None:
    """Whether a message is a call on a connection that its receiver made. None if that cannot be told: for callbacks
    such as CB_NULL, and for truncated or encrypted messages.

    CB_COMPOUND of version 4.0 comes on connections that the server makes to its client (RFC 7530, 10.2), that of later
    versions on those that the client made (RFC 8881, 2.10.3.1).
    """
    view = memoryview(data)
    if end - start < 16 or word(view, start + 4)[0] != CALL or not is_callback(word(view, start + 12)[0]):
        return False
    head = call_header(data, start, end)
    if head is None or head.procedure != CB_COMPOUND or not 0 <= head.body <= end - 4:
        return None
    at = head.body + 4 + round_up(word(view, head.body)[0])  # Behind the tag.
    return word(view, at)[0] > 0 if at + 4 <= end else None


PREAMBLE = frozenset({"SEQUENCE", "CB_SEQUENCE", "PUTFH", "PUTROOTFH"})
"""Operations that most COMPOUNDs begin with and that say little about what one is for."""


def program_label(program: int | None, version: int | None, minor_version: int | None = None) -> str:
    """A program and its version, as people write them: 'NFSv4.2', 'MOUNTv3', 'program-400000v1'."""
    if program is None:
        return "unknown program"
    number = "" if version is None else f"v{version}"
    if minor_version is not None:
        number += f".{minor_version}"
    return program_name(program) + number


def procedure_label(name: str, operations: Sequence[str], full: bool = False) -> str:
    """The procedure's name; of a COMPOUND its operations, without the preamble unless ``full``."""
    if not operations:
        return name or "?"
    telling = operations if full else list(dropwhile(PREAMBLE.__contains__, operations))
    return " ".join(telling or operations)


SUCCESS_AND_ZERO = bytes.fromhex("00000001 00000000 00000000 00000000 00000000 00000000")
"""Behind the XID of most replies: REPLY, MSG_ACCEPTED, an empty AUTH_NONE verifier, SUCCESS, and results that begin
with a zero."""


MAX_AUTH = 400
"""Longest body of a credential or verifier (RFC 5531, 8.2)."""

_CALL = Struct(">8I")
_GSS = Struct(">4I")
_REPLY = Struct(">5I")


class GssCredential(NamedTuple):
    """The RPCSEC_GSS credential without its context handle (RFC 2203, 5.3.1)."""

    version: int
    procedure: int
    sequence: int
    service: int


def credential_of(service: int, sequence: int) -> GssCredential | None:
    """The credential with this service, to which ``procedure << 8`` is added; None for 0 and less."""
    return GssCredential(1, service >> 8, sequence, service & 0xFF) if service > 0 else None


class CallHeader(NamedTuple):
    xid: int
    rpc_version: int
    program: int
    version: int
    procedure: int
    flavor: int | None = None
    """Flavor of the credential; see FLAVOR_NAMES."""
    gss: GssCredential | None = None
    body: int = -1
    """Offset of the arguments in ``data``, behind the length and sequence number where RPCSEC_GSS protects
    their integrity; -1 where they cannot be reached, see ``reason``."""
    truncated: bool = False
    """The bytes end inside the header."""
    reason: str = ""
    """Why there is no body."""


class ReplyHeader(NamedTuple):
    xid: int
    accepted: bool | None = None
    accept_status: int | None = None
    reject_status: int | None = None
    auth_status: int | None = None
    low: int | None = None
    """Lowest version supported (PROG_MISMATCH, RPC_MISMATCH)."""
    high: int | None = None
    flavor: int | None = None
    """Flavor of the verifier."""
    body: int = -1
    """Offset of the results in ``data``; -1 where there are none or they cannot be reached."""
    truncated: bool = False
    reason: str = ""

    @property
    def error(self) -> str:
        """What the reply refuses the call with: 'PROG_MISMATCH', 'AUTH_BADCRED'; '' where it does not."""
        if self.accept_status:
            return ACCEPT_STATUS_NAMES.get(self.accept_status) or f"accept_stat {self.accept_status}"
        if self.reject_status == AUTH_ERROR:
            if self.auth_status is None:
                return REJECT_STATUS_NAMES[AUTH_ERROR]
            return AUTH_STATUS_NAMES.get(self.auth_status) or f"auth_stat {self.auth_status}"
        if self.reject_status is not None:
            return REJECT_STATUS_NAMES.get(self.reject_status) or f"reject_stat {self.reject_status}"
        return ""


def message_type(data: Data, start: int, end: int) -> int | None:
    """0 for a call, 1 for a reply, None where it is neither or not in the bytes."""
    if end - start < 8:
        return None
    kind = word(memoryview(data)[start:end], 4)[0]
    return kind if kind in (CALL, REPLY) else None


def inside(xid: int, data: Data, start: int, end: int) -> bool:
    """Whether the bytes begin with an RPC call or reply of this XID (RFC 5531, 9)."""
    kind = message_type(data, start, end)
    if kind == CALL:
        call = call_header(data, start, end)
        return call is not None and call.xid == xid and call.rpc_version == 2
    if kind == REPLY:
        reply = reply_header(data, start, end)
        return reply is not None and reply.xid == xid
    return False


def call_header(data: Data, start: int, end: int) -> CallHeader | None:
    """Decode call_body (RFC 5531, 9); None where it is no call, or truncated before the procedure number."""
    view = memoryview(data)[start:end]
    limit = len(view)
    if limit < 32:
        return _truncated_call(view)
    xid, kind, rpc_version, program, version, procedure, flavor, length = _CALL.unpack_from(view, 0)
    if kind != CALL:
        return None

    def stop(reason: str, gss: GssCredential | None = None, truncated: bool = False) -> CallHeader:
        return CallHeader(xid, rpc_version, program, version, procedure, flavor, gss, -1, truncated, reason)

    if rpc_version != RPC_VERSION:
        return stop(f"RPC version {rpc_version}")
    if length > MAX_AUTH:
        return stop(f"credential of {length} bytes")
    gss: GssCredential | None = None
    if flavor == RPCSEC_GSS and length >= 16 and limit >= 48:
        gss = GssCredential(*_GSS.unpack_from(view, 32))
    at = 32 + round_up(length)
    if at + 8 > limit:
        return stop("the bytes end inside the credential", gss, True)
    verifier = words2(view, at)[1]
    if verifier > MAX_AUTH:
        return stop(f"verifier of {verifier} bytes", gss)
    at += 8 + round_up(verifier)
    if at > limit:
        return stop("the bytes end inside the verifier", gss, True)
    if flavor == RPCSEC_GSS:
        if gss is None:
            return stop("RPCSEC_GSS credential too short")
        if gss.procedure != RPCSEC_GSS_DATA:
            name = GSS_PROCEDURE_NAMES.get(gss.procedure) or f"RPCSEC_GSS procedure {gss.procedure}"
            return stop(name, gss)
        if gss.service == GSS_PRIVACY:
            return stop("encrypted by RPCSEC_GSS", gss)
        if gss.service == GSS_INTEGRITY:
            at += 8
            if at > limit:
                return stop("the bytes end inside the RPCSEC_GSS wrapping", gss, True)
    return CallHeader(xid, rpc_version, program, version, procedure, flavor, gss, start + at)


def call_head(data: Data, start: int, end: int) -> tuple[int, int, int, GssCredential | None, int] | None:
    """Program, version, procedure, RPCSEC_GSS credential and offset of the arguments from ``start`` (0: not there).

    None where ``call_header`` gives None.  Callers send the same credential over and over: what was decoded for it
    is remembered.
    """
    if end - start >= 40:
        length = _CREDENTIAL(data, start + 28)[0]
        stop = start + 40 + length
        if length <= _SHORT_CREDENTIAL and not length & 3 and stop <= end:
            known = _known_head(bytes(data[start + 4 : stop]))
            if known is not None:
                return known
    call = call_header(data, start, end)
    if call is None:
        return None
    return call.program, call.version, call.procedure, call.gss, max(0, call.body - start)


def truncated_program(data: Data, start: int, end: int) -> tuple[int, int | None] | None:
    """Program, and version where it is there, of a call that is truncated before its procedure number."""
    view = memoryview(data)[start:end]
    if not 16 <= len(view) < 24 or word(view, 4)[0] != CALL or word(view, 8)[0] != RPC_VERSION:
        return None
    return word(view, 12)[0], word(view, 16)[0] if len(view) >= 20 else None


_CREDENTIAL = Struct(">I").unpack_from
_SHORT_CREDENTIAL = 128


@lru_cache(maxsize=4096)
def _known_head(raw: bytes) -> tuple[int, int, int, GssCredential | None, int] | None:
    """A call header without its XID; None where what follows it has to be decoded with it."""
    call = call_header(bytes(4) + raw, 0, 4 + len(raw))
    if call is None or call.body < 0 or call.flavor == RPCSEC_GSS:
        return None
    return call.program, call.version, call.procedure, call.gss, call.body


def _truncated_call(view: memoryview) -> CallHeader | None:
    if len(view) < 24:
        return None
    xid, kind, rpc_version, program, version, procedure = Struct(">6I").unpack_from(view, 0)
    if kind != CALL:
        return None
    flavor = word(view, 24)[0] if len(view) >= 28 else None
    return CallHeader(
        xid,
        rpc_version,
        program,
        version,
        procedure,
        flavor,
        truncated=True,
        reason="the bytes end inside the credential",
    )


def reply_header(data: Data, start: int, end: int, gss: GssCredential | None = None) -> ReplyHeader | None:
    """Decode reply_body (RFC 5531, 9); None where it is no reply or truncated before the message type.

    ``gss`` is the call's: the reply itself does not say whether its results are wrapped (RFC 2203, 5.3.3.4),
    so without it a reply with an RPCSEC_GSS verifier has no body.
    """
    view = memoryview(data)[start:end]
    limit = len(view)
    if limit < 8:
        return None
    xid, kind = words2(view, 0)
    if kind != REPLY:
        return None
    try:
        return _reply(view, start, xid, gss)
    except StructError:
        accepted = {MSG_ACCEPTED: True, MSG_DENIED: False}.get(word(view, 8)[0]) if limit >= 12 else None
        flavor = word(view, 12)[0] if accepted and limit >= 16 else None
        return ReplyHeader(xid, accepted, flavor=flavor, truncated=True, reason="the bytes end inside the reply header")


def results_at(reply: Data | None, gss: GssCredential | None) -> int:
    """Offset of the results in a whole reply message; -1 where there are none, or no reply."""
    header = reply_header(reply, 0, len(reply), gss) if reply is not None else None
    return header.body if header is not None else -1


def _reply(view: memoryview, start: int, xid: int, gss: GssCredential | None) -> ReplyHeader:
    state = word(view, 8)[0]
    if state == MSG_ACCEPTED:
        flavor, length = words2(view, 12)
        if length > MAX_AUTH:
            return ReplyHeader(xid, True, flavor=flavor, reason=f"verifier of {length} bytes")
        at = 20 + round_up(length)
        status = word(view, at)[0]
        at += 4
        if status == SUCCESS:
            return _success(view, start, at, xid, flavor, gss)
        if status == PROG_MISMATCH:
            if at + 8 > len(view):
                return ReplyHeader(xid, True, status, flavor=flavor, truncated=True)
            low, high = words2(view, at)
            return ReplyHeader(xid, True, status, low=low, high=high, flavor=flavor)
        return ReplyHeader(xid, True, status, flavor=flavor)
    if state == MSG_DENIED:
        reason = word(view, 12)[0]
        if reason == RPC_MISMATCH:
            if len(view) < 24:
                return ReplyHeader(xid, False, None, reason, truncated=True)
            low, high = words2(view, 16)
            return ReplyHeader(xid, False, None, reason, low=low, high=high)
        if reason == AUTH_ERROR:
            if len(view) < 20:
                return ReplyHeader(xid, False, None, reason, truncated=True)
            return ReplyHeader(xid, False, None, reason, word(view, 16)[0])
        return ReplyHeader(xid, False, None, reason)
    return ReplyHeader(xid, reason=f"reply_stat {state}")


def _success(view: memoryview, start: int, at: int, xid: int, flavor: int, gss: GssCredential | None) -> ReplyHeader:
    if gss is None:
        if flavor == RPCSEC_GSS:
            return ReplyHeader(xid, True, SUCCESS, flavor=flavor, reason="RPCSEC_GSS, and the call is not known")
    else:
        if gss.procedure != RPCSEC_GSS_DATA:
            return ReplyHeader(xid, True, SUCCESS, flavor=flavor, reason="RPCSEC_GSS context")
        if gss.service == GSS_PRIVACY:
            return ReplyHeader(xid, True, SUCCESS, flavor=flavor, reason="encrypted by RPCSEC_GSS")
        if gss.service == GSS_INTEGRITY:
            at += 8
            if at > len(view):
                return ReplyHeader(xid, True, SUCCESS, flavor=flavor, truncated=True)
    return ReplyHeader(xid, True, SUCCESS, flavor=flavor, body=start + at)
