"""The auditor: follows every connection, shows its nouns to the rules, and counts what they say.

What a capture may show out of order is judged ``REORDERED`` frames later; memory is bounded by that, by a number of
remembered XIDs, handles and calls per connection, and by the examples that are kept.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ..connection import Connection
from ..exchange import BY_XID_ALONE, REORDERED
from ..intervals import IntervalSet
from ..messages import RDMA_DONE, RDMA_ERROR, RDMA_MSGP, RDMA_NOMSG, Message
from ..onc import nfs4
from ..onc.programs import NFS, NFS_CALLBACK
from ..operations import Kind, Operation
from ..rpcs import Rpc
from .finding import PASS, UNDECIDABLE, VIOLATION, Finding, Judgement, undecidable
from .nouns import Flow, Mishap, Movement, Sent, Setup, Subject, Transaction, delivers, precedes, start_known
from .rule import Level, Rule, all_rules

Value = TypeVar("Value")

REMEMBERED = 4096
"""XIDs of each end, and answered calls with chunks, that are remembered per connection."""
NEARBY = 128
"""Calls with chunks within which a handle that comes back is the same registration."""
LOWERING = 1_000_000_000
"""Nanoseconds that a lower grant may need to reach the requester."""

SEVERITIES = {Level.MUST: "error", Level.SHOULD: "warning", Level.STATED: "notice"}

RANKS = ("error", "warning", "notice", "note")


@dataclass(slots=True)
class Tally:
    """What one rule found at one endpoint."""

    passed: int = 0
    violated: int = 0
    undecidable: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Why it was undecidable."""
    examples: list[Finding] = field(default_factory=list)
    """The first violations."""

    worst: int = 4
    """0 an error, 1 a warning, 2 a notice, 3 a note; 4 where nothing was violated."""

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


class Place(NamedTuple):
    """A rule at one end of a connection."""

    rule: str
    connection: int
    endpoint: int


