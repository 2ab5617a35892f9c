"""The fields of the records about connections."""

from __future__ import annotations

from .field_types import DISTRIBUTION, RANGE, SENT, RecordType, below, common, objects

IN_FORCE = {
    "value": ("any", "the value; null where it is not known"),
    "frame": ("integer", "frame that brought it; 0: none did"),
    "from": ("string", "how it is known"),
}

PRIVATE_DATA = {
    "version": ("integer", "version of the format"),
    "remote_invalidation": ("boolean", "the endpoint supports remote invalidation"),
    "send_size": ("integer", "bytes it sends inline, at most"),
    "receive_size": ("integer", "bytes it receives inline, at most"),
    "offset": ("integer", "where the format identifier is in the private data"),
}

ENDPOINT = {
    "address": ("string", "address"),
    "qpn": ("integer", "queue pair number; 0 with iWARP"),
    "start_psn": ("integer|null", "PSN that it expects first: that of its peer's first request; null: not seen"),
    "private_data_seen": ("boolean", "its connection message is in the capture"),
    **objects(
        "private_data",
        "object|null",
        "its private data (RFC 8797); null: none, or not seen",
        PRIVATE_DATA,
    ),
    "responder_resources": ("integer|null", "RDMA Reads that it answers at a time"),
    "initiator_depth": ("integer|null", "RDMA Reads that it issues at a time"),
    "inline_threshold": (
        "integer|null",
        "bytes it may send inline, at the end of the capture; null where the capture does not tell",
    ),
    "inline_threshold_from": ("string", "how that is known"),
    **objects("inline_thresholds", "array of object", "inline thresholds in the order they came into force", IN_FORCE),
    "characteristics": ("array of object", "its version 2 transport characteristics; empty in version 1"),
    "characteristics[].which": ("integer", "number of the characteristic"),
    "characteristics[].name": ("string", "its name"),
    **below("characteristics[]", IN_FORCE),
    **SENT,
}

CHARACTERISTIC = {
    "which": ("integer", "number of the characteristic"),
    "name": ("string", "its name"),
    "value": ("any", "integer or boolean; null where it cannot be decoded"),
    "data": ("string", "its bytes in hexadecimal"),
    "problem": ("string|null", "what is wrong with it"),
}

VERSION_USE = {
    "version": ("integer", "version of RPC-over-RDMA"),
    **common("frame"),
    "endpoint": ("integer", "0 active, 1 passive"),
    "send_length": ("integer", "bytes of the Send"),
}

SOMEWHERE = {
    **common("frame"),
    "endpoint": ("integer", "0 active, 1 passive"),
}

POSITIONS = "array of integer"

NEGOTIATION = {
    "version": ("integer|null", "version that was settled on"),
    **objects("requested", "object|null", "the first call", VERSION_USE),
    **objects("answers", "array of object", "the first replies", VERSION_USE),
    **objects("refusals", "array of object", "versions that were refused", SOMEWHERE),
    "refusals[].error": ("string", "name of the error"),
    "refusals[].lowest": ("integer|null", "lowest version supported"),
    "refusals[].highest": ("integer|null", "highest version supported"),
    "refusals[].refused_version": ("integer|null", "version of the call that was refused"),
    "refusals[].refused_frame": ("integer|null", "frame of that call"),
    **objects("continued", "object|null", "the first call after a refusal", VERSION_USE),
    **objects("announcements", "array of object", "characteristics announced", SOMEWHERE),
    "announcements[].by": ("string", "option that announced it"),
    **below("announcements[]", CHARACTERISTIC),
    **objects("no_change", "array of object", "characteristics that an endpoint says stay as they are", SOMEWHERE),
    "no_change[].names": ("array of string", "their names"),
    **objects("requests", "array of object", "requests to change characteristics", SOMEWHERE),
    "requests[].xid": ("integer", "transaction ID"),
    **objects("requests[].want", "array of object", "what is wanted", CHARACTERISTIC),
    "requests[].answer_frame": ("integer|null", "frame of the answer"),
    "requests[].refused_frame": ("integer|null", "frame of the refusal"),
    "requests[].done": (POSITIONS, "changes that were made: their positions in want, from 0"),
    "requests[].rejected": (POSITIONS, "changes that were rejected"),
    "requests[].pending": (POSITIONS, "changes that were promised for later"),
    "requests[].still_pending": (POSITIONS, "of those, the ones that never came"),
    **objects("unsupported_options", "array of object", "options that an endpoint does not support", SOMEWHERE),
    "unsupported_options[].option": ("string", "name of the option"),
}

