"""The auditor: shows the nouns of every connection to the rules, and counts their judgements.

Memory is bounded by what an AuditListener remembers of a connection, and by the examples that are kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from types import MappingProxyType

from ..named_tuple import NamedTuple
from ..rpcrdma.conversation import Conversation
from ..rpcrdma.matching import BY_XID_ALONE
from ..rpcrdma.rpcs import Rpc
from ..rpcrdma.version_loops import VersionRefusals
from ..transport.connection import Connection
from ..units import with_port
from .events import REFUSED_BY, VERSION_END, ConnectionSetup, RdmaOperation, RefusableMessage, SentMessage
from .listener import AuditListener
from .rule import (
    FIRST,
    PASS,
    PASSED,
    SECOND,
    UNDECIDABLE,
    VIOLATION,
    Finding,
    Judgement,
    Level,
    Rule,
    Subject,
    all_rules,
    undecidable,
)
from .transaction import Transaction

SEVERITIES = {Level.MUST: "error", Level.SHOULD: "warning", Level.STATED: "notice"}

RANKS = ("error", "warning", "notice", "note")


MAX_REASONS = 100
NO_REASONS: Mapping[str, int] = MappingProxyType({})


@dataclass(slots=True)
class RuleTally:
    """The judgements of one rule on one endpoint."""

    passed: int = 0
    violated: int = 0
    """Number of violations, including notes."""
    notes: int = 0
    """Violations that are notes, not faults."""
    undecidable: int = 0
    reasons: Mapping[str, int] = field(default_factory=lambda: NO_REASONS)
    """By reason: how often it was undecidable."""
    examples: Sequence[Finding] = ()
    """The first violations, by frame."""

    worst: int = 4
    """0 an error, 1 a warning, 2 a notice, 3 a note; 4 if nothing was violated."""

    def add(self, other: RuleTally, examples: int) -> None:
        """Add the tally of the same rule elsewhere; keeps at most ``examples`` examples."""
        self.passed += other.passed
        self.violated += other.violated
        self.notes += other.notes
        self.undecidable += other.undecidable
        for reason, count in other.reasons.items():
            self.add_reason(reason, count)
        self.add_examples(other.examples[: examples - len(self.examples)])
        self.worst = min(self.worst, other.worst)

    def add_reason(self, reason: str, count: int = 1) -> None:
        """Count a reason for being undecidable; most tallies have none, and share one empty mapping."""
        if not isinstance(self.reasons, dict):
            self.reasons = {}
        if len(self.reasons) < MAX_REASONS or reason in self.reasons:
            self.reasons[reason] = self.reasons.get(reason, 0) + count

    def add_examples(self, findings: Sequence[Finding]) -> None:
        """Add examples; most tallies have none, and share one empty sequence."""
        if findings and not isinstance(self.examples, list):
            self.examples = []
        if isinstance(self.examples, list):
            self.examples += findings

    @property
    def only_notes(self) -> bool:
        """Whether there is something to report, but no fault."""
        return bool(self.violated) and self.violated == self.notes

    @property
    def opportunities(self) -> int:
        return self.passed + self.violated + self.undecidable

    @property
    def verdict(self) -> str:
        if self.violated:
            return VIOLATION
        if self.undecidable:
            return UNDECIDABLE
        return PASS if self.passed else "not applicable"


EARLIER = 0
"""Stands for the connection number of all evicted connections."""


class TallyKey(NamedTuple):
    """A rule on one end of a connection."""

    rule: str
    connection: int
    """Its number, or ``EARLIER``."""
    endpoint: int


class RuleSlot:
    """A rule, and the tallies that it usually counts in."""

    __slots__ = ("judge", "rule", "tallies")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.judge = rule.judge
        self.tallies: Sequence[RuleTally] = ()


class Broken(NamedTuple):
    """A rule that every noun of a class breaks, and its judgement."""

    rule: Rule
    judgement: Judgement


class SubjectClass:
    """Nouns of a connection on which most rules judge alike: pass, violation, undecidable or nothing."""

    __slots__ = ("broken", "count", "others", "tallies", "undecided")

    def __init__(self) -> None:
        self.tallies: list[RuleTally] = []
        """Tallies of the rules that they pass."""
        self.undecided: list[tuple[RuleTally, str]] = []
        """Tallies of the rules that are undecidable, and why."""
        self.broken: list[Broken] = []
        self.others: list[RuleSlot] = []
        """Rules that judge each noun: the end at fault is unknown, or the rule is a plug-in's."""
        self.count = 0
        """Number of nouns that are not in the tallies so far."""


