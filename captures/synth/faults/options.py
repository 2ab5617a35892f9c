"""How messages of version 2 and its options are spoiled (version-two-01; xcharext-02)."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import TYPE_CHECKING, Any

from rdmascope.dissect.layers.characteristics_codes import (
    BKREQSUP_NONE,
    EXPERIMENTAL,
    ROPT_INITXCH,
    ROPT_RESPXCH,
    ROPT_UPDXCH,
    XCHAR_BRS,
    XCHAR_RBSIZ,
    XCHAR_REQREMINV,
)
from rdmascope.dissect.layers.rpcrdma_codes import ERR_CHUNK, ERR_INVAL_OPTION, RDMA_MSG, RDMA_OPTIONAL
from rdmascope.dissect.rpcrdma.characteristics import RespXch, decode_option

from ..endpoint import service
from ..endpoint.build_header import encode_header, encode_option, xcharsubset, xcharval
from ..endpoint.nouns import Send
from ..endpoint.payload import whole
from ..endpoint.plan import PlannedSend
from .spoil import Spoil, on, settled

if TYPE_CHECKING:
    from ..endpoint.view import EndpointView

UNKNOWN_OPTION, UNKNOWN_CHARACTERISTIC = 77, 77
CALL, REPLY = 0, 1


def option(number: int) -> Callable[[Spoil], Spoil]:
    """Only messages of one option."""

    def choose(spoil: Spoil) -> Spoil:
        @on("option")
        def spoiled(endpoint: EndpointView, plan: PlannedSend) -> bool:
            return plan.header.option == number and spoil(endpoint, plan)

        return spoiled

    return choose


def characteristics(endpoint: EndpointView, *more: tuple[int, Any]) -> list[Any]:
    """The xcharspec of this end, and more."""
    return [xcharval(which, value) for which, value in (*endpoint.characteristics.own.items(), *more)]


# Sizes: whether a Send of so many bytes is too long in just one way


def beyond_4096(endpoint: EndpointView, size: int) -> bool:
    return endpoint.version == 2 and not endpoint.characteristics.known and size > endpoint.send_limit


def beyond_buffer(endpoint: EndpointView, size: int) -> bool:
    return endpoint.version == 2 and endpoint.characteristics.known and size > endpoint.send_limit


def beyond_request(endpoint: EndpointView, size: int) -> bool:
    """It fits what is in force, but not the smaller size that this end has asked for."""
    return beyond_buffer(endpoint, size) and size <= int(endpoint.characteristics.peer[XCHAR_RBSIZ])


# Version 2


@on("reply")
def says_call(endpoint: EndpointView, plan: PlannedSend) -> bool:
    if plan.header.version != 2 or plan.header.procedure != RDMA_MSG:
        return False
    plan.header.direction = CALL
    return True


@on("reply", chunks=False)
def of_version_1(endpoint: EndpointView, plan: PlannedSend) -> bool:
    if plan.header.version != 2 or not endpoint.answered:
        return False
    plan.header.version = 1
    return True


@option(ROPT_INITXCH)
def says_reply(endpoint: EndpointView, plan: PlannedSend) -> bool:
    plan.header.direction = REPLY
    return True


@on("call")
def unknown_option(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """An option that no document defines, which is allowed, behind a call."""
    if not settled(endpoint) or plan.header.version != 2:
        return False
    header = endpoint.new_header(plan.header.xid ^ 0x2000_0000, plan.header.credits or 1, RDMA_OPTIONAL, CALL)
    header.option, header.optinfo = UNKNOWN_OPTION, b"what"
    plan.after.append(Send(encode_header(header)))
    return True


@on("error")
def option_as_header(endpoint: EndpointView, plan: PlannedSend) -> bool:
    if plan.header.error != ERR_INVAL_OPTION:
        return False
    plan.header.error = ERR_CHUNK
    return True


# Options


@option(ROPT_INITXCH)
def overrun(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """xchv_data of 900 bytes, where 4 stand."""
    plan.header.optinfo = plan.header.optinfo[:8] + pack(">I", 900) + plan.header.optinfo[12:]
    return True


@option(ROPT_INITXCH)
def bool_7(endpoint: EndpointView, plan: PlannedSend) -> bool:
    values = [xcharval(XCHAR_REQREMINV, 7)]
    plan.header.optinfo = encode_option(ROPT_INITXCH, values, [])
    return True


@option(ROPT_INITXCH)
def unknown_characteristic(endpoint: EndpointView, plan: PlannedSend) -> bool:
    values = characteristics(endpoint, (UNKNOWN_CHARACTERISTIC, b"\0\0\0\1"))
    plan.header.optinfo = encode_option(ROPT_INITXCH, values, [])
    return True


@option(ROPT_INITXCH)
def experimental(endpoint: EndpointView, plan: PlannedSend) -> bool:
    values = characteristics(endpoint, (EXPERIMENTAL[0], b"\0\0\0\1"))
    plan.header.optinfo = encode_option(ROPT_INITXCH, values, [])
    return True


@option(ROPT_INITXCH)
def small_buffer(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """A Receive Buffer Size of 2048."""
    endpoint.characteristics.own[XCHAR_RBSIZ] = 2048
    plan.header.optinfo = encode_option(ROPT_INITXCH, characteristics(endpoint), [])
    return True


@option(ROPT_INITXCH)
def no_backward_support(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """BKREQSUP_NONE."""
    endpoint.characteristics.own[XCHAR_BRS] = BKREQSUP_NONE
    plan.header.optinfo = encode_option(ROPT_INITXCH, characteristics(endpoint), [])
    return True


@option(ROPT_INITXCH)
def call_behind(endpoint: EndpointView, plan: PlannedSend) -> bool:
    plan.payload = whole(service.null(plan.header.xid))
    return True


@option(ROPT_INITXCH)
def too_long(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """A subset of 300 words, all of them empty."""
    plan.header.optinfo = encode_option(ROPT_INITXCH, characteristics(endpoint), [0] * 300)
    return True


@on("call")
def once_more(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """ROPT_INITXCH behind a call."""
    if not settled(endpoint) or plan.header.version != 2:
        return False
    header = endpoint.new_header(plan.header.xid ^ 0x2000_0000, plan.header.credits or 1, RDMA_OPTIONAL, CALL)
    header.option, header.optinfo = ROPT_INITXCH, encode_option(ROPT_INITXCH, characteristics(endpoint), [])
    plan.after.append(Send(encode_header(header)))
    return True


@option(ROPT_INITXCH)
def all_fixed(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """Announces that nothing will change, and changes it on request or on demand."""
    values = characteristics(endpoint)
    plan.header.optinfo = encode_option(ROPT_INITXCH, values, xcharsubset(range(len(values))))
    return True


@option(ROPT_RESPXCH)
def other_xid(endpoint: EndpointView, plan: PlannedSend) -> bool:
    plan.header.xid ^= 0xFF
    return True


@option(ROPT_RESPXCH)
def two_sets(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """What was done is rejected, too."""
    content = decode_option(ROPT_RESPXCH, plan.header.optinfo)
    if not isinstance(content, RespXch) or not content.done:
        return False
    subsets = [xcharsubset(places) for places in (content.done, content.done | content.rejected, content.pending)]
    plan.header.optinfo = encode_option(ROPT_RESPXCH, *subsets)
    return True


@option(ROPT_UPDXCH)
def clears_nothing(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """optupdxch_pendclr in an unsolicited change."""
    plan.header.optinfo = plan.header.optinfo[:-4] + pack(">I", 1)
    return True


@option(ROPT_UPDXCH)
def shrinks(endpoint: EndpointView, plan: PlannedSend) -> bool:
    """4096; a smaller size is another fault (version-two-01, 2.3)."""
    if endpoint.settings.receive_buffer <= 4096:
        return False
    endpoint.characteristics.own[XCHAR_RBSIZ] = 4096
    plan.header.optinfo = encode_option(ROPT_UPDXCH, xcharval(XCHAR_RBSIZ, 4096), 0)
    return True