DATA_SERVER = {
    "by": ("string", "what says so: GETDEVICEINFO, which named its address, or file handles of layouts"),
    "metadata_server": ("string", "address of the server that said so"),
    "frame": ("integer", "frame of its reply"),
}

SHARE = {
    **common("rpcs"),
    "backward_rpcs": ("integer", "of them, those called by the server"),
    "failed": ("integer", "of them, those that failed"),
    **common("call_bytes", "reply_bytes"),
}

TALLY = {
    "packets": ("integer|absent", "packets; absent with iWARP"),
    "segments": ("integer|absent", "TCP segments; only with iWARP"),
    "bytes": ("integer", "payload bytes"),
}

NAK = {
    **common("frame", "time_ns"),
    "psn": ("integer", "packet sequence number (24 bits)"),
    "name": ("string", "what it is"),
    "timer_ns": ("integer|null", "RNR NAK: time to wait"),
}

SPREAD = "object|null"

HEALTH = {
    "address": ENDPOINT["address"],
    "qpn": ENDPOINT["qpn"],
    **SENT,
    "unique_bytes": ("integer", "payload bytes, each counted once"),
    "active_time_ns": ("integer", "time in which it sent payload; pauses of more than 100 ms do not count"),
    "goodput_bps": ("integer|null", "unique payload bits per second of active time"),
    **objects(
        "original_captured",
        "object",
        "retransmissions of packets that are in the capture, too: lost behind the capture point",
        TALLY,
    ),
    **objects(
        "original_missing",
        "object",
        "retransmissions of packets that are not in the capture: lost before the capture point",
        TALLY,
    ),
    **objects("causes", "map of object", "cause -> retransmissions", TALLY),
    "missing_unconfirmed": (
        "integer",
        "packets of missing_packets that no acknowledgement confirms: their sender may never have sent them",
    ),
    "reordered": ("integer", "packets out of order that were not retransmitted"),
    "acknowledgements": ("integer", "ACK packets it sent; of TCP pure ACKs, without that of the handshake"),
    "requests_acknowledged": ("integer", "request packets of the other end that those answered"),
    "requests_per_ack": ("number|null", "requests per acknowledgement, on average"),
    "max_per_ack": ("integer", "requests per acknowledgement, at most"),
    **objects("ack_delay", SPREAD, "from a request of the other end to its acknowledgement", DISTRIBUTION),
    **objects("read_delay", SPREAD, "from an RDMA Read request of the other end to the first response", DISTRIBUTION),
    "sequence_naks": ("integer", "NAKs for a PSN sequence error that it sent"),
    "rnr_nak_count": ("integer", "RNR NAKs that it sent"),
    **objects("rnr_naks", "array of object", "the first of them", NAK),
    **objects("fatal_naks", "array of object", "NAKs that end the connection", NAK),
    "ecn_marked": ("integer", "its packets that a switch marked: congestion experienced"),
    "cnps": ("integer", "congestion notification packets that it sent"),
    **objects("cnp_gap", SPREAD, "from one of them to the next", DISTRIBUTION),
    **objects("cnp_delay", SPREAD, "from a marked packet of the other end to the next notification", DISTRIBUTION),
    "icrc_failure_count": ("integer", "its packets whose invariant CRC is wrong"),
    "icrc_failures": ("array of integer", "frames of the first of them"),
    "reads_outstanding": ("integer", "RDMA Reads it had open at one time, at most"),
    "read_depth": ("integer|null", "RDMA Reads it may have open at one time"),
    "unanswered": ("integer", "requests without acknowledgement at the end; iWARP: RDMA Reads not answered"),
    "duplicate_acks": ("integer", "iWARP: duplicate TCP acknowledgements that it sent"),
    "selective_acks": ("integer", "iWARP: selective acknowledgements that it sent"),
    "duplicate_sacks": ("integer", "iWARP: acknowledgements that report duplicate segments (RFC 2883)"),
    "zero_windows": ("integer", "iWARP: segments that closed its receive window"),
    "congestion_echoes": ("integer", "iWARP: segments with ECN-Echo"),
    "damaged_segments": ("integer", "iWARP: its segments with a wrong TCP checksum"),
    "mpa_crc_failure_count": ("integer", "iWARP: its FPDUs with a wrong CRC32C"),
    "mpa_crc_failures": ("array of integer", "iWARP: frames of the first of them"),
    "mpa_marker_failures": ("integer", "iWARP: its FPDUs with wrong markers"),
    "mpa_rejected_fpdus": ("integer", "iWARP: its FPDUs rejected because no CRC backs them and headers are wrong"),
}

