"""RPCSEC_GSS over RDMA."""

from __future__ import annotations

from ...layers.oncrpc_codes import GSS_SERVICE_NAMES, RPCSEC_GSS, RPCSEC_GSS_DATA
from ..rule import GSS, PASSED, Judgement, Level, rule, undecidable, violation
from ..transaction import CALL_NOT_WHOLE, Transaction

MUST = Level.MUST


@rule("V1-GSS-NO-REDUCTION", "With RPCSEC_GSS integrity or privacy nothing is reduced", MUST,
      "10.2.2.3", "RFC 8166, 8.2.2", Transaction, needs=GSS, backward=False)  # fmt: skip
def gss_no_reduction(transaction: Transaction) -> Judgement | None:
    """Calls and replies that RPCSEC_GSS protects have no Read chunk behind Position 0 and no Write chunk in use.

    Why: what is protected is the whole message with its pads; taking an item out breaks the checksum.

    Right: a krb5i WRITE as RDMA_NOMSG, all of it at Position 0.

    Wrong: a krb5i WRITE with its data in a Read chunk.
    """
    if transaction.credential_cut:
        return _unknown(transaction)
    if not transaction.sealed:
        return None
    assert transaction.rpc.gss is not None
    service = GSS_SERVICE_NAMES.get(transaction.rpc.gss.service, "")
    if transaction.reduced:
        return violation(f"a Read chunk at Position {transaction.reduced[0][0]} with RPCSEC_GSS {service}",
                         "nothing reduced", transaction.frames[0], by="requester")  # fmt: skip
    used = [chunk.returned for chunk in transaction.writes if chunk.returned]
    if used:
        return violation(f"{used[0]} bytes in a Write chunk with RPCSEC_GSS {service}", "nothing reduced",
                         *transaction.frames, by="responder")  # fmt: skip
    return undecidable(transaction.unread) if transaction.writes and transaction.unread else PASSED


def _unknown(transaction: Transaction) -> Judgement | None:
    """The judgement if the credential is not captured: none, unless something is reduced, or may be."""
    call, reply = transaction.rpc.call, transaction.rpc.reply
    cut = any(message is not None and message.header.truncated for message in (call, reply))
    reduced = cut or transaction.reduced or any(chunk.returned for chunk in transaction.writes)
    return undecidable(CALL_NOT_WHOLE) if reduced else None


@rule("V1-GSS-MATERIAL", "RPCSEC_GSS control messages and credentials are never in chunks", MUST,
      "10.2.2", "RFC 8166, 8.2.2", Transaction, needs=GSS, backward=False)  # fmt: skip
def gss_material(transaction: Transaction) -> Judgement | None:
    """Messages that set up or destroy a context are not reduced, and no Read chunk stands inside the credential or
    verifier of a call.

    Why: the transport must authenticate the caller before it moves any data.

    Right: RPCSEC_GSS_INIT inline, or whole in a Read chunk at Position 0.

    Wrong: its token in a Read chunk behind Position 0.
    """
    rpc, head = transaction.rpc, transaction.call_head
    if transaction.credential_cut:
        return _unknown(transaction)
    if head is None or head.flavor != RPCSEC_GSS or transaction.sealed:
        return None
    if rpc.gss is not None and rpc.gss.procedure != RPCSEC_GSS_DATA:
        if transaction.reduced or any(chunk.returned for chunk in transaction.writes):
            by = "requester" if transaction.reduced else "responder"
            return violation("an RPCSEC_GSS control message that is reduced", "inline, or whole in one chunk",
                             *transaction.frames, by=by)  # fmt: skip
        return PASSED
    if transaction.reduced and head.truncated and not transaction.call_whole:
        return undecidable(CALL_NOT_WHOLE)
    if transaction.reduced and (head.truncated or 0 < transaction.reduced[0][0] < head.body):
        return violation(f"a Read chunk at Position {transaction.reduced[0][0]}, inside the credential",
                         "not before the arguments", transaction.frames[0], by="requester")  # fmt: skip
    return PASSED
