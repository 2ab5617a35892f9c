"""Clients that reconnect and ask again for a version that the server refused (version-two-01, 5.2)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ..named_tuple import NamedTuple
from .conversation import Conversation

MAX_REFUSALS = 4096
"""Pairs of addresses with a refusal that are kept."""

Key = tuple[str, str, int | None, int]
"""Client, server, port, and requested version."""


class Loop(NamedTuple):
    """A client that keeps asking for a version that the server refused."""

    version: int
    conversations: tuple[Conversation, ...]
    """In order; on the first one it was refused first."""


class VersionRefusals:
    """The latest refused connections, by addresses and requested version."""

    def __init__(self) -> None:
        self.latest: OrderedDict[Key, Conversation] = OrderedDict()

    def add(self, conversation: Conversation) -> None:
        """Note that the server refused the version that the client requested."""
        key, refusal = _key(conversation), conversation.negotiation.refused
        if key is None or refusal is None or refusal.allows(key[3]):
            return
        self.latest[key] = conversation
        self.latest.move_to_end(key)
        if len(self.latest) > MAX_REFUSALS:
            self.latest.popitem(last=False)

    def before(self, conversation: Conversation) -> Conversation | None:
        """An earlier connection on which the same version was refused and nothing else agreed; None for none."""
        key = _key(conversation)
        earlier = None if key is None else self.latest.get(key)
        if earlier is None or earlier.negotiation.continued is not None:
            return None
        if earlier.connection.number >= conversation.connection.number:
            return None
        return earlier


def _key(conversation: Conversation) -> Key | None:
    requested, connection = conversation.negotiation.requested, conversation.connection
    if requested is None:
        return None
    client, server = connection.endpoints
    return client.address, server.address, connection.service_port, requested.version


def loops(conversations: Iterable[Conversation]) -> list[Loop]:
    """The loops on connections between the same addresses, in the order in which they began."""
    refusals = VersionRefusals()
    chains: dict[Key, list[Conversation]] = {}
    for conversation in conversations:
        key, earlier = _key(conversation), refusals.before(conversation)
        if key is None:
            continue
        if key in chains:
            chains[key].append(conversation)
        elif earlier is not None:
            chains[key] = [earlier, conversation]
        else:
            refusals.add(conversation)
    return [Loop(key[3], tuple(chain)) for key, chain in chains.items()]
