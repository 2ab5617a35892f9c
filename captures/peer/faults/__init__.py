"""The faults that an endpoint can be told to commit: one table.

Each row has what the endpoint does wrong, which end can do it, and the audit rule that it breaks.  A fault is committed
once, on the first occasion in the conversation; without an occasion nothing happens, and ``Endpoint.committed`` stays
0."""

from __future__ import annotations

from ..endpoint.endpoint import Fault
from ..endpoint.nouns import Role
from . import spoil as s

CLIENT, SERVER = Role.CLIENT, Role.SERVER
FORMAT_IDENTIFIER = bytes.fromhex("f6ab0e18")


def _other_version(data: bytes) -> bytes:
    return data[:4] + b"\x02" + data[5:]


def _reserved(data: bytes) -> bytes:
    return data[:5] + bytes([data[5] | 0x80]) + data[6:]


# fmt: off
FAULTS: dict[str, Fault] = {
    # Transport headers (RFC 8166, 4)
    "version-77": Fault("V1-VERSION", CLIENT, "sends a call of version 77", s.word(s.VERSION_WORD, 77)),
    "msgp": Fault("V1-PROC-MSGP", CLIENT, "sends a call as RDMA_MSGP", s.msgp, version=1),
    "done": Fault("V1-PROC-DONE", CLIENT, "sends RDMA_DONE instead of a call", s.done, version=1),
    "procedure-9": Fault("V1-PROC-UNKNOWN", CLIENT, "sends a call as procedure 9", s.word(s.PROCEDURE_WORD, 9),
                         version=1),
    "optional-word-2": Fault("V1-HEADER-XDR", CLIENT, "puts 2 where a chunk list is present or not", s.optional_word),
    "other-xid-inline": Fault("V1-XID-MATCH", SERVER, "sends a reply with another XID than its header has",
                              s.other_xid),
    "no-payload": Fault("V1-MSG-PAYLOAD", CLIENT, "sends RDMA_MSG with no message behind it", s.no_payload, version=1),
    "payload-behind-nomsg": Fault("V1-NOMSG-PAYLOAD", SERVER, "sends 16 bytes behind an RDMA_NOMSG", s.behind_nomsg),
    "payload-behind-error": Fault("V1-ERROR-PAYLOAD", SERVER, "sends 12 bytes behind an RDMA_ERROR", s.behind_error,
                                  version=1),
    "nomsg-without-chunk": Fault("V1-NOMSG-CHUNK", CLIENT, "sends RDMA_NOMSG without a chunk", s.nothing_at_all),
    # Credits (RFC 8166, 3.3)
    "grant-nothing": Fault("V1-CREDIT-ZERO", SERVER, "grants no credit", s.credits("reply", False)),
    "one-call-too-many": Fault("V1-CREDIT-EXCEEDED", CLIENT, "sends a call without a credit for it", bends="credits"),
    "two-first-calls": Fault("V1-CREDIT-FIRST", CLIENT, "sends a second call before the first reply", version=1,
                             bends="first call"),
    "xid-twice": Fault("V1-XID-REUSED", CLIENT, "gives a call the XID of one under way", s.same_xid),
    # Inline thresholds (RFC 8166, 3.3.2 and 3.5.3; RFC 8797, 5.1)
    "too-long-for-peer": Fault("V1-INLINE-EXCEEDED", CLIENT, "sends more inline than the peer can receive", version=1,
                               bends="inline", fits=s.beyond_peer),
    "too-long-for-both": Fault("PD-INLINE", CLIENT, "sends more inline than it announced itself", version=1,
                               bends="inline", fits=s.beyond_own),
    "too-long-for-all": Fault("V1-FIRST-1024", CLIENT, "sends more than 1024 bytes, nothing being announced", version=1,
                              bends="inline", fits=s.beyond_default),
    "reply-chunk-ignored": Fault("V1-REPLY-USES-REPLY-CHUNK", SERVER, "sends a long reply inline, past its Reply chunk",
                                 version=1, bends="reply chunk"),
    # Read chunks (RFC 8166, 3.4.5 and 3.5.3)
    "position-unaligned": Fault("V1-READ-POSITION-ALIGN", CLIENT, "gives a Position that is no multiple of four",
                                s.shifted(-2)),
    "position-beyond": Fault("V1-READ-POSITION-RANGE", CLIENT, "gives a Position behind the end of the message",
                             s.shifted(4000)),
    "chunks-interleaved": Fault("V1-READ-POSITION-SAME", CLIENT, "lists the segments of a chunk around another one",
                                s.interleaved),
    "pad-left-inline": Fault("V1-READ-ROUNDUP", CLIENT, "leaves the pad of a reduced item inline", s.pad_inline),
    "long-call-not-at-zero": Fault("V1-LONG-CALL-POSITION", CLIENT, "sends RDMA_NOMSG with a chunk at another Position",
                                   s.long_call_elsewhere),
    "chunk-too-short": Fault("V1-CHUNK-LENGTH-MATCH", CLIENT, "advertises four bytes fewer than the item counts",
                             s.shorter_chunk),
    "not-eligible": Fault("V1-DDP-ELIGIBLE", CLIENT, "puts a Read chunk where no DDP-eligible item is", s.not_eligible),
    "read-list-in-reply": Fault("V1-READ-IN-REPLY", SERVER, "gives a reply a Read list", s.read_list),
    "memory-kept": Fault("V1-HANDLE-PERSISTENT", CLIENT, "keeps memory registered and advertises it again and again",
                         bends="fresh memory"),
    "handles-in-order": Fault("V1-HANDLE-PREDICTABLE", CLIENT, "registers memory under handles of one step",
                              bends="random handles"),
    "ineligible-accepted": Fault("V1-REPLY-NO-BINDING", SERVER, "answers SUCCESS to a Read chunk at an ineligible item",
                                 s.ineligible_accepted, cause="not-eligible"),
    # Write chunks and the Reply chunk (RFC 8166, 3.4.6 and 4.3)
    "reply-chunk-made-up": Fault("V1-REPLY-CHUNK-MISSING", SERVER, "sends RDMA_NOMSG where no Reply chunk was given",
                                 s.made_up_reply_chunk),
    "reply-chunk-small": Fault("V1-REPLY-CHUNK-SIZE", CLIENT, "gives a Reply chunk an eighth as long as needed",
                               s.small_reply_chunk),
    "no-reply-chunk": Fault("V1-REPLY-CHUNK-PROVIDED", CLIENT, "asks for a long listing without a Reply chunk",
                            s.no_reply_chunk),
    "write-chunk-small": Fault("V1-WRITE-CHUNK-SIZE", CLIENT, "gives a Write chunk half as long as the READ",
                               s.small_write_chunk),
    "segment-missing": Fault("V1-WRITE-SEGMENT-COUNT", SERVER, "returns one segment fewer than it was given",
                             s.segment_missing),
    "handle-zero": Fault("V1-WRITE-SEGMENT-COPY", SERVER, "returns a segment with handle 0", s.other_handle),
    "returned-too-long": Fault("V1-WRITE-SEGMENT-LENGTH", SERVER, "returns twice the length that was advertised",
                               s.longer_than_given),
    "filled-out-of-order": Fault("V1-WRITE-FILL-ORDER", SERVER, "fills a segment while the one before has room",
                                 s.out_of_order),
    "unfilled-with-length": Fault("V1-WRITE-UNFILLED", SERVER, "returns an unfilled segment with its length",
                                  s.unfilled),
    "unused-with-length": Fault("V1-WRITE-UNUSED", SERVER, "fails a READ and returns its Write chunk as it was",
                                s.unused_chunk),
    "half-written": Fault("V1-WRITE-LENGTH-TRUE", SERVER, "writes half of what it returns", s.half_written),
    "pad-written": Fault("V1-WRITE-NO-PAD", SERVER, "writes the pad of an item behind it", s.pad_written),
    "pad-segment": Fault("V1-WRITE-EXTRA", CLIENT, "adds a segment for the pad to a Write chunk", bends="pad segment"),
    "not-reduced": Fault("V1-REDUCE-REQUIRED", SERVER, "sends an item inline for which there is a Write chunk",
                         bends="reduce", fits=s.fits_inline),
    "count-too-low": Fault("V1-COUNT-MATCH", SERVER, "leaves another count than the chunk returns", s.other_count),
    "item-inline-too": Fault("V1-ITEM-MOVED", SERVER, "sends the data of a Write chunk inline as well", s.item_inline),
    # RDMA (RFC 8166, 3.1, 3.4 and 8.1)
    "written-after-reply": Fault("V1-WRITE-BEFORE-REPLY", SERVER, "writes into a Write chunk behind the reply",
                                 s.write_late),
    "client-writes": Fault("V1-TRANSFER-MODEL", CLIENT, "issues an RDMA Write into the server's memory",
                           s.requester_writes),
    "written-outside": Fault("V1-RDMA-OUTSIDE", SERVER, "writes a byte behind the end of a segment", s.outside),
    "read-after-reply": Fault("V1-RDMA-AFTER-REPLY", SERVER, "reads a Read chunk once more behind the reply",
                              s.read_late),
    # Errors (RFC 8166, 4.5)
    "error-other-xid": Fault("V1-ERROR-XID", SERVER, "sends an RDMA_ERROR with an XID that no message had",
                             s.error_of_unknown_xid),
    "error-other-version": Fault("V1-ERROR-VERSION", SERVER, "sends an RDMA_ERROR of version 7", s.error_of_version),
    "error-7": Fault("V1-ERROR-CODE", SERVER, "sends an RDMA_ERROR with rdma_err 7", s.unknown_error, version=1),
    "error-range": Fault("V1-ERROR-RANGE", SERVER, "refuses a version and names it as supported", s.range_of_all),
    "version-as-header": Fault("V1-ERROR-FOR-VERSION", SERVER, "refuses a version with RDMA_ERR_BADHEADER",
                               s.other_error),
    "header-ignored": Fault("V1-ERROR-FOR-HEADER", SERVER, "ignores a header that it cannot decode",
                            bends="refusal", cause="optional-word-2"),
    "reserved-ignored": Fault("V1-ERROR-FOR-RESERVED", SERVER, "ignores RDMA_DONE", bends="refusal",
                              cause="done", version=1),
    "error-answered": Fault("V1-ERROR-OF-ERROR", CLIENT, "answers an RDMA_ERROR that it cannot decode", bends="silence",
                            cause="error-7", version=1),
    "error-and-reply": Fault("V1-ERROR-RETRY", SERVER, "answers a call by RDMA_ERROR, and then by a reply",
                             s.error_and_reply),
    "short-arguments": Fault("", CLIENT, "sends WRITE arguments that end too early, which is no transport's fault",
                             s.short_arguments),
    "garbage-accepted": Fault("V1-GARBAGE-ARGS", SERVER, "answers SUCCESS to arguments that end too early", s.success,
                              cause="short-arguments"),
    # The backward direction (RFC 8167)
    "backward-nomsg": Fault("V1-BACKWARD-PROC", SERVER, "sends a backward call as RDMA_NOMSG", s.backward_nomsg,
                            version=1),
    "backward-chunk": Fault("V1-BACKWARD-CHUNKS", SERVER, "gives a backward call a Reply chunk", s.backward_chunk,
                            version=1),
    "backward-asks-nothing": Fault("V1-BACKWARD-CREDIT-ZERO", SERVER, "asks for no credit in a backward call",
                                   s.credits("call", True)),
    "one-callback-too-many": Fault("V1-BACKWARD-CREDIT-EXCEEDED", SERVER,
                                   "sends a backward call without a credit for it", bends="credits"),
    "two-first-callbacks": Fault("V1-BACKWARD-CREDIT-FIRST", SERVER,
                                 "sends a second backward call before the first reply", bends="first call"),
    "callback-too-long": Fault("V1-BACKWARD-SIZE", SERVER, "sends a backward call that is longer than the threshold",
                               bends="inline", fits=s.beyond),
    "callback-unannounced": Fault("V1-BACKWARD-UNANNOUNCED", SERVER, "sends a callback before one was announced",
                                  s.callback_unannounced),
    # RPCSEC_GSS and bindings (RFC 8166, 7 and 8.2.2)
    "sealed-and-reduced": Fault("V1-GSS-NO-REDUCTION", CLIENT, "reduces an item of a call with RPCSEC_GSS integrity",
                                s.sealed(0, 16)),
    "token-in-chunk": Fault("V1-GSS-MATERIAL", CLIENT, "puts an RPCSEC_GSS token into a Read chunk", s.sealed(1, 0)),
    "no-binding": Fault("V1-NO-BINDING", CLIENT, "calls a program without upper-layer binding", s.other_program),
    # Private data and Send With Invalidate (RFC 8797)
    "private-version-2": Fault("PD-VERSION", CLIENT, "announces private data of version 2", private=_other_version),
    "private-reserved": Fault("PD-RESERVED", SERVER, "sets a reserved bit of the private data", private=_reserved),
    "private-truncated": Fault("PD-LENGTH", CLIENT, "ends the private data behind the identifier",
                         private=lambda data: bytes(52) + FORMAT_IDENTIFIER),
    "private-twice": Fault("PD-AMBIGUOUS", CLIENT, "sends the private data message twice",
                           private=lambda data: data + data),
    "invalidate-unasked": Fault("PD-INVALIDATE-AGREED", SERVER, "invalidates memory though that was not agreed",
                                s.invalidate_unasked, version=1),
    "invalidate-other": Fault("PD-INVALIDATE-STAG", SERVER, "invalidates a handle that the call did not give",
                              s.invalidate_other),
    "invalidate-in-call": Fault("PD-INVALIDATE-ROLE", CLIENT, "sends a call that invalidates a handle",
                                s.invalidate_in_call),
    # Version 2 (version-two-01)
    "v2-procedure-3": Fault("V2-PROC", CLIENT, "sends a call as procedure 3", s.word(s.PROCEDURE_WORD, 3), version=2),
    "v2-reply-as-call": Fault("V2-DIRECTION", SERVER, "sends a reply with rdma_direction CALL", s.says_call, version=2),
    "v2-option-as-reply": Fault("V2-OPTIONAL-DIRECTION", CLIENT, "sends ROPT_INITXCH with rdma_optdir REPLY",
                                s.says_reply, version=2),
    "v2-no-payload": Fault("V2-MSG-PAYLOAD", CLIENT, "sends RDMA2_MSG with no message behind it", s.no_payload,
                           version=2),
    "v2-payload-behind-error": Fault("V2-ERROR-PAYLOAD", SERVER, "sends 12 bytes behind an RDMA2_ERROR",
                                     s.behind_error, version=2),
    "v2-error-7": Fault("V2-ERROR-CODE", SERVER, "sends an RDMA2_ERROR with rdma_err 7", s.unknown_error, version=2),
    "v2-unknown-option": Fault("", CLIENT, "sends option 77, which it may", s.unknown_option, version=2),
    "v2-option-as-header": Fault("V2-INVAL-OPTION", SERVER, "refuses an option with RDMA2_ERR_BAD_HEADER",
                                 s.option_as_header, cause="v2-unknown-option", version=2),
    "v2-second-before-answer": Fault("V2-FIRST-MESSAGE", CLIENT, "sends a second message before the first is answered",
                                     bends="version", version=2),
    "v2-again": Fault("V2-FALLBACK", CLIENT, "sends version 2 again after RDMA_ERR_VERS", bends="fallback", version=2),
    "v2-reply-version-1": Fault("V2-REPLY-VERSION", SERVER, "answers a call of version 2 in version 1", s.of_version_1,
                                version=2),
    "v2-too-long": Fault("V2-INLINE-4096", CLIENT, "sends more than 4096 bytes, no other size being announced",
                         bends="inline", fits=s.beyond_4096, version=2),
    # Transport characteristics (xcharext-02)
    "xc-overrun": Fault("XC-BOUNDS", CLIENT, "gives xchv_data a length beyond the message", s.overrun, version=2),
    "xc-bool-7": Fault("XC-TYPE", CLIENT, "announces Requester Remote Invalidation as 7", s.bool_7, version=2),
    "xc-unknown-announced": Fault("", CLIENT, "announces characteristic 77, which it may", s.unknown_characteristic,
                             version=2),
    "xc-unknown-refused": Fault("XC-UNKNOWN", SERVER, "refuses a ROPT_INITXCH for a characteristic it does not know",
                                bends="unknown characteristic", cause="xc-unknown-announced", version=2),
    "xc-call-behind": Fault("XC-PAYLOAD", CLIENT, "sends an RPC call behind ROPT_INITXCH", s.call_behind, version=2),
    "xc-init-too-long": Fault("XC-INIT-SIZE", CLIENT, "sends a ROPT_INITXCH of more than 1024 bytes", s.too_long,
                              version=2),
    "xc-init-again": Fault("XC-INIT-FIRST", CLIENT, "sends ROPT_INITXCH when calls were sent before", s.once_more,
                           version=2),
    "xc-small-buffer": Fault("V2-RECEIVE-4096", CLIENT, "announces a Receive Buffer Size of 2048", s.small_buffer,
                             version=2),
    "xc-no-callbacks": Fault("V2-BACKWARD-REQUIRED", CLIENT, "announces BKREQSUP_NONE", s.no_backward_support,
                             version=2),
    "xc-fixed-changed": Fault("XC-NOCHANGE", SERVER, "announces that nothing will change, and changes it", s.all_fixed,
                              version=2),
    "xc-response-xid": Fault("XC-RESPONSE-XID", SERVER, "answers ROPT_REQXCH under another XID", s.response_xid,
                             version=2),
    "xc-response-sets": Fault("XC-RESPONSE-SETS", SERVER, "names a change as done and as rejected", s.two_sets,
                              version=2),
    "xc-no-response": Fault("XC-RESPONSE-MISSING", SERVER, "does not answer ROPT_REQXCH", bends="response", version=2),
    "xc-response-refused": Fault("XC-SUPPORT", CLIENT, "sends ROPT_REQXCH and refuses the ROPT_RESPXCH",
                                 bends="support", version=2),
    "xc-clears-nothing": Fault("XC-UPDATE-PENDING", SERVER, "clears a pending change where none is pending",
                               s.clears_nothing, version=2),
    "xc-too-long": Fault("XC-RBSIZ", CLIENT, "sends more than the Receive Buffer Size of its peer", bends="inline",
                         fits=s.beyond_buffer, version=2),
    "xc-request-ignored": Fault("XC-RBSIZ-REQUESTED", CLIENT, "asks for a smaller Receive Buffer Size and sends more",
                                bends="inline", fits=s.beyond_request, version=2),
    "xc-shrinks": Fault("XC-RBSIZ-SHRINK", SERVER, "lowers its Receive Buffer Size unasked", s.shrinks, version=2),
    "xc-invalidates": Fault("XC-REQREMINV", SERVER, "invalidates memory of a requester that did not announce support",
                            s.invalidate_unasked, version=2),
    "xc-callback-chunk": Fault("XC-BRS", SERVER, "gives a backward call a Reply chunk that the client does not serve",
                               s.backward_chunk, version=2),
    "xc-experimental": Fault("XC-EXPERIMENTAL", CLIENT, "announces an experimental characteristic", s.experimental,
                             version=2),
}
# fmt: on
"""Name -> fault.  A rule of '' marks what is allowed, and gives a fault of the peer its occasion."""


def find_fault(name: str) -> Fault | None:
    """The fault with this name, or that breaks this rule."""
    if name in FAULTS:
        return FAULTS[name]
    return next((fault for fault in FAULTS.values() if fault.rule and fault.rule == name.upper()), None)