class Hidden(NamedTuple):
    """What a message or RDMA operation may be, as the capture does not show what it is."""

    kind: type[Subject]
    version: int
    """0 if the version is truncated, too."""
    shape: int
    """The ``Subject.shape`` of the message; 0 for an RDMA operation."""
    end: int
    """The endpoint to judge: the sender, or the one that may have to answer."""
    rule: str | None = None
    """The only rule that may have to judge it; None for any."""

    def concerns(self, rule: Rule) -> bool:
        """Whether the rule may have to judge it."""
        if self.rule is not None:
            return rule.id == self.rule
        other = 1 if rule.id.startswith(("V2-", "XC-")) else 2 if rule.needs & FIRST else -1
        needs = rule.needs & ~(FIRST | SECOND) if self.kind is SentMessage else 0
        return rule.subject is self.kind and self.version != other and not (needs & ~self.shape or rule.plugin)


class Auditor:
    """Judges by rules: give ``listener`` to the Analyzer, and call ``finish`` at the end of the capture."""

    def __init__(
        self,
        rules: Iterable[Rule] | None = None,
        examples: int = 10,
        keep: Callable[[Finding], bool] | None = None,
        on_finding: Callable[[Finding, RuleTally], None] | None = None,
        release: Callable[[Rpc], None] | None = None,
        one_by_one: bool = False,
        meant: Callable[[Subject], bool] | None = None,
    ) -> None:
        """``rules``: to judge by, default all.  ``keep``: which findings count; the others are waived.

        ``on_finding``: takes each finding that counts, with its tally, when it is made; ``release``: takes each Rpc
        whose contents no rule needs any more.  ``one_by_one``: judge each noun individually instead of by class.
        ``meant``: which nouns to judge, one by one; default all."""
        self.one_by_one = one_by_one or meant is not None
        self.meant = meant
        self.rules = {rule.id: rule for rule in (all_rules().values() if rules is None else rules)}
        self.examples = examples
        self.keep = keep
        self.on_finding = on_finding
        self.release = release
        self.tallies: dict[TallyKey, RuleTally] = {}
        self._places: dict[int, list[TallyKey]] = {}
        """By connection number: the keys of ``tallies``."""
        self.waived: list[Finding] = []
        self.waived_count = 0
        self.connections: dict[int, Connection] = {}
        self._seats: dict[int, dict[tuple[type[Subject], str, bool, int, int], list[RuleSlot]]] = {}
        """By connection number."""
        self._rules_for: dict[tuple[type[Subject], str, bool, int], list[Rule]] = {}
        self._listeners: dict[int, AuditListener] = {}
        """By connection number."""
        self._remembering: list[AuditListener] = []
        """Listeners of connections that may continue."""
        self._classes: dict[int, dict[Hashable, SubjectClass]] = {}
        """By connection number and class."""
        self._set_up: set[int] = set()
        """Connections whose private data was judged."""
        self._refusals = VersionRefusals()
        self._hidden: dict[int, set[Hidden]] = {}
        """By connection number."""
        self.sides_known: set[int] = set()
        """Connections whose traffic shows which end is the client."""

    def listener(self, conversation: Conversation) -> AuditListener | None:
        """The listener of a conversation; None without RDMA, and for traces, as requirements are about bytes."""
        if conversation.traced or not conversation.connection.rdma:
            return None
        by_class = None if self.one_by_one else self._judge_class
        listener = AuditListener(conversation, self._judge, self.sides_known, self._refusals, self.release, by_class)
        self._listeners[conversation.connection.number] = listener
        self._remembering.append(listener)
        return listener

    def forget(self, now: int) -> None:
        """Drop what only late packets of ended connections would need, at time ``now`` (ns)."""
        self._remembering = [
            listener for listener in self._remembering if not listener.forget(now - listener.connection.last_time)
        ]

    def tick(self, now: int) -> None:
        """Judge what need not wait at time ``now`` (ns), as nothing older will come."""
        self._count_classes()
        self.forget(now)
        for listener in self._listeners.values():
            listener.idle(now - listener.connection.last_time)
            if any(listener.has_called):
                self._judge_setup(listener.conversation)

    def evict(self, conversations: Collection[Conversation]) -> None:
        """Move the tallies of connections that will not be seen again to ``EARLIER``."""
        numbers = {conversation.connection.number for conversation in conversations}
        for conversation in conversations:
            for key, tally in self.close(conversation).items():
                earlier = self.tallies.setdefault(key._replace(connection=EARLIER), RuleTally())
                earlier.add(tally, self.examples)
        self._remembering = [listener for listener in self._remembering if listener.connection.number not in numbers]

    def close(self, conversation: Conversation) -> dict[TallyKey, RuleTally]:
        """Judge the rest of a connection that will not be seen again, forget it, and return its tallies."""
        number = conversation.connection.number
        listener = self._listeners.pop(number, None)
        if listener is not None:
            listener.finish()
        self._judge_setup(conversation)
        self._count_classes(number)
        self._leave_open(conversation.connection)
        self._classes.pop(number, None)
        self._set_up.discard(number)
        self._seats.pop(number, None)
        self.sides_known.discard(number)
        self.connections.pop(number, None)
        return {key: self.tallies.pop(key) for key in self._places.pop(number, ())}

    def adopt(self, connection: Connection, tallies: Mapping[TallyKey, RuleTally]) -> None:
        """Take over tallies of a connection that another auditor closed: see ``close``."""
        number = connection.number
        own = {key._replace(connection=number): tally for key, tally in tallies.items()}
        self.connections[number] = connection
        self._set_up.add(number)
        self._places[number] = [*own]
        self.tallies.update(own)

    def finish_broken(self, conversations: Iterable[Conversation]) -> None:
        """Instead of ``finish``: keep only the tallies of rules that were broken."""
        for conversation in conversations:
            broken = {key: tally for key, tally in self.close(conversation).items() if tally.violated}
            if broken:
                self.tallies.update(broken)
                self.connections[conversation.connection.number] = conversation.connection

    def finish(self, conversations: Iterable[Conversation]) -> None:
        """Judge everything at the end of the capture; ``conversations``: all of it."""
        for listener in self._listeners.values():
            listener.finish()
        known = list(conversations)
        for conversation in known:
            self._judge_setup(conversation)
        self._count_classes()
        for conversation in known:
            self._leave_open(conversation.connection)

    def _judge_setup(self, conversation: Conversation) -> None:
        connection = conversation.connection
        judged = conversation.protocol == "rpcrdma" and not conversation.traced
        if judged and connection.number not in self._set_up:
            self._set_up.add(connection.number)
            self.connections[connection.number] = connection
            for end in (0, 1):
                self._judge(ConnectionSetup(conversation, end))

    @property
    def findings(self) -> list[Finding]:
        """The kept violations, in the order of the capture."""
        examples = [finding for tally in self.tallies.values() for finding in tally.examples]
        return sorted(examples, key=lambda finding: (finding.frames[:1], finding.rule.id))

    def tally(self, rule: str, connection: int, endpoint: int) -> RuleTally:
        return self.tallies.get(TallyKey(rule, connection, endpoint)) or RuleTally()

    def _judge(self, subject: Subject) -> None:
        if self.meant is not None and not self.meant(subject):
            return
        self._judge_by(self._seats_for(subject), subject)
        if isinstance(subject, SentMessage) and (hidden := subject.hidden):
            version = subject.header.version if subject.header.length >= VERSION_END else 0
            rule = REFUSED_BY.get(subject.header.procedure)
            self._hidden.setdefault(subject.connection.number, set()).update(
                Hidden(kind, version, subject.shape, end, rule if kind is RefusableMessage else None)
                for kind in hidden
                for end in (0, 1)
                if kind is Transaction or end == subject.sender ^ (kind is RefusableMessage)
            )

    def _leave_open(self, connection: Connection) -> None:
        """Where something does not say what it is, rules about what it may be are undecidable."""
        hidden = self._hidden.pop(connection.number, set())
        if any(connection.unread_packets):
            hidden.update(Hidden(RdmaOperation, 0, 0, end) for end in (0, 1))
        for rule in self.rules.values() if hidden else ():
            for end in {subject.end for subject in hidden if subject.concerns(rule)}:
                tally = self._tally(TallyKey(rule.id, connection.number, end))
                judged = tally.undecidable or (tally.passed and rule.subject in (SentMessage, RdmaOperation))
                if rule.judges(end) and not judged:
                    tally.undecidable = 1
                    tally.add_reason("a message or RDMA operation is truncated before it says what it is")

    def _judge_by(self, seats: list[RuleSlot], subject: Subject) -> None:
        for seat in seats:
            judgement = seat.judge(subject)
            if judgement is None:
                continue
            if judgement is PASSED:
                for tally in seat.tallies or self._open(seat, subject):
                    tally.passed += 1
                continue
            if judgement.verdict == VIOLATION and (doubt := self._doubt(seat.rule, subject)):
                judgement = undecidable(doubt)
            self._count(seat.rule, subject, judgement)

    def _judge_class(
        self, key: Hashable, subjects: Callable[[], Iterator[Subject]], connection: int, count: int = 1
    ) -> None:
        """Judge ``count`` nouns by their class on a connection; ``subjects`` makes them if they are needed."""
        classes = self._classes.get(connection)
        if classes is None:
            classes = self._classes[connection] = {}
        subject_class = classes.get(key)
        if subject_class is not None and not subject_class.others and not subject_class.broken:
            subject_class.count += count
            return
        made = subjects()
        if subject_class is None:
            first = next(made)
            subject_class = classes[key] = self._class_of(first)
            made = chain((first,), made)
        subject_class.count += count
        left = count
        for subject in made:
            if not subject_class.others and not self._wanted(subject_class, subject):
                break
            self._judge_by(subject_class.others, subject)
            for rule, judgement in subject_class.broken:
                self._count(rule, subject, judgement)
            left -= 1
        else:
            return
        for rule, judgement in subject_class.broken:
            note = judgement.note
            for end in self._ends(rule, subject, judgement.by):
                tally = self._tally(TallyKey(rule.id, connection, end))
                tally.violated += left
                tally.notes += left * note

    def _wanted(self, alike: SubjectClass, subject: Subject) -> bool:
        """Whether a noun, or a later one, may serve as an example of what it breaks."""
        return any(
            self._wants(self._tally(TallyKey(rule.id, subject.connection.number, end)), subject.frames)
            for rule, judgement in alike.broken
            for end in self._ends(rule, subject, judgement.by)
        )

    def _wants(self, tally: RuleTally, frames: tuple[int, ...]) -> bool:
        examples = tally.examples
        return len(examples) < self.examples or (bool(examples) and frames[:1] < examples[-1].frames[:1])

    def _class_of(self, subject: Subject) -> SubjectClass:
        """A new class, judged by its first noun."""
        subject_class = SubjectClass()
        each = self.keep is not None or self.on_finding is not None
        for seat in self._seats_for(subject):
            judgement = seat.judge(subject)
            if judgement is PASSED and not seat.rule.plugin:
                subject_class.tallies += seat.tallies or self._open(seat, subject)
            elif judgement is not None and judgement.verdict == UNDECIDABLE and not seat.rule.plugin:
                tallies = seat.tallies or self._open(seat, subject)
                subject_class.undecided += [(tally, judgement.reason) for tally in tallies]
            elif (
                judgement is not None
                and judgement.verdict == VIOLATION
                and not (each or seat.rule.plugin or self._doubt(seat.rule, subject))
            ):
                subject_class.broken.append(Broken(seat.rule, judgement))
            elif judgement is not None or seat.rule.plugin:  # It is unknown what a plug-in looks at.
                subject_class.others.append(seat)
        return subject_class

    def _count_classes(self, connection: int | None = None) -> None:
        """Add the counts by class to the tallies, for one connection or all."""
        for number in self._classes if connection is None else (connection,):
            for subject_class in self._classes.get(number, {}).values():
                if subject_class.count:
                    for tally in subject_class.tallies:
                        tally.passed += subject_class.count
                    for tally, reason in subject_class.undecided:
                        tally.undecidable += subject_class.count
                        tally.add_reason(reason, subject_class.count)
                    subject_class.count = 0

    def _seats_for(self, subject: Subject) -> list[RuleSlot]:
        """The rules for nouns of this kind, shape and role, with their tallies."""
        kind, role, backward, shape = type(subject), subject.role, subject.backward, subject.shape
        key = kind, role, backward, shape, subject.endpoint("requester")
        seats = self._seats.setdefault(subject.connection.number, {})
        slots = seats.get(key)
        if slots is None:
            rules = self._rules_for.get(key[:-1])
            if rules is None:
                rules = self._rules_for[key[:-1]] = [
                    rule
                    for rule in self.rules.values()
                    if rule.subject is kind
                    and not rule.unjudgeable
                    and rule.applies(backward, shape)
                    and (rule.role in ("either", role) or not role)
                    and rule.needs & shape == rule.needs
                ]
            slots = seats[key] = [*map(RuleSlot, rules)]
        return slots

    def _open(self, seat: RuleSlot, subject: Subject) -> Sequence[RuleTally]:
        """The tallies in which a rule counts such a noun."""
        connection = subject.connection
        self.connections.setdefault(connection.number, connection)
        ends = self._ends(seat.rule, subject, "")
        seat.tallies = tuple(self._tally(TallyKey(seat.rule.id, connection.number, end)) for end in ends)
        return seat.tallies

    def _tally(self, key: TallyKey) -> RuleTally:
        """The tally with this key; a new one if there is none."""
        tally = self.tallies.get(key)
        if tally is None:
            tally = self.tallies[key] = RuleTally()
            self._places.setdefault(key.connection, []).append(key)
        return tally

    def _ends(self, rule: Rule, subject: Subject, by: str) -> list[int]:
        """The ends that a judgement is about; both for a call and its reply, if the rule is about either."""
        role = by or rule.role
        if role != "either" or not isinstance(subject, Transaction):
            return [subject.endpoint(role)]
        ends = [subject.endpoint("requester"), subject.endpoint("responder")]
        if subject.rpc.call is None:
            return ends[1:]
        return ends if subject.rpc.reply is not None else ends[:1]

    def _doubt(self, rule: Rule, subject: Subject) -> str:
        """Why the end at fault is unknown; '' if it is known, or does not matter."""
        if rule.role == "either" and rule.backward is None:
            return ""
        if (
            isinstance(subject, SentMessage | Transaction)
            and subject.rpc is not None
            and BY_XID_ALONE in subject.rpc.notes
        ):
            return BY_XID_ALONE
        known = subject.start_known or subject.connection.number in self.sides_known
        return "" if known else "which end is the client is not known"

    def _count(self, rule: Rule, subject: Subject, judgement: Judgement) -> None:
        for endpoint in self._ends(rule, subject, judgement.by):
            self._count_at(rule, subject, judgement, endpoint)

    def _count_at(self, rule: Rule, subject: Subject, judgement: Judgement, endpoint: int) -> None:
        tally = self.tallies.get((rule.id, subject.connection.number, endpoint))  # type: ignore[call-overload]
        if tally is None:
            tally = self._tally(TallyKey(rule.id, subject.connection.number, endpoint))
            self.connections.setdefault(subject.connection.number, subject.connection)
        if judgement.verdict == PASS:
            tally.passed += 1
        elif judgement.verdict == UNDECIDABLE:
            tally.undecidable += 1
            tally.add_reason(judgement.reason)
        else:
            self.count(self._finding(rule, subject, judgement, endpoint), tally)

    def count(self, finding: Finding, tally: RuleTally) -> None:
        """Count a violation in a tally, unless it is waived."""
        if self.keep is not None and not self.keep(finding):
            self.waived_count += 1
            if len(self.waived) < self.examples:
                self.waived.append(finding)
            return
        tally.violated += 1
        tally.notes += finding.severity == "note"
        tally.worst = min(tally.worst, RANKS.index(finding.severity))
        if self._wants(tally, finding.frames):
            tally.add_examples([finding])
            assert isinstance(tally.examples, list)
            tally.examples.sort(key=lambda finding: finding.frames[:1])
            del tally.examples[self.examples :]
        if self.on_finding is not None:
            self.on_finding(finding, tally)

    def _finding(self, rule: Rule, subject: Subject, judgement: Judgement, endpoint: int) -> Finding:
        return Finding(
            rule,
            judgement.verdict,
            subject.connection,
            endpoint,
            judgement.by or subject.role or rule.role,
            judgement.frames or subject.frames,
            subject.time,
            subject.rpc_number,
            subject.xid,
            judgement.observed,
            judgement.required,
            judgement.reason,
            "note" if judgement.note else SEVERITIES[Level.STATED if judgement.stated else rule.level],
        )


