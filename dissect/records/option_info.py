"""What an RDMA2_OPTIONAL message says, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..layers.characteristics_codes import Characteristic, option_name
from ..rpcrdma.characteristics import (
    InitXch,
    OptionNoun,
    ReqXch,
    RespXch,
    UnknownOption,
    UpdXch,
    decode_option,
    selected,
)
from ..rpcrdma.messages import TransportHeader
from ..rpcrdma.negotiation import CharacteristicRequest
from ..units import plural

MAX_LISTED = 8
"""Things of one kind that are listed."""


def listed(items: Sequence[Characteristic]) -> str:
    return limited([f"{item.name} {item.words}" for item in items]) if items else "nothing"


def limited(parts: Iterable[str]) -> str:
    found = list(parts)
    more = [f"… {len(found) - MAX_LISTED} more"] if len(found) > MAX_LISTED else []
    return ", ".join(found[:MAX_LISTED] + more)


def option_words(header: TransportHeader, request: CharacteristicRequest | None = None) -> str:
    """'ROPT_INITXCH: Receive Buffer Size 8192'; ``request`` is what a ROPT_RESPXCH answers."""
    name = option_name(header.option)
    if header.option is None:
        return name
    noun = decode_option(header.option, header.optinfo, header.truncated)
    parts = "; ".join(text for text in (f"{label}{shown}" for label, shown in option_parts(noun, request)) if text)
    problem = f" [{noun.problem}]" if noun.problem else ""
    return f"{name}{f': {parts}' if parts else ''}{problem}"


def option_parts(noun: OptionNoun, request: CharacteristicRequest | None) -> Iterator[tuple[str, str]]:
    """Labels and values of an option."""
    if isinstance(noun, InitXch):
        yield "", listed(noun.start)
        if noun.nochange:
            yield "not expected to change ", limited(selected(noun.nochange, noun.start))
    elif isinstance(noun, ReqXch):
        yield "requests ", listed(noun.want)
    elif isinstance(noun, RespXch):
        for label, subset in (("done ", noun.done), ("rejected ", noun.rejected), ("pending ", noun.pending)):
            if subset:
                names = selected(subset, request.want) if request else [f"position {at}" for at in sorted(subset)]
                yield label, limited(names)
    elif isinstance(noun, UpdXch):
        if noun.now is not None:
            yield "", listed([noun.now])
        if noun.pending_clear is not None:
            yield "", "no longer pending" if noun.pending_clear else "changes stay pending"
    elif isinstance(noun, UnknownOption):
        yield "", f"{plural(len(noun.data), 'byte')} {noun.data[:16].hex()}{'…' if len(noun.data) > 16 else ''}"
