"""One RPC in full, section by section: what ``show`` prints, and what ``browse`` lets one walk through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from rdmascope.captures.session.sequence_diagram import Step
from rdmascope.dissect.onc.shapes.decode import MAX_NODES as ALL_NODES
from rdmascope.dissect.rpcrdma.message_trees import DecodedMessage, decoded_call, decoded_reply
from rdmascope.dissect.rpcrdma.rpc_fields import rpc_fields
from rdmascope.dissect.rpcrdma.rpcs import Rpc

from .rpc import chunk_map, contents, header_tree, ladder, rpc_summary
from .rpc_contents import MAX_NODES, message_tree
from .tables import heading


class Section(NamedTuple):
    """A part of the page."""

    title: str
    """'' for the first, which needs none."""
    remark: str
    body: tuple[RenderableType, ...]
    message: str = ""
    """Of which bytes it is: 'call', 'reply', "call's transport header" or "reply's transport header"."""

    @property
    def heading(self) -> Text:
        return heading(self.title, self.remark)


def decoded_messages(rpc: Rpc, full: bool) -> tuple[DecodedMessage | None, DecodedMessage | None]:
    """The call and the reply; ``full``: with every element of every list."""
    nodes = ALL_NODES if full else MAX_NODES
    return decoded_call(rpc, nodes), decoded_reply(rpc, nodes)


def summary_section(rpc: Rpc, first_time: int, place: str, path: str | None) -> Section:
    parts: list[RenderableType] = [rpc_summary(rpc, first_time, place)]
    if path is not None:
        parts.append(Text(f"path {path}"))
    linux = rpc_fields(rpc).linux
    if linux is not None:
        parts.append(Text(f"Linux client operation: {linux}"))
    return Section("", "", tuple(parts))


def packets_section(rpc: Rpc, steps: Sequence[Step], width: int, full: bool) -> Section:
    return Section("Packets", "", (ladder(steps, rpc.connection, width, full),))


def message_sections(rpc: Rpc, width: int, full: bool) -> Iterator[Section]:
    """Both transport headers, the use of every chunk, and every field of the call and the reply."""
    for message, name in ((rpc.call, "call"), (rpc.reply, "reply")):
        title = f"The {name}'s transport header"
        if message is None:
            yield Section(title, "not seen", ())
        else:
            yield Section(title, "", (header_tree(message),), title.removeprefix("The "))
    if rpc.chunks:
        remark = "bytes advertised, transferred, and returned in the reply"
        yield Section("Chunks", remark, (chunk_map(rpc.chunks, width, full),))
    for decoded, name in zip(decoded_messages(rpc, full), ("call", "reply"), strict=True):
        if decoded is None:
            yield Section(f"The {name}", "no RPC message", ())
            continue
        whole = "whole" if decoded.bytes.complete else "with bytes missing"
        origin = decoded.origin(decoded.tree.header)
        carrier = f", in {origin}" if origin else ""
        body = [message_tree(decoded, full)] + ([contents(decoded.bytes, full)] if full else [])
        yield Section(f"The {name}", f"{decoded.bytes.length:,} bytes, {whole}{carrier}", tuple(body), name)