SIDES = ("active", "passive")


class RuleRow(NamedTuple):
    """One rule at one end of a connection."""

    connection: Connection
    endpoint: int
    rule: Rule
    tally: RuleTally


@dataclass(frozen=True)
class Result:
    """The audit of one file."""

    file: str
    auditor: Auditor
    rpcs: int
    chosen: frozenset[int] = frozenset()
    """Connections that were asked for; empty means all."""

    @property
    def connections(self) -> list[Connection]:
        known = self.auditor.connections
        return [known[number] for number in sorted(known) if not self.chosen or number in self.chosen]

    @cached_property
    def by_rule(self) -> dict[str, list[tuple[TallyKey, RuleTally]]]:
        """The tallies of each rule, in the order of connections."""
        tallies: dict[str, list[tuple[TallyKey, RuleTally]]] = defaultdict(list)
        for key, tally in sorted(self.auditor.tallies.items()):
            tallies[key.rule].append((key, tally))
        return dict(tallies)

    def times(self, rule: str) -> int:
        """How often a rule was broken, notes included."""
        return sum(tally.violated for _, tally in self.by_rule[rule])

    @cached_property
    def by_end(self) -> dict[tuple[int, int], list[RuleTally]]:
        """The tallies by connection number and end."""
        tallies: dict[tuple[int, int], list[RuleTally]] = defaultdict(list)
        for key, tally in self.auditor.tallies.items():
            tallies[key.connection, key.endpoint].append(tally)
        return dict(tallies)

    @property
    def violations(self) -> int:
        """How often rules were broken; notes do not count."""
        return sum(tally.violated - tally.notes for tally in self.auditor.tallies.values())

    @property
    def notes(self) -> int:
        return sum(tally.notes for tally in self.auditor.tallies.values())

    @property
    def judged(self) -> bool:
        """Whether there was anything to judge."""
        return any(tally.opportunities for tally in self.auditor.tallies.values())

    def rows(self) -> Iterator[RuleRow]:
        """Every rule at every end."""
        for connection in self.connections:
            for endpoint in (0, 1):
                for rule in self.auditor.rules.values():
                    yield RuleRow(connection, endpoint, rule, self.auditor.tally(rule.id, connection.number, endpoint))


def side(endpoint: int) -> str:
    return SIDES[endpoint]


def who(connection: Connection, endpoint: int) -> str:
    """'client 10.0.0.2', 'server 10.0.0.1:20049'."""
    address = connection.endpoints[endpoint].address
    return f"server {with_port(address, connection.service_port)}" if endpoint else f"client {address}"