RETRANSMISSION = {
    "initiator": ("string", "active or passive: the requester"),
    "cause": (
        "string",
        "NAK sequence error, implied NAK, RNR NAK, fast retransmit, timeout, duplicate or unknown",
    ),
    "lost": ("string", "request, response, acknowledgement, segment, nothing or unknown"),
    "lost_packet_captured": ("boolean|null", "the lost packet is in the capture: it was lost behind the capture point"),
    "psn": ("integer|null", "first retransmitted PSN (24 bits); null with iWARP"),
    "sequence": ("integer|null", "first retransmitted TCP sequence number (32 bits); null without iWARP"),
    **TALLY,
    "lost_frame": (
        "integer|null",
        "the lost packet where lost_packet_captured, else the first packet that shows it missing",
    ),
    "lost_time_ns": ("integer|null", "time of that"),
    "nak_frame": ("integer|null", "the NAK; iWARP: the first duplicate acknowledgement"),
    "nak_time_ns": ("integer|null", "time of that"),
    "retransmission_frame": ("integer|null", "the first retransmitted packet"),
    "retransmission_time_ns": ("integer|null", "time of that"),
    "loss_to_nak_ns": ("integer|null", "from the loss to the NAK"),
    "nak_to_retransmission_ns": ("integer|null", "from the NAK to the retransmission"),
    "loss_to_retransmission_ns": ("integer|null", "from the loss to the retransmission"),
}

INFERRED_LOSS = {
    "sender": ("string", "active or passive"),
    "rpc": ("integer", "number of the RPC that waited"),
    "retransmission_frame": ("integer", "the retransmission, which is all of it that was captured"),
    "lost_time_ns": ("integer", "when it was lost, by the length of the sender's timer"),
    "retransmission_time_ns": ("integer", "time of the retransmission"),
    "evidence": ("string", "what shows it"),
    "confidence": ("number", "0 to 1"),
}

