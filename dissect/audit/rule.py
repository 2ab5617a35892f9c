"""Rule: one requirement of a specification, and the function that judges it; Finding: a violation of it.  Also which
rules names, levels and roles select, and how a page describes a rule."""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar

from ..named_tuple import NamedTuple
from ..plugged import escaped, guarded, import_all, origin
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.memory import REORDERED
from ..rpcrdma.messages import Message
from ..rpcrdma.rpcs import Rpc
from ..serial import PSN
from ..transport.connection import Connection, Gap, gaps_forgotten
from ..transport.operations import Operation

FIRST = 1 << 0
"""Sent: version 1, or an unknown one."""
SECOND = 1 << 1
"""Sent: version 2.  Transaction: call or reply is."""
CALL = 1 << 2
"""Sent: a call."""
REPLY = 1 << 3
"""Sent: a reply.  Transaction: it has one."""
ERROR = 1 << 4
"""Sent: RDMA_ERROR."""
NOMSG = 1 << 5
"""Sent: RDMA_NOMSG.  Transaction: its reply is."""
READS = 1 << 6
"""A Read list."""
CHUNKS = 1 << 7
"""Transaction: the call has chunks."""
RETURNS = 1 << 8
"""Transaction: the reply returns Write chunks or the Reply chunk, or should."""
CHUNK_LISTS = NOMSG | READS | CHUNKS | RETURNS
"""Everything that shows chunks."""
GSS = 1 << 9
"""Transaction: an RPCSEC_GSS credential."""
INVALIDATE = 1 << 10
"""Sent: Send With Invalidate."""


PASS, VIOLATION, UNDECIDABLE = "pass", "violation", "undecidable"

NOT_APPLICABLE = "not applicable"
"""Verdict of a rule that had nothing to judge."""


class Judgement(NamedTuple):
    """The judgement of a rule on one noun."""

    verdict: str
    observed: str = ""
    """In words and values."""
    required: str = ""
    reason: str = ""
    """Why it is undecidable."""
    frames: tuple[int, ...] = ()
    """Used instead of the noun's own frames if others show it better."""
    by: str = ""
    """'requester' or 'responder': the end it is about, if the rule judges both."""
    note: bool = False
    """It is worth reporting, but no fault: the severity is 'note' whatever the level."""
    stated: bool = False
    """It is about a part of a MUST rule that the document states without a requirement word: severity 'notice'."""


PASSED = Judgement(PASS)

_FRAME, _LAST_FRAME = attrgetter("frame"), attrgetter("last_frame")

LATER = 1 << 62
"""After all frames."""


def violation(
    observed: str, required: str, *frames: int, by: str = "", note: bool = False, stated: bool = False
) -> Judgement:
    return Judgement(VIOLATION, observed, required, frames=frames, by=by, note=note, stated=stated)


def undecidable(reason: str, by: str = "") -> Judgement:
    return Judgement(UNDECIDABLE, reason=reason, by=by)


def left_open(judged: Judgement | None, reason: str, by: str) -> Judgement:
    """The judgement of a transaction of which the message of the end ``by`` cannot be read: left open for that end, or
    for both ends if ``judged``, what the other message gave, is open, too."""
    return undecidable(reason, by) if judged in (None, PASSED) else judged._replace(by="")


def undecidable_if(reason: str) -> Judgement | None:
    """Undecidable if there is a reason; '' is none."""
    return undecidable(reason) if reason else None


