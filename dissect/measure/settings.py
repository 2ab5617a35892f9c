"""What the ends of RPC-over-RDMA connections agreed, summed up over a capture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..rpcrdma.conversation import ENDS, Conversation


def settings(conversations: Iterable[Conversation]) -> dict[str, tuple[str, ...]]:
    """Name of a setting -> every value that a connection has of it, in the order of first use."""
    found: dict[str, dict[str, None]] = {}
    for conversation in conversations:
        if conversation.protocol == "rpcrdma":
            for name, value in _settings(conversation):
                found.setdefault(name, {})[value] = None
    return {name: tuple(values) for name, values in found.items()}


def _settings(conversation: Conversation) -> Iterator[tuple[str, str]]:
    connection = conversation.connection
    yield "transport", connection.transport
    version = conversation.version_at().value
    yield "version of RPC-over-RDMA", str(version) if version else "unknown"
    for end, way in enumerate(("to the server", "to the client")):
        yield f"inline threshold {way}, bytes", str(conversation.known_inline_threshold(end)[0] or "unknown")
    yield "path MTU", str(connection.path_mtu or "unknown")
    for end, name in enumerate(ENDS):
        data = conversation.private_data(end)
        none = "none" if conversation.private_data_known(end) else "not seen"
        yield (
            f"private data of the {name}",
            (
                none
                if data is None
                else f"sends {data.send_size}, receives {data.receive_size}, "
                f"{'allows' if data.remote_invalidation else 'no'} remote invalidation"
            ),
        )
    for name, values in (("requested", conversation.credits_requested), ("granted", conversation.credits_granted)):
        yield f"credits {name}", "unknown" if values is None else str(values[1])
    for name, depth in (
        ("that the client serves", connection.endpoints[0].responder_resources),
        ("that the server issues", connection.endpoints[1].initiator_depth),
    ):
        yield f"outstanding RDMA Reads {name}", "unknown" if depth is None else str(depth)
