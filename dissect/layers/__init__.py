"""The headers, as Scapy packets named and documented after their specifications.

``from rdmascope.dissect.layers import *`` gives a Scapy user every layer and binds them; so does naming one,
as in ``from rdmascope.dissect.layers import BTH, RETH``.  Nothing is loaded before that, because the tables
beside the layers (``opcodes``) are used where starting Scapy would take longer than the work itself.

Every field is annotated with what dissection gives: ``BTH(data).psn`` is an ``int`` to a type checker, too.  Fields
that are computed when the packet is built, and those that a message may lack, can be None.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bth import AETH as AETH
    from .bth import BTH as BTH
    from .bth import DETH as DETH
    from .bth import FETH as FETH
    from .bth import IETH as IETH
    from .bth import RETH as RETH
    from .bth import XRCETH as XRCETH
    from .bth import AtomicAckETH as AtomicAckETH
    from .bth import AtomicETH as AtomicETH
    from .bth import CNPPadding as CNPPadding
    from .bth import ImmDt as ImmDt
    from .chunks import RDMASegment as RDMASegment
    from .chunks import ReadSegment as ReadSegment
    from .chunks import SegmentArray as SegmentArray
    from .cm import CMAlternatePathResponse as CMAlternatePathResponse
    from .cm import CMDisconnectReply as CMDisconnectReply
    from .cm import CMDisconnectRequest as CMDisconnectRequest
    from .cm import CMLoadAlternatePath as CMLoadAlternatePath
    from .cm import CMMessage as CMMessage
    from .cm import CMMsgRcptAck as CMMsgRcptAck
    from .cm import CMReadyToUse as CMReadyToUse
    from .cm import CMReject as CMReject
    from .cm import CMReply as CMReply
    from .cm import CMRequest as CMRequest
    from .cm import CMServiceIDReply as CMServiceIDReply
    from .cm import CMServiceIDRequest as CMServiceIDRequest
    from .cm import IPCMRequest as IPCMRequest
    from .ddp import DDPTagged as DDPTagged
    from .ddp import DDPUntagged as DDPUntagged
    from .ddp import RDMAPAtomicRequest as RDMAPAtomicRequest
    from .ddp import RDMAPAtomicResponse as RDMAPAtomicResponse
    from .ddp import RDMAPImmediateData as RDMAPImmediateData
    from .ddp import RDMAPReadRequest as RDMAPReadRequest
    from .ddp import RDMAPTerminate as RDMAPTerminate
    from .layer import Header as Header
    from .lrh import ERF as ERF
    from .lrh import LRH as LRH
    from .lrh import ERFExtension as ERFExtension
    from .lrh import ERFPad as ERFPad
    from .mad import MAD as MAD
    from .mpa import FPDU as FPDU
    from .mpa import MPA as MPA
    from .mpa import MPAEnhanced as MPAEnhanced
    from .mpa import MPAReply as MPAReply
    from .mpa import MPARequest as MPARequest
    from .oncrpc import ONCRPC as ONCRPC
    from .oncrpc import AuthSys as AuthSys
    from .oncrpc import Credential as Credential
    from .oncrpc import GSSCredential as GSSCredential
    from .oncrpc import ONCRPCCall as ONCRPCCall
    from .oncrpc import ONCRPCReply as ONCRPCReply
    from .oncrpc import OpaqueAuth as OpaqueAuth
    from .oncrpc import RecordMark as RecordMark
    from .private_data import ConsumerPrivateData as ConsumerPrivateData
    from .private_data import RPCRDMAPrivateData as RPCRDMAPrivateData
    from .roce import GRH as GRH
    from .rpcrdma import RPCRDMA as RPCRDMA
    from .rpcrdma import RDMAError as RDMAError
    from .rpcrdma import RDMAMsg as RDMAMsg
    from .rpcrdma import RDMAMsgp as RDMAMsgp
    from .rpcrdma import RDMANomsg as RDMANomsg
    from .rpcrdma2 import ROPT_INITXCH as ROPT_INITXCH
    from .rpcrdma2 import ROPT_REQXCH as ROPT_REQXCH
    from .rpcrdma2 import ROPT_RESPXCH as ROPT_RESPXCH
    from .rpcrdma2 import ROPT_UPDXCH as ROPT_UPDXCH
    from .rpcrdma2 import RDMA2Error as RDMA2Error
    from .rpcrdma2 import RDMA2Msg as RDMA2Msg
    from .rpcrdma2 import RDMA2Nomsg as RDMA2Nomsg
    from .rpcrdma2 import RDMA2Optional as RDMA2Optional
    from .rpcrdma2 import Xcharval as Xcharval
    from .xdr import Item as Item
    from .xdr import Structure as Structure


@cache
def _layers() -> dict[str, type[Any]]:
    """Every Packet class that a module of this folder declares, by name."""
    from scapy.packet import Packet

    found: dict[str, type[Any]] = {}
    for module in iter_modules(__path__, f"{__name__}."):
        for name, value in vars(import_module(module.name)).items():
            declared = isinstance(value, type) and value.__module__ == module.name
            if declared and issubclass(value, Packet) and not name.startswith("_"):
                found[name] = value
    return found


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(_layers())
    if name.startswith("__") or any(module.name == name for module in iter_modules(__path__)):
        raise AttributeError(name)
    try:
        return _layers()[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_layers()})