class Auditor:
    """Give ``watch`` to the Analyzer; at the end of the capture call ``finish``."""

    def __init__(
        self,
        rules: Iterable[Rule] | None = None,
        examples: int = 10,
        keep: Callable[[Finding], bool] | None = None,
    ) -> None:
        """``rules``: those to judge by, all by default.  ``keep``: which findings count; the others are waived."""
        self.rules = {rule.id: rule for rule in (all_rules().values() if rules is None else rules)}
        self.examples = examples
        self.keep = keep
        self.tallies: dict[Place, Tally] = {}
        self.waived: list[Finding] = []
        self.waived_count = 0
        self.connections: dict[int, Connection] = {}
        self._concern: dict[tuple[type[Subject], str, bool], list[Rule]] = {}
        self._watchers: list[Watcher] = []
        self.sides_known: set[int] = set()
        """Connections of which the traffic tells who is the client."""

    def watch(self, connection: Connection) -> Watcher:
        watcher = Watcher(connection, self._judge, self.sides_known)
        self._watchers.append(watcher)
        return watcher

    def finish(self, connections: Iterable[Connection]) -> None:
        """The capture is over; ``connections`` are all of it."""
        for watcher in self._watchers:
            watcher.finish()
        for connection in connections:
            if connection.protocol == "rpcrdma":
                self.connections[connection.number] = connection
                for end in (0, 1):
                    self._judge(Setup(connection, end))

    @property
    def findings(self) -> list[Finding]:
        """The kept violations, in the order of the capture."""
        found = [finding for tally in self.tallies.values() for finding in tally.examples]
        return sorted(found, key=lambda finding: (finding.frames[:1], finding.rule.id))

    def tally(self, rule: str, connection: int, endpoint: int) -> Tally:
        return self.tallies.get(Place(rule, connection, endpoint), Tally())

    def _judge(self, subject: Subject) -> None:
        for rule in self._concerned(type(subject), subject.role, subject.backward):
            judgement = rule.judge(subject)
            if judgement is not None:
                if judgement.verdict == VIOLATION and (doubt := self._doubt(rule, subject)):
                    judgement = undecidable(doubt)
                self._count(rule, subject, judgement)

    def _concerned(self, kind: type[Subject], role: str, backward: bool) -> list[Rule]:
        """The rules for such a noun."""
        key = kind, role, backward
        rules = self._concern.get(key)
        if rules is None:
            rules = self._concern[key] = [
                rule
                for rule in self.rules.values()
                if rule.subject is kind
                and not rule.unjudgeable
                and rule.backward in (None, backward)
                and (rule.role in ("either", role) or not role)
            ]
        return rules

    def _doubt(self, rule: Rule, subject: Subject) -> str:
        """Why nobody can be blamed for lack of knowing who is who; '' where that is known or does not matter."""
        if rule.role == "either" and rule.backward is None:
            return ""
        if isinstance(subject, Sent | Transaction) and subject.rpc is not None and BY_XID_ALONE in subject.rpc.notes:
            return BY_XID_ALONE
        known = start_known(subject.connection) or subject.connection.number in self.sides_known
        return "" if known else "which end is the client is not known"

    def _count(self, rule: Rule, subject: Subject, judgement: Judgement) -> None:
        role = judgement.by or rule.role
        if role == "either" and isinstance(subject, Transaction):
            self._count_at(rule, subject, judgement, subject.endpoint("requester"))
            if subject.rpc.reply is None:
                return
            role = "responder"
        self._count_at(rule, subject, judgement, subject.endpoint(role))

    def _count_at(self, rule: Rule, subject: Subject, judgement: Judgement, endpoint: int) -> None:
        tally = self.tallies.get((rule.id, subject.connection.number, endpoint))  # type: ignore[call-overload]
        if tally is None:
            tally = self.tallies[Place(rule.id, subject.connection.number, endpoint)] = Tally()
            self.connections.setdefault(subject.connection.number, subject.connection)
        if judgement.verdict == PASS:
            tally.passed += 1
        elif judgement.verdict == UNDECIDABLE:
            tally.undecidable += 1
            if len(tally.reasons) < 100 or judgement.reason in tally.reasons:
                tally.reasons[judgement.reason] += 1
        else:
            finding = self._finding(rule, subject, judgement, endpoint)
            if self.keep is not None and not self.keep(finding):
                self.waived_count += 1
                if len(self.waived) < self.examples:
                    self.waived.append(finding)
                return
            tally.violated += 1
            tally.worst = min(tally.worst, RANKS.index(finding.severity))
            if len(tally.examples) < self.examples:
                tally.examples.append(finding)

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
            "note" if judgement.note else SEVERITIES[rule.level],
        )


class Advert(NamedTuple):
    """A segment that a call advertised."""

    start: int
    end: int
    kind: Kind
    rpc: Rpc