TYPES = {
    "connection": RecordType(
        "A connection, its endpoints, and what they agreed on.",
        "`report`, `live`",
        {
            "number": ("integer", "number of the connection, from 1"),
            **common("transport"),
            "protocol": ("string", "rpcrdma, or what else it carries"),
            "protocol_name": ("string|null", "name of another protocol"),
            "recognised_by": ("array of string", "why it is taken for that protocol"),
            "service_port": ("integer|null", "port of the service"),
            "paired_by": ("string", "how its two directions were found to belong together"),
            "confidence": ("number", "how sure that is, 0 to 1"),
            "evidence": ("array of string", "what it rests on"),
            "path_mtu": ("integer|null", "path MTU in bytes"),
            **objects(
                "data_server",
                "object|null",
                "the server is a pNFS data server; null: not known",
                DATA_SERVER,
            ),
            **objects("active", "object", "the side that connected", ENDPOINT),
            **objects("passive", "object", "the side that accepted", ENDPOINT),
            **objects("credits_requested", "object|null", "credits requested", RANGE),
            **objects("credits_granted", "object|null", "credits granted", RANGE),
            **common("first_frame", "last_frame", "first_time_ns", "last_time_ns"),
            "ended_by": ("string|null", "what ended it; null: it was open at the end of the capture"),
            **objects("negotiation", "object|null", "version and characteristics; null: no RPC-over-RDMA", NEGOTIATION),
            **SHARE,
            **common("file"),
        },
    ),
    "transport": RecordType(
        "The health of a connection: losses, retransmissions, acknowledgements.",
        "`transport`, `report`, `live`",
        {
            "number": ("integer", "number of the connection, from 1"),
            **common("transport"),
            "protocol": ("string", "rpcrdma, or what else it carries"),
            "path_mtu": ("integer|null", "path MTU in bytes"),
            "ended": ("string", "what ended it, in words"),
            "capture_point": ("object", "where the capture was taken"),
            "capture_point.place": (
                "string",
                "beside the requester, beside the responder, between or undecidable",
            ),
            "capture_point.confidence": ("number", "how sure that is, 0 to 1"),
            "capture_point.evidence": ("string", "what it rests on"),
            "capture_point.meaning": ("string", "what it does to the parts of a latency"),
            "icrc_checked": ("integer|null", "packets whose invariant CRC was checked; null: it was not"),
            "mpa_crc_checked": ("integer|null", "iWARP: FPDUs whose CRC32C was checked; null: none has one"),
            **objects("active", "object", "what the side that connected sent", HEALTH),
            **objects("passive", "object", "what the side that accepted sent", HEALTH),
            "contradictions": ("array of object", "what was retransmitted with other bytes than before"),
            "contradictions[].frame": ("integer", "number of the frame, from 1"),
            "contradictions[].sender": ("string", "active or passive"),
            "psn_errors": ("array of object", "new requests with the PSN of an earlier request of their sender"),
            "psn_errors[].frame": ("integer", "number of the frame, from 1"),
            "psn_errors[].sender": ("string", "active or passive"),
            "psn_errors[].psn": ("integer", "packet sequence number (24 bits)"),
            "psn_errors[].verb": ("string", "Send, RDMA Write, RDMA Read or Atomic"),
            "psn_errors[].earlier_frame": ("integer", "frame of the earlier request"),
            "psn_errors[].earlier_verb": ("string", "its verb"),
            "retransmission_count": ("integer", "retransmissions"),
            "retransmissions_by_cause": ("map of integer", "cause -> retransmissions"),
            **objects("loss_to_nak", SPREAD, "from losses to NAKs", DISTRIBUTION),
            **objects("nak_to_retransmission", SPREAD, "from NAKs to retransmissions", DISTRIBUTION),
            **objects("loss_to_retransmission", SPREAD, "from losses to retransmissions", DISTRIBUTION),
            **objects("retransmissions", "array of object", "the last few thousand, in order", RETRANSMISSION),
            **objects(
                "inferred_losses",
                "array of object",
                "losses at the end of a burst that only the length of a pause shows; not among the retransmissions",
                INFERRED_LOSS,
            ),
            "delayed_rpcs": ("array of object", "RPCs that waited for a retransmission; empty in report and live"),
            "delayed_rpcs[].rpc": ("integer", "number of the RPC"),
            "delayed_rpcs[].xid": ("integer", "its transaction ID"),
            "delayed_rpcs[].name": ("string", "its procedure or operations"),
            "delayed_rpcs[].delay_ns": ("integer", "time it waited"),
            "delayed_rpcs[].latency_ns": ("integer|null", "its latency"),
            "delayed_rpcs[].retransmissions": ("integer", "packets (iWARP: segments) retransmitted for it"),
            "filter": (
                "string|absent",
                "filters, which only connections of RPCs that pass are shown for; absent without filters",
            ),
            **common("file"),
        },
    ),
    "evicted": RecordType(
        "The sum of connections that ended so long ago, or were so many, that only this is kept.",
        "`report`, `live`",
        {
            "connections": ("integer", "connections"),
            "rpcrdma_connections": ("integer", "of them, those that carried RPC-over-RDMA"),
            "packets": ("integer", "packets"),
            "segments": ("integer", "iWARP: TCP segments with payload"),
            "fpdus": ("integer", "iWARP: FPDUs"),
            "bytes": ("integer", "payload bytes"),
            "retransmitted_packets": ("integer", "packets retransmitted"),
            "retransmitted_segments": ("integer", "iWARP: TCP segments retransmitted"),
            "missing_packets": ("integer", "packets that are not in the capture"),
            "missing_segments": ("integer", "iWARP: TCP segments that are not in the capture"),
            **SHARE,
            **common("file"),
        },
    ),
}
