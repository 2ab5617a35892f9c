"""What the two ends of a connection agreed, in words: version, thresholds, transport characteristics, options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text
from rich.tree import Tree

from rdmascope.dissect.layers.characteristics_codes import (
    CHARACTERISTICS,
    characteristic_name,
    option_name,
    value_words,
)
from rdmascope.dissect.layers.rpcrdma_codes import DIRECTION_NAMES
from rdmascope.dissect.records.packet_info import MAX_LISTED, limited, listed, option_parts
from rdmascope.dissect.rpcrdma.characteristics import InitXch, ReqXch, decode_option, selected
from rdmascope.dissect.rpcrdma.conversation import ENDS, Conversation
from rdmascope.dissect.rpcrdma.messages import TransportHeader
from rdmascope.dissect.rpcrdma.negotiation import CharacteristicRequest, VersionUse
from rdmascope.dissect.rpcrdma.version_loops import loops
from rdmascope.dissect.units import plural, size

MAX_ITEMS = 64
"""Characteristics of one message that are listed."""


def speaks_version_2(conversation: Conversation) -> bool:
    """Some message of it was not version 1."""
    negotiation = conversation.negotiation
    uses = [negotiation.requested, *negotiation.answers]
    return any(use is not None and use.version != 1 for use in uses) or bool(
        negotiation.refusals or negotiation.announcements or negotiation.requests
    )


def story(conversation: Conversation, conversations: Sequence[Conversation] = ()) -> Iterator[str]:
    """What was agreed, line by line; nothing where all of it was version 1.  ``conversations``: all of the capture."""
    if not speaks_version_2(conversation):
        return
    yield version_story(conversation)
    for loop in loops(conversations):
        if conversation in loop.conversations[1:]:
            first = loop.conversations[0].connection.number
            yield f"requested version {loop.version} although the server had refused it on connection {first}"
    for sender, way in ((0, "to the server"), (1, "back")):
        yield f"inline threshold {way}: {limited(_thresholds(conversation, sender))}"
    version = conversation.version_at().value
    if version != 1 and (version != 0 or conversation.negotiation.announcements):
        for endpoint in (0, 1):
            yield from _characteristics(conversation, endpoint)
    yield from _requests(conversation)
    refused = [
        f"{ENDS[refusal.endpoint]} {option_name(refusal.option)} (frame {refusal.frame})"
        for refusal in conversation.negotiation.option_refusals
    ]
    if refused:
        yield f"not supported by {limited(refused)}"


def version_story(conversation: Conversation) -> str:
    """'requested version 2 in frame 4, refused by RDMA2_ERR_VERS 1..1 in frame 6, continued with version 1 in …'."""
    negotiation = conversation.negotiation
    asked, went_on = negotiation.requested, negotiation.continued
    parts: list[str] = []
    if not conversation.connection.start_known:
        parts.append("what was agreed before the capture began is unknown")
    if asked is not None:
        first = "requested" if conversation.connection.start_known else "first seen: the client's"
        parts.append(f"{first} version {asked.version} in frame {asked.frame}")
    refusals = [
        f"{'' if refusal.endpoint else 'the server '}refused by {refusal.name} {refusal.range} in frame {refusal.frame}"
        for refusal in negotiation.refusals
    ]
    if refusals:
        parts.append(limited(refusals))
        parts.append(
            f"continued with version {went_on.version} in frame {went_on.frame}" if went_on else "sent nothing more"
        )
    answered = negotiation.answers
    if asked is not None and not answered and not refusals:
        parts.append("no answer seen")
    if answered and not (went_on and answered[0].version == went_on.version):
        parts.append(f"answered {_version_use(answered[0])}")
    if len(answered) > 1:
        parts.append(f"later {limited([_version_use(version_use) for version_use in answered[1:]])}")
    return ", ".join(parts)


def _version_use(use: VersionUse) -> str:
    return f"in version {use.version} in frame {use.frame}"


def _thresholds(conversation: Conversation, sender: int) -> Iterator[str]:
    for at, setting in enumerate(conversation.thresholds(sender)):
        bytes_ = "unknown" if setting.value is None else size(setting.value)
        since = f" from frame {setting.frame} on" if at else ""
        yield f"{bytes_}{since} ({setting.source.removesuffix(f' in frame {setting.frame}') if at else setting.source})"


def _characteristics(conversation: Conversation, endpoint: int) -> Iterator[str]:
    by_source: dict[str, list[str]] = {}
    for which, kind in CHARACTERISTICS.items():
        known = conversation.in_force(which, endpoint)
        shown = "unknown" if known.value is None else value_words(which, known.value)
        by_source.setdefault(known.source, []).append(f"{kind.name} {shown}")
    others = {
        announcement.characteristic.which: announcement
        for announcement in conversation.negotiation.announcements
        if announcement.endpoint == endpoint and announcement.characteristic.which not in CHARACTERISTICS
    }
    for other in list(others.values())[:MAX_LISTED]:
        by_source.setdefault(other.source, []).append(f"{other.characteristic.name} {other.characteristic.words}")
    known_by = [f"{limited(items)} ({source})" for source, items in by_source.items()]
    if len(others) > MAX_LISTED:
        known_by.append(f"… and {plural(len(others) - MAX_LISTED, 'unknown characteristic')} more")
    yield f"{ENDS[endpoint]}: {'; '.join(known_by)}"
    if endpoint in conversation.negotiation.nochange:
        frame, fixed = conversation.negotiation.nochange[endpoint]
        if fixed:
            names = limited([characteristic_name(which) for which in sorted(fixed)])
            yield f"{ENDS[endpoint]} expects no change of {names} (frame {frame})"


def _requests(conversation: Conversation) -> Iterator[str]:
    requests = conversation.negotiation.requests
    for request in requests[:MAX_LISTED]:
        yield f"{ENDS[request.requester]} requested {listed(request.want)} in frame {request.frame}: {outcome(request)}"
    if len(requests) > MAX_LISTED:
        yield f"… and {plural(len(requests) - MAX_LISTED, 'request')} more"


def outcome(request: CharacteristicRequest) -> str:
    """What became of the wishes."""
    if request.refused_frame:
        return f"refused by an error in frame {request.refused_frame}"
    if not request.answer_frame:
        return "not answered"
    parts = [
        f"{word} {limited(selected(subset, request.want))}"
        for word, subset in (("done", request.done), ("rejected", request.rejected))
        if subset
    ]
    for position in sorted(request.pending)[:MAX_LISTED]:
        (name,) = selected({position}, request.want)
        frame = request.cleared.get(position)
        parts.append(f"{name} pending until frame {frame}" if frame else f"{name} still pending")
    return f"{', '.join(parts) or 'no outcome given'} (frame {request.answer_frame})"


# One RDMA2_OPTIONAL


def add_option(tree: Tree, header: TransportHeader) -> None:
    """The fields of an RDMA2_OPTIONAL."""
    if header.option is None:
        return
    noun = decode_option(header.option, header.optinfo, header.truncated)
    branch = tree.add(Text(f"rdma_opttype {header.option} ({option_name(header.option)})"))
    items = noun.start if isinstance(noun, InitXch) else noun.want if isinstance(noun, ReqXch) else ()
    for item in items[:MAX_ITEMS]:
        doubt = f"  {item.problem}" if item.problem else ""
        branch.add(Text.assemble(f"{item.name} {item.words}", (doubt, "red")))
    if len(items) > MAX_ITEMS:
        branch.add(Text(f"… {len(items) - MAX_ITEMS} more", "dim"))
    for label, shown in list(option_parts(noun, None))[1 if items else 0 :]:
        branch.add(Text(f"{label}{shown}"))
    if noun.problem:
        branch.add(Text(f"not fully decoded: {noun.problem}", "red"))


def direction_words(header: TransportHeader) -> str:
    return "" if header.direction is None else f"{header.direction} ({DIRECTION_NAMES[header.direction]})"
