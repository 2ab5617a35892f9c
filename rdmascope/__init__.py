"""See the RPCs inside RDMA: the library behind the ``rdmascope`` command, without click or rich.

``read`` opens captures and gives a ``Capture`` to iterate over: its RPCs, packets, connections and findings, one pass
over the files each, in memory that does not grow with their size.

    import rdmascope

    for rpc in rdmascope.read("nfs.pcap").rpcs():
        print(rpc.number, rpc.name, rpc.status, rpc.latency)

``Session`` is one such pass, for programs that want to look at the state between batches.  The names here are stable:
one goes away, or changes its meaning, only with a new major version.  Times are nanoseconds, moments since the Unix
epoch; sizes are bytes; endpoint 0 of a connection is the active side, which NFS calls the client.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rdmascope.captures import CaptureError, Follow, Limits
    from rdmascope.captures.library import Capture, read
    from rdmascope.captures.live.session import LiveSession, watch
    from rdmascope.captures.session.session import Session
    from rdmascope.captures.tables.column_table import ColumnTable
    from rdmascope.cli.page.document import write_page
    from rdmascope.dissect.audit.rule import Finding
    from rdmascope.dissect.diagnosis.facts import Diagnosis, Statement
    from rdmascope.dissect.frames import Frame, Place
    from rdmascope.dissect.measure.call_groups import (
        CallGroup,
        CallGroups,
        LatencyInterval,
        ServiceLevel,
        ServiceLevelCounts,
        ViolatedSpan,
    )
    from rdmascope.dissect.records.packet_columns import Packet
    from rdmascope.dissect.records.rpc_columns import TableColumn
    from rdmascope.dissect.records.tables import TABLES
    from rdmascope.dissect.rpcrdma.conversation import Conversation
    from rdmascope.dissect.rpcrdma.messages import Message, Segment, TransportHeader
    from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
    from rdmascope.dissect.rpcrdma.rpcs import ChunkUse, Latency, Reassembled, Rpc, SegmentUse
    from rdmascope.dissect.transport.connection import Connection, Endpoint
    from rdmascope.dissect.transport.operations import Operation

    __version__: str

_PLACES = {
    "CallGroup": "dissect.measure.call_groups",
    "CallGroups": "dissect.measure.call_groups",
    "Capture": "captures.library",
    "CaptureError": "captures",
    "ChunkUse": "dissect.rpcrdma.rpcs",
    "ColumnTable": "captures.tables.column_table",
    "Connection": "dissect.transport.connection",
    "Conversation": "dissect.rpcrdma.conversation",
    "Diagnosis": "dissect.diagnosis.facts",
    "Endpoint": "dissect.transport.connection",
    "Finding": "dissect.audit.rule",
    "Follow": "captures",
    "Frame": "dissect.frames",
    "Latency": "dissect.rpcrdma.rpcs",
    "LatencyInterval": "dissect.measure.call_groups",
    "Limits": "captures",
    "LiveSession": "captures.live.session",
    "Message": "dissect.rpcrdma.messages",
    "Operation": "dissect.transport.operations",
    "Packet": "dissect.records.packet_columns",
    "Place": "dissect.frames",
    "Reassembled": "dissect.rpcrdma.rpcs",
    "Rpc": "dissect.rpcrdma.rpcs",
    "Segment": "dissect.rpcrdma.messages",
    "SegmentUse": "dissect.rpcrdma.rpcs",
    "ServiceLevel": "dissect.measure.call_groups",
    "ServiceLevelCounts": "dissect.measure.call_groups",
    "Session": "captures.session.session",
    "Statement": "dissect.diagnosis.facts",
    "TABLES": "dissect.records.tables",
    "TableColumn": "dissect.records.rpc_columns",
    "TransportHeader": "dissect.rpcrdma.messages",
    "ViolatedSpan": "dissect.measure.call_groups",
    "read": "captures.library",
    "reassembled_call": "dissect.rpcrdma.reassembly",
    "reassembled_reply": "dissect.rpcrdma.reassembly",
    "watch": "captures.live.session",
    "write_page": "cli.page.document",
}
"""Name -> the module that has it, imported when the name is used first."""

__all__ = [
    "TABLES",
    "CallGroup",
    "CallGroups",
    "Capture",
    "CaptureError",
    "ChunkUse",
    "ColumnTable",
    "Connection",
    "Conversation",
    "Diagnosis",
    "Endpoint",
    "Finding",
    "Follow",
    "Frame",
    "Latency",
    "LatencyInterval",
    "Limits",
    "LiveSession",
    "Message",
    "Operation",
    "Packet",
    "Place",
    "Reassembled",
    "Rpc",
    "Segment",
    "SegmentUse",
    "ServiceLevel",
    "ServiceLevelCounts",
    "Session",
    "Statement",
    "TableColumn",
    "TransportHeader",
    "ViolatedSpan",
    "__version__",
    "read",
    "reassembled_call",
    "reassembled_reply",
    "watch",
    "write_page",
]


if not (Path(__file__).parent / "captures").is_dir():  # A checkout, where the rest stands beside this folder.
    __path__.append(str(Path(__file__).parents[1]))


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("rdmascope")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