class Watcher:
    """Follows one connection and makes the nouns that rules look at."""

    def __init__(self, connection: Connection, judge: Callable[[Subject], None], sides_known: set[int]) -> None:
        self.connection = connection
        self.judge = judge
        self.sides_known = sides_known
        self.frame = 0
        self.open: tuple[dict[Rpc, Transaction], ...] = ({}, {})
        """Calls without a reply, by caller."""
        self.waiting: deque[tuple[int, Subject]] = deque()
        """What is judged when the capture has passed a frame by so much that nothing can change it."""
        self.answered: OrderedDict[Rpc, Transaction] = OrderedDict()
        """Answered, and not judged yet."""
        self.moves: deque[tuple[int, Movement]] = deque()
        self.adverts: tuple[dict[int, list[Advert]], ...] = ({}, {})
        """By owner and handle."""
        self.advertisers: tuple[deque[Rpc], ...] = (deque(), deque())
        self.grants: list[int | None] = [None, None]
        """The latest in either direction."""
        self.higher: list[tuple[int, int]] = [(0, 0), (0, 0)]
        """A grant that was in force until that time, ns."""
        self.asked = [0, 0]
        self.unrelieved: tuple[list[Transaction], ...] = ([], [])
        self.handles: tuple[OrderedDict[int, tuple[int, int]], ...] = (OrderedDict(), OrderedDict())
        """Handle -> how many calls in a row advertised it, and the last of them, counted in calls with chunks."""
        self.chunked = [0, 0]
        self.xids: tuple[OrderedDict[int, None], ...] = (OrderedDict(), OrderedDict())
        """Of messages that either end sent."""
        self.errored: tuple[OrderedDict[int, Rpc], ...] = (OrderedDict(), OrderedDict())
        """Calls of either end that an RDMA_ERROR answered."""
        self.mishaps: tuple[OrderedDict[int, Mishap], ...] = (OrderedDict(), OrderedDict())
        self.last_sent = [0, 0]
        """Frame of the last message of either end."""
        self.last_answered = [0, 0]
        """Frame of the last call of either end that was answered."""
        self.announced = ""
        self.calls_cut = False
        self.calls_unread = False

    # Events

    def called(self, rpc: Rpc) -> None:
        assert rpc.call is not None
        message, caller = rpc.call, int(rpc.backward)
        self._clock(message.operation)
        transaction = Transaction(self.connection, rpc)
        self.open[caller][rpc] = transaction
        transaction.flow = self._flow(caller, message)
        self.unrelieved[caller].append(transaction)
        if len(self.unrelieved[caller]) > REMEMBERED:
            del self.unrelieved[caller][: REMEMBERED // 2]
        if message.header.truncated:
            self.calls_cut = True
        if rpc.chunks:
            self._advertise(transaction, caller)
        _remember(self.xids[caller], rpc.xid, None)
        self.errored[caller].pop(rpc.xid, None)
        sent = Sent(self.connection, message, caller, True, rpc)
        if rpc.backward:
            sent.announced, sent.calls_unread = self.announced, self.calls_unread
        self._mishap(caller, message, rpc)
        self.waiting.append((self.frame, sent))

    def replied(self, rpc: Rpc) -> None:
        assert rpc.reply is not None
        message, caller = rpc.reply, int(rpc.backward)
        self._clock(message.operation)
        sent = Sent(self.connection, message, 1 - caller, False, rpc)
        sent.errored = self.errored[caller].get(rpc.xid) if rpc.call is None else None
        sent.xid_seen = rpc.call is not None or rpc.xid in self.xids[caller]
        _remember(self.xids[1 - caller], rpc.xid, None)
        mishap = self.mishaps[caller].pop(rpc.xid, None)
        if mishap is not None:
            mishap.answer = message
            self.waiting.append((self.frame, mishap))
        transaction = self.open[caller].pop(rpc, None)
        if transaction is not None:
            self.answered[rpc] = transaction
            assert rpc.call is not None
            self.last_answered[caller] = max(self.last_answered[caller], rpc.call.frame)
        self._granted(caller, message)
        if message.header.procedure == RDMA_ERROR and rpc.call is not None:
            _remember(self.errored[caller], rpc.xid, rpc)
        self.waiting.append((self.frame, sent))

    def ended(self, rpc: Rpc) -> None:
        caller = int(rpc.backward)
        transaction = self.open[caller].pop(rpc, None) or self.answered.get(rpc)
        if transaction is None:
            return
        if (rpc.program == NFS and not rpc.backward) or (rpc.program == NFS_CALLBACK and rpc.backward):
            self.sides_known.add(self.connection.number)
        if not rpc.backward:
            if rpc.operations:
                self._announcement(transaction)
            if rpc.call is not None and not (rpc.call.operation.payload.whole and rpc.call.operation.end_known):
                self.calls_unread = True
        self.answered[rpc] = transaction
        self.waiting.append((self.frame, transaction))
        self._settle()

    def stray(self, sender: int, message: Message) -> None:
        self._clock(message.operation)
        _remember(self.xids[sender], message.header.xid, None)
        self._mishap(sender, message, None)
        self.waiting.append((self.frame, Sent(self.connection, message, sender, None, None)))

    def moved(self, operation: Operation) -> None:
        self._clock(operation)
        if not operation.length:
            return
        for advert in self._candidates(operation):
            reply = advert.rpc.reply
            transaction = self.answered.get(advert.rpc)
            if reply is not None and transaction is not None and self._behind(operation, reply):
                transaction.late.append(operation)
        self.moves.append((operation.first_frame, Movement(self.connection, operation, (False, False))))

    def finish(self) -> None:
        self.frame += 2 * REORDERED
        self._settle()
        for sender in (0, 1):
            for mishap in self.mishaps[sender].values():
                mishap.passed_over = self.last_answered[sender] > mishap.message.frame
                self.judge(mishap)
            self.mishaps[sender].clear()

    # State

    def _clock(self, operation: Operation) -> None:
        if operation.kind is Kind.SEND:
            sender = operation.initiator
            self.last_sent[sender] = max(self.last_sent[sender], operation.last_frame)
        if operation.last_frame > self.frame:
            self.frame = operation.last_frame
            self._settle()

    def _settle(self) -> None:
        """Judge what nothing can change any more."""
        before = self.frame - REORDERED
        while self.moves and self.moves[0][0] < before:
            frame, movement = self.moves.popleft()
            self._place(movement)
            self._follow(movement, frame)
            self.judge(movement)
        while self.waiting and self.waiting[0][0] < before:
            subject = self.waiting.popleft()[1]
            if isinstance(subject, Transaction):
                self.answered.pop(subject.rpc, None)
            self._follow(subject, subject.frames[0])
            self.judge(subject)

    def _follow(self, subject: Subject, frame: int) -> None:
        subject.followed = self.last_sent[0] > frame, self.last_sent[1] > frame

    def _flow(self, caller: int, message: Message) -> Flow:
        grant = self.grants[caller]
        outstanding = len(self.open[caller])
        asked = max(1, message.header.credits or 1, self.asked[caller])
        self.asked[caller] = message.header.credits or 0
        if grant is None:
            return Flow(outstanding, None, None, None)
        before, until = self.higher[caller]
        highest = max(grant, before) if message.time < until else grant
        return Flow(outstanding, min(asked, max(1, grant)), min(asked, max(1, highest)), grant)

    def _granted(self, caller: int, message: Message) -> None:
        credits, header = message.header.credits, message.header
        if credits is None or header.problem or header.procedure == RDMA_ERROR:
            return
        old = self.grants[caller]
        if old is not None and credits < old:
            before, until = self.higher[caller]
            highest = max(old, before) if message.time < until else old
            self.higher[caller] = highest, message.time + LOWERING
        self.grants[caller] = credits
        for transaction in self.unrelieved[caller]:
            assert transaction.rpc.call is not None
            transaction.relieved = message.time - transaction.rpc.call.time
        self.unrelieved[caller].clear()

    def _advertise(self, transaction: Transaction, owner: int) -> None:
        rpc = transaction.rpc
        table = self.adverts[owner]
        self.chunked[owner] += 1
        now, longest = self.chunked[owner], (0, 0)
        for handle in {use.advertised.handle for chunk in rpc.chunks for use in chunk.segments}:
            run, last = self.handles[owner].get(handle, (0, 0))
            run = run + 1 if now - last <= NEARBY else 1
            _remember(self.handles[owner], handle, (run, now))
            longest = max(longest, (run, handle))
        transaction.persistent = (longest[1], longest[0])
        for chunk in rpc.chunks:
            kind = Kind.READ if chunk.kind == "read" else Kind.WRITE
            for use in chunk.segments:
                handle, length, offset = use.advertised
                table.setdefault(handle, []).append(Advert(offset, offset + length, kind, rpc))
        advertisers = self.advertisers[owner]
        advertisers.append(rpc)
        while len(advertisers) > REMEMBERED and advertisers[0] not in self.open[owner]:
            self._forget(owner, advertisers.popleft())

    def _forget(self, owner: int, rpc: Rpc) -> None:
        for handle in {use.advertised.handle for chunk in rpc.chunks for use in chunk.segments}:
            left = [advert for advert in self.adverts[owner].get(handle, ()) if advert.rpc is not rpc]
            if left:
                self.adverts[owner][handle] = left
            else:
                self.adverts[owner].pop(handle, None)

    def _candidates(self, operation: Operation) -> list[Advert]:
        start, end = operation.address, operation.address + operation.length
        return [
            advert
            for advert in self.adverts[1 - operation.initiator].get(operation.handle, ())
            if advert.start < end and start < advert.end and advert.kind is operation.kind
        ]

    def _behind(self, operation: Operation, reply: Message) -> bool:
        return precedes(self.connection, reply.operation, operation)

    def _place(self, movement: Movement) -> None:
        """Say where an operation went, now that calls which the capture shows late are known, too."""
        operation = movement.operation
        start, end = operation.address, operation.address + operation.length
        candidates = []
        for advert in self._candidates(operation):
            call = advert.rpc.call
            assert call is not None
            if call.operation.first_frame - operation.first_frame <= REORDERED:
                candidates.append(advert)
        current = [one for one in candidates if one.rpc.reply is None or not self._behind(operation, one.rpc.reply)]
        movement.calls_cut = self.calls_cut
        movement.callers = bool(self.last_answered[0]), bool(self.last_answered[1])
        if _covered(current, start, end):
            movement.place, movement.rpc = "inside", current[0].rpc
        elif _covered(candidates, start, end):
            movement.place = "late"
            movement.rpc = next(one.rpc for one in reversed(candidates) if one not in current)
            movement.delivers = any(delivers(one.rpc, operation) for one in candidates if one not in current)
        else:
            movement.place = "outside"
            near = candidates or self.adverts[1 - operation.initiator].get(operation.handle, [])
            if near:
                movement.rpc = near[-1].rpc
                movement.near = f"the nearest is {near[-1].end - near[-1].start} bytes at 0x{near[-1].start:x}"
                if near[-1].kind is not operation.kind:
                    movement.near += f", for RDMA {near[-1].kind.name.capitalize()}s"

    def _mishap(self, sender: int, message: Message, rpc: Rpc | None) -> None:
        kind = mishap_kind(message)
        if kind:
            mishap = Mishap(self.connection, message, sender, kind, rpc=rpc)
            table = self.mishaps[sender]
            table[message.header.xid] = mishap
            if len(table) > REMEMBERED:
                _, oldest = table.popitem(last=False)
                oldest.passed_over = self.last_answered[sender] > oldest.message.frame
                self.judge(oldest)

    def _announcement(self, transaction: Transaction) -> None:
        """Note an operation by which an NFSv4.1 client says that it is ready for callbacks (RFC 8881, 18.36, 18.34)."""
        rpc = transaction.rpc
        if self.announced or not {"CREATE_SESSION", "BIND_CONN_TO_SESSION"} & set(rpc.operations):
            return
        if rpc.program == NFS and backward_ready(transaction):
            self.announced = f"RPC {rpc.number}"


def mishap_kind(message: Message) -> str:
    """What is wrong with a message that must be answered by RDMA_ERROR; '' where it need not."""
    header = message.header
    if header.truncated or header.length < 16 or not message.operation.end_known or header.procedure == RDMA_ERROR:
        return ""
    if header.version != 1:
        return "version"
    if header.procedure in (RDMA_MSGP, RDMA_DONE):
        return "reserved"
    if header.problem or (header.procedure == RDMA_NOMSG and not header.chunks):
        return "header"
    return ""


def backward_ready(transaction: Transaction) -> bool:
    head = transaction.call_head
    if head is None or head.body < 0:
        return False
    stream = transaction.call_stream
    compound = nfs4.compound_call(stream, head.body, len(stream), transaction.reduced, origin=0)
    return nfs4.offers_back_channel(compound, stream)


def _remember(table: OrderedDict[int, Value], key: int, value: Value) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > REMEMBERED:
        table.popitem(last=False)


def _covered(adverts: list[Advert], start: int, end: int) -> bool:
    together = IntervalSet()
    for advert in adverts:
        together.add(advert.start, advert.end)
    return together.covers(start, end)