class Subject:
    """The base of all nouns."""

    conversation: Conversation
    rpc: Rpc | None = None
    messages: tuple[Sequence[int], Sequence[int]] = ((), ())
    """By end: frames of its messages, in order, as far as they are kept when it is judged."""

    @property
    def connection(self) -> Connection:
        return self.conversation.connection

    @property
    def out_of_step(self) -> str:
        """Why it may have been sent later than what the capture shows after it; '' if it was not."""
        disordered = self.connection.disordered
        if not disordered or max(self.frames, default=0) < disordered - REORDERED:
            return ""
        return f"the capture is out of step: frame {disordered:,} answers what it shows later"

    @property
    def moment(self) -> int:
        """The last frame up to which messages matter for it."""
        return max(self.frames, default=0)

    def _next(self, sender: int, frame: int) -> int:
        """The frame of the next message from ``sender`` after ``frame``; ``LATER`` for none."""
        messages = self.messages[sender]
        behind = bisect_right(messages, frame)
        return messages[behind] if behind < len(messages) else LATER

    def unseen(self, sender: int, since: int = 0, until: int = 0) -> str:
        """Why ``sender`` may have sent something after frame ``since`` and up to ``until``, by default its own frames,
        that the capture lacks or shows later; '' if everything missing was sent at other times.

        Only a later packet shows a gap, and what is missing after the next message was sent after that.
        """
        until = until or self.moment
        return gaps_within(self.connection, sender, since, self._next(sender, until)) or self.out_of_step

    def missed(self, sender: int) -> str:
        """``unseen`` up to its own frames, also if nothing shows that anything is missing.

        An answer to a missing message of the other end would not count, so the other end's gaps matter, too.
        """
        if reason := self.unseen(sender) or self.unseen(1 - sender):
            return reason
        last = self._next(sender, self.moment) == LATER
        return "no later message shows whether one is missing from the capture" if last else ""

    def endpoint(self, role: str) -> int:
        """The end of the connection that a rule for ``role`` judges here."""
        raise NotImplementedError

    @property
    def role(self) -> str:
        """The role of that end: 'requester', 'responder', or 'either' if unknown."""
        raise NotImplementedError

    @property
    def frames(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def time(self) -> int:
        raise NotImplementedError

    @property
    def rpc_number(self) -> int | None:
        return self.rpc.number if self.rpc is not None else None

    @property
    def xid(self) -> int | None:
        return self.rpc.xid if self.rpc is not None else None

    @property
    def backward(self) -> bool:
        return False

    @property
    def shape(self) -> int:
        """Its traits, bits such as FIRST."""
        return 0

    @property
    def start_known(self) -> bool:
        """Whether the connection's beginning is in the capture."""
        return self.connection.start_known


class OfMessage(Subject):
    """A noun about one message that was sent."""

    message: Message
    sender: int

    @property
    def frames(self) -> tuple[int, ...]:
        return (self.message.frame,)

    @property
    def time(self) -> int:
        return self.message.time

    @property
    def xid(self) -> int | None:
        return self.message.header.xid


def gaps(connection: Connection, *senders: int) -> str:
    """Why not everything that these ends sent is known; '' if it is."""
    missing = sum(connection.missing_packets[sender] for sender in senders or (0, 1))
    if missing:
        what = "are not in the capture, or arrived damaged" if connection.damaged else "are not in the capture"
        return f"{missing:,} packets of the connection {what}"
    return unplaced_gaps(connection, *senders)


def unplaced_gaps(connection: Connection, *senders: int) -> str:
    """Why, apart from missing packets, not everything that these ends sent is known at any time; '' if it is."""
    if connection.late_packets:
        return f"{connection.late_packets:,} packets of the connection come long after what they precede"
    unread = sum(
        connection.unread_packets[end] + max(connection.unread_messages[end], connection.undirected_messages[end])
        for end in senders or (0, 1)
    )
    if unread:
        return f"{unread:,} packets of the connection cannot be read: their headers are truncated, or a check failed"
    if connection.one_sided:
        return "only one direction was captured"
    return ""


def gaps_seen(connection: Connection, sender: int, first: int, last: int) -> Sequence[Gap]:
    """The gaps in an end's packets that frames after ``first`` show, up to ``last``."""
    gaps = connection.gaps[sender]
    begin = bisect_right(gaps, first, key=_LAST_FRAME)
    if begin == len(gaps) or gaps[begin].frame > last:
        return ()
    return gaps[begin : bisect_right(gaps, last, key=_FRAME)]


def gaps_between(connection: Connection, sender: int, first: int, last: int) -> str:
    """Why not everything that an end sent between two frames is known; '' if it is.

    This concerns only those places, while any missing packet may excuse a violation.
    """
    return "packets before it are not in the capture" if gaps_seen(connection, sender, first, last) else ""


def gaps_within(connection: Connection, sender: int, first: int, last: int) -> str:
    """As ``gaps``, but missing packets only count between two frames."""
    if gaps_forgotten(connection, sender):
        return gaps(connection, sender)
    return gaps_between(connection, sender, first, last) or unplaced_gaps(connection, sender)


def precedes(connection: Connection, first: Operation, second: Operation) -> bool:
    """Whether one end certainly issued ``first`` before ``second``.

    By PSNs, or by positions in the TCP stream, whatever the order of the capture.
    """
    if connection.of_tcp:
        return first.position < second.position
    return PSN.distance(first.psn, second.psn) < PSN.half


def beheaded(connection: Connection, sender: int) -> str:
    """Why the first packets of this end may be missing unnoticed; '' if it is known which they must be."""
    known = connection.of_tcp or connection.endpoints[1 - sender].start_psn is not None
    return "" if known and connection.start_known else "the capture may begin behind the first packets of the other end"


class Level(StrEnum):
    """How strongly a document words a requirement (RFC 2119)."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    STATED = "STATED"
    """Behaviour the document states without a requirement word."""


LEVELS = tuple(Level)
"""The strongest first."""

ROLES = ("requester", "responder", "either")

DOCUMENTS = {
    "V1": "draft-ietf-nfsv4-rfc5666bis-04",
    "PD": "draft-ietf-nfsv4-rpcrdma-cm-pvt-data-08",
    "V2": "draft-cel-nfsv4-rpcrdma-version-two-01",
    "XC": "draft-dnoveck-nfsv4-rpcrdma-xcharext-02",
}
"""The drafts by the first part of a rule's id."""

UNCHECKED = ("RFC 8166", "RFC 8167")
"""RFCs whose section numbers were inferred from the drafts'; those of RFC 8797 were looked up."""

SHORT = {"V1": "rfc5666bis-04", "PD": "cm-pvt-data-08", "V2": "version-two-01", "XC": "xcharext-02"}
"""Short names of the drafts."""

Judge = Callable[[Any], Judgement | None]
Function = TypeVar("Function", bound=Judge)


@dataclass(frozen=True, slots=True)
class Rule:
    """A requirement.  ``judge`` looks at one noun and returns a Judgement, or None if there is nothing to judge."""

    id: str
    title: str
    level: Level
    section: str
    """Section of the draft."""
    final: str
    """Document and section of the final RFC; '' if the draft did not become one."""
    role: str
    """The end that is judged: 'requester', 'responder' or 'either'."""
    subject: type[Subject]
    """The noun that ``judge`` takes."""
    judge: Judge
    needs: int
    """Traits that the noun must have, as bits; ``judge`` would say nothing of others."""
    backward: bool | None
    """Judges only backward (True) or only forward (False) messages; None: both."""
    unjudgeable: str
    """Why no capture can show it; '' if one can."""
    plugin: str = ""
    """The plug-in that it comes from; '': rdmascope."""

    def __reduce__(self) -> tuple[Callable[[str], Rule], tuple[str]]:
        return _registered, (self.id,)

    @property
    def document(self) -> str:
        return DOCUMENTS.get(self.id.partition("-")[0], self.final)

    @property
    def cited(self) -> str:
        """Where the requirement is stated: in the draft, and in the RFC if there is one."""
        draft = SHORT.get(self.id.partition("-")[0], "")
        if not draft:
            return f"{self.final}, {self.section}" if self.section else self.final
        final, _, section = self.final.partition(", ")
        if section.replace(" and ", ", ") == self.section:
            return f"{draft} and {self.final}"
        return f"{draft}, {self.section}; {self.final}" if final else f"{draft}, {self.section}"

    @property
    def sources(self) -> str:
        """All places where it is stated."""
        if self.document == self.final:
            return self.cited
        source = f"{self.document}, section {self.section}"
        if not self.final:
            return source
        unchecked = self.final.startswith(UNCHECKED)
        return f"{source}; {self.final}" + (" (section number not checked against the RFC's text)" if unchecked else "")

    def applies(self, backward: bool, shape: int) -> bool:
        """Whether it is about messages of this direction.  In version 2 backward calls may have chunks, too."""
        if backward and self.backward is False:
            return bool(self.needs & CHUNK_LISTS and shape & SECOND)
        return self.backward in (None, backward)

    def judges(self, end: int) -> bool:
        """Whether it is about this end of a connection, 0 for the client."""
        if self.unjudgeable or self.role == "either" or self.backward is None:
            return not self.unjudgeable
        return end == ((self.role == "requester") == self.backward)

    @property
    def paragraphs(self) -> dict[str, str]:
        """The docstring: 'What', 'Why', 'Right' and 'Wrong', each one line of text."""
        paragraphs: dict[str, str] = {}
        for part in (inspect.getdoc(self.judge) or "").split("\n\n"):
            text = " ".join(part.split())
            head, colon, rest = text.partition(": ")
            key = head if colon and head in ("Why", "Right", "Wrong") else "What"
            paragraphs[key] = f"{paragraphs[key]} {text}" if key in paragraphs else rest if key != "What" else text
        return paragraphs


_RULES: dict[str, Rule] = {}


def _registered(id: str) -> Rule:
    """The rule with this id; pickling sends only the id, as another process has its own ``judge``."""
    return _RULES.get(id) or all_rules()[id]


def rule(
    id: str,
    title: str,
    level: Level,
    section: str,
    final: str,
    subject: type[Subject],
    role: str = "either",
    *,
    needs: int = 0,
    backward: bool | None = None,
    unjudgeable: str = "",
    when: Judge | None = None,
) -> Callable[[Function], Function]:
    """Register the decorated function as judge of a rule; it only judges nouns for which ``when`` returns PASSED."""

    def register(judge: Function) -> Function:
        if id in _RULES and inspect.unwrap(_RULES[id].judge).__code__ != judge.__code__:
            raise ValueError(f"there is a rule {id} already")
        if role not in ROLES:
            raise ValueError(f"rule {id}: no role {role!r}; there are {', '.join(ROLES)}")
        given = (
            id,
            title,
            level,
            section,
            final,
            role,
            subject,
            guarded(_judging(judge, when)),
            needs,
            backward,
            unjudgeable,
        )
        _RULES[id] = Rule(*given, plugin=origin())
        return judge

    return register


def _judging(judge: Judge, when: Judge | None) -> Judge:
    """A judge that returns what ``when`` says unless that is PASSED."""
    if when is None:
        return judge

    @wraps(judge)
    def judged(noun: Any) -> Judgement | None:
        state = when(noun)
        return judge(noun) if state is PASSED else state

    return judged


def all_rules() -> dict[str, Rule]:
    """Every rule of the package by id, in the order of ids."""
    import_all(__name__.rpartition(".")[0] + ".rules")
    return dict(sorted(_RULES.items()))


@dataclass(frozen=True, slots=True)
class Finding:
    """A judgement with its endpoint, frames and time."""

    rule: Rule
    verdict: str
    connection: Connection
    endpoint: int
    """0 the active side, 1 the passive one."""
    role: str
    """The endpoint's role in this: 'requester', 'responder' or 'either'."""
    frames: tuple[int, ...]
    time: int
    """Nanoseconds; 0 if no packet carried it."""
    rpc: int | None
    """Number of the Rpc."""
    xid: int | None
    observed: str
    required: str
    reason: str
    severity: str
    """'error' (MUST), 'warning' (SHOULD), 'notice' (stated behaviour) or 'note'."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """Findings that are known and accepted."""

    rule: str
    reason: str
    role: str | None = None
    """'requester' or 'responder'."""
    address: str | None = None
    """Address of the endpoint that is judged."""
    connection: int | None = None

    def covers(self, finding: Finding) -> bool:
        return (
            finding.rule.id == self.rule
            and self.role in (None, finding.role)
            and self.address in (None, finding.connection.endpoints[finding.endpoint].address)
            and self.connection in (None, finding.connection.number)
        )


def not_waived(waivers: Sequence[Waiver]) -> Callable[[Finding], bool] | None:
    """A function that tells whether a finding counts; None if all do."""
    if not waivers:
        return None
    return lambda finding: not any(waiver.covers(finding) for waiver in waivers)


class UnknownRule(ValueError):
    """A name that no rule has."""


def matching_rules(*names: str) -> frozenset[str]:
    """Ids of the rules with these names; a name may end with a star.  Raises UnknownRule."""
    matching: set[str] = set()
    for name in names:
        beginning = name.removesuffix("*").upper()
        some = {id for id in all_rules() if id == beginning or (name.endswith("*") and id.startswith(beginning))}
        if not some:
            raise UnknownRule(f"no rule {name!r}; 'rdmascope rules' lists them")
        matching |= some
    return frozenset(matching)


def select_rules(
    names: Iterable[str] = (), ignore: Iterable[str] = (), level: str | None = None, role: str | None = None
) -> list[Rule]:
    """The rules with these names (by default all), except ignored ones, of ``level`` or above, about ``role``.

    Raises UnknownRule for a name that no rule has.
    """
    every = all_rules()
    wanted = tuple(names)
    chosen = (matching_rules(*wanted) if wanted else frozenset(every)) - matching_rules(*ignore)
    kept = [rule for id, rule in every.items() if id in chosen]
    if level:
        lowest = LEVELS.index(Level(level.upper()))
        kept = [rule for rule in kept if LEVELS.index(rule.level) <= lowest]
    return [rule for rule in kept if role is None or rule.role in (role, "either")]


SECTIONS = {
    "V1": "RPC-over-RDMA version 1",
    "PD": "Private data",
    "V2": "RPC-over-RDMA version 2",
    "XC": "Transport characteristics of version 2",
}

_HEAD = """# Rules of the audit

`rdmascope audit FILE` judges both endpoints of every RPC-over-RDMA connection by these rules. This page is written by
`rdmascope rules --markdown`.

A judgement is *pass*, *violation*, *not applicable* (there was nothing to judge) or *undecidable* (packets are not in
the capture, frames are truncated, the connection began before the capture, or the upper-layer binding is not known).
Levels: **MUST** and **SHOULD** are the document's own words, **STATED** is behaviour that it describes without them.
"""


def facts(rule: Rule) -> list[tuple[str, str]]:
    """What there is to know of a rule, as (name, text), in the order of a page."""
    parts = rule.paragraphs
    facts = [
        ("Level", rule.level.value),
        ("Judges", {"either": "either end", "requester": "the requester", "responder": "the responder"}[rule.role]),
        ("Document", rule.sources),
    ]
    if rule.unjudgeable:
        facts.append(("Not judged", rule.unjudgeable))
    facts += [(name, parts[name]) for name in ("What", "Why", "Right", "Wrong") if name in parts]
    return facts


def markdown(rules: Iterable[Rule]) -> str:
    """The whole of ``docs/rules.md``."""
    rules = list(rules)
    parts = [_HEAD]
    for prefix, title in SECTIONS.items():
        chosen = [rule for rule in rules if rule.id.startswith(f"{prefix}-")]
        parts.append(f"\n## {title}\n\n| rule | level | judges | requirement |\n| --- | --- | --- | --- |\n")
        parts += [
            f"| [{rule.id}](#{rule.id.lower()}) | {rule.level} | {rule.role} | {escaped(rule.title)} |\n"
            for rule in chosen
        ]
        for rule in chosen:
            parts.append(f"\n### {rule.id}\n\n{escaped(rule.title)}.\n\n")
            parts += [f"- **{name}**: {escaped(text)}\n" for name, text in facts(rule)]
    return "".join(parts)
