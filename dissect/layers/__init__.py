"""The headers, as Scapy packets named and documented after their specifications.

``from rdmascope.dissect.layers import *`` gives a Scapy user every layer and binds them; so does naming one,
as in ``from rdmascope.dissect.layers import BTH, RETH``.  Nothing is loaded before that, because the tables
beside the layers (``opcodes``) are used where starting Scapy would take longer than the work itself.

A layer's fields are declared once, in its ``fields_desc``; as in Scapy, type checkers do not know them.  Fields that
are computed when the packet is built, and those that a message may lack, can be None.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bth import (
        AETH as AETH,
        BTH as BTH,
        DETH as DETH,
        FETH as FETH,
        IETH as IETH,
        RETH as RETH,
        XRCETH as XRCETH,
        AtomicAckETH as AtomicAckETH,
        AtomicETH as AtomicETH,
        CNPPadding as CNPPadding,
        ImmDt as ImmDt,
    )
    from .cm import (
        MAD as MAD,
        CMAlternatePathResponse as CMAlternatePathResponse,
        CMDisconnectReply as CMDisconnectReply,
        CMDisconnectRequest as CMDisconnectRequest,
        CMLoadAlternatePath as CMLoadAlternatePath,
        CMMessage as CMMessage,
        CMMsgRcptAck as CMMsgRcptAck,
        CMReadyToUse as CMReadyToUse,
        CMReject as CMReject,
        CMReply as CMReply,
        CMRequest as CMRequest,
        CMServiceIDReply as CMServiceIDReply,
        CMServiceIDRequest as CMServiceIDRequest,
        IPCMRequest as IPCMRequest,
    )
    from .layer import Header as Header, Item as Item, Structure as Structure
    from .lrh import ERF as ERF, LRH as LRH, ERFExtension as ERFExtension, ERFPad as ERFPad
    from .mpa import (
        FPDU as FPDU,
        MPA as MPA,
        DDPTagged as DDPTagged,
        DDPUntagged as DDPUntagged,
        MPAEnhanced as MPAEnhanced,
        MPAReply as MPAReply,
        MPARequest as MPARequest,
        RDMAPAtomicRequest as RDMAPAtomicRequest,
        RDMAPAtomicResponse as RDMAPAtomicResponse,
        RDMAPImmediateData as RDMAPImmediateData,
        RDMAPReadRequest as RDMAPReadRequest,
        RDMAPTerminate as RDMAPTerminate,
    )
    from .oncrpc import (
        ONCRPC as ONCRPC,
        AuthSys as AuthSys,
        Credential as Credential,
        GSSCredential as GSSCredential,
        ONCRPCCall as ONCRPCCall,
        ONCRPCReply as ONCRPCReply,
        OpaqueAuth as OpaqueAuth,
        RecordMark as RecordMark,
    )
    from .private_data import ConsumerPrivateData as ConsumerPrivateData, RPCRDMAPrivateData as RPCRDMAPrivateData
    from .roce import GRH as GRH
    from .rpcrdma import (
        ROPT_INITXCH as ROPT_INITXCH,
        ROPT_REQXCH as ROPT_REQXCH,
        ROPT_RESPXCH as ROPT_RESPXCH,
        ROPT_UPDXCH as ROPT_UPDXCH,
        RPCRDMA as RPCRDMA,
        RDMA2Error as RDMA2Error,
        RDMA2Msg as RDMA2Msg,
        RDMA2Nomsg as RDMA2Nomsg,
        RDMA2Optional as RDMA2Optional,
        RDMAError as RDMAError,
        RDMAMsg as RDMAMsg,
        RDMAMsgp as RDMAMsgp,
        RDMANomsg as RDMANomsg,
        RDMASegment as RDMASegment,
        ReadSegment as ReadSegment,
        SegmentArray as SegmentArray,
        Xcharval as Xcharval,
    )


@cache
def _layers() -> dict[str, type[Any]]:
    """Every Packet class that a module of this folder declares, by name."""
    from scapy.packet import Packet

    layers: dict[str, type[Any]] = {}
    for module in iter_modules(__path__, f"{__name__}."):
        for name, value in vars(import_module(module.name)).items():
            declared = isinstance(value, type) and value.__module__ == module.name
            if declared and issubclass(value, Packet) and not name.startswith("_"):
                layers[name] = value
    return layers


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
