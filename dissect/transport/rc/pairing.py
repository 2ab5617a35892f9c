"""Which two flows are one connection, if no CM exchange shows it: evidence from the traffic.

A flow is all packets from one address to one queue pair of another.  Its partner runs between the same two hosts in the
other direction, acknowledges its PSNs, answers its requests and uses the handles that it advertised.  A ``SendReader``,
which knows the protocol above, reads requests, answers and advertised handles from Sends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from ...arrays import Bytes, Int64s, Rows, take, unique
from ...layers import opcodes
from ...named_tuple import NamedTuple


def flow_key(source: int, destination: int, dest_qp: int) -> int:
    """Key of the packets from one host to one queue pair of another: address ids in 20 bits each, QPN in 24."""
    return source << 44 | destination << 24 | dest_qp


def flow_keys(source: Rows, destination: Rows, dest_qp: Rows) -> Rows:
    """The keys (``flow_key``) of many packets."""
    return (
        source.astype(np.uint64) << np.uint64(44)
        | destination.astype(np.uint64) << np.uint64(24)
        | dest_qp.astype(np.uint64)
    )


SAMPLED_SENDS = 256
"""Sends read per flow."""
SAMPLED_BYTES = 1024
"""Bytes of a Send searched for handles."""
CONVINCING = 8
"""A score that allows a verdict before the capture ends."""
HELD_PACKETS = 1 << 18
"""Packets of a flow kept while it waits for a partner."""
MAX_SHARED = 64
"""Flows of one direction with the same feature; with more, the feature does not distinguish any."""
MAX_CANDIDATES = 16
"""Flows compared in full with a flow: those with the most features in common."""
PSN_BLOCK = 8
"""Low bits that PSNs may differ in to be the same feature."""

_STARTS_SEND = opcodes.IS_SEND & (opcodes.IS_FIRST | opcodes.IS_ONLY)


class SendEvidence(NamedTuple):
    """What the first bytes of a Send tell."""

    transaction: int | None
    """Identifies a request and its answer; None without one."""
    role: str
    """'request', 'answer', or '' if the captured bytes do not tell."""
    advertised: tuple[int, ...] = ()
    """Handles of memory that the receiver may use."""
    from_responder: bool | None = False
    """A request that the connection's responder sends; None: maybe, used only if nothing else tells the ends apart."""


class SendReader(NamedTuple):
    """Reads Sends of the protocol above."""

    read: Callable[[Bytes, int, int, int], SendEvidence | None]
    """Takes data, start and end of the captured bytes, and the length of the Send; None if it tells nothing."""
    transactions: str
    """What transactions are called, in the plural: 'XIDs'."""


class RecordReader(NamedTuple):
    """Reads records of the protocol above, over TCP without RDMA."""

    begin: Callable[[Int64s], NDArray[np.bool_]]
    """Takes the first words of records, the mark first, (n, 12), zero where not captured: which of them begin a
    record."""
    sends: SendReader


NO_READER = SendReader(lambda data, start, end, length: None, "transactions")

Feature = int
"""What a flow and its partner may have in common: the kind from bit ``KIND`` on, the value below."""
KIND = 33
ENDS = KIND + 3
"""From this bit on: the hosts."""
TRANSACTION, USED, WORD, PSN_SENT, PSN_ANSWERED, PORT = (kind << KIND for kind in range(6))

_NOTHING: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class Flow:
    """Packets from one host to one queue pair of another, waiting for the flow in the other direction."""

    key: int
    source: int
    destination: int
    dest_qp: int
    pieces: list[tuple[Bytes, Rows]] = field(default_factory=list)
    packets: int = 0
    sends: int = 0
    """Number of Sends that were read."""
    requests: frozenset[int] = _NOTHING
    """Transactions it began."""
    answers: frozenset[int] = _NOTHING
    """Transactions it answered."""
    from_responder: frozenset[int] = _NOTHING
    """Its requests that only a responder sends."""
    maybe_from_responder: frozenset[int] = _NOTHING
    undirected: frozenset[int] = _NOTHING
    """Transactions of Sends that may be requests or answers."""
    advertised: frozenset[int] = _NOTHING
    words: frozenset[int] = _NOTHING
    """32-bit words of Sends that are no answers: they include handles, whatever the protocol."""
    used: frozenset[int] = _NOTHING
    """Handles that its RDMA Reads and Writes name."""
    ports: frozenset[int] = _NOTHING
    """UDP source ports."""
    features: set[Feature] = field(default_factory=set)
    votes: Counter[int] = field(default_factory=Counter)
    """By flow of the other direction: number of features in common."""
    mtu: int = 0
    _asked: list[tuple[Int64s, Int64s]] = field(default_factory=list)
    """PSNs of requests, and bytes that they read, which with the path MTU give the number of PSNs they take."""
    _responses: list[Int64s] = field(default_factory=list)
    _arrays: tuple[Int64s, Int64s, Int64s] | None = None

    @property
    def first_frame(self) -> int:
        return int(self.pieces[0][1]["frame"][0])

    @property
    def last_time(self) -> int:
        """Time of its last packet, ns."""
        return int(self.pieces[-1][1]["time"][-1])

    @property
    def requester_score(self) -> int:
        """Positive for the flow of a requester, negative for that of a responder.

        A requester sends requests, and issues no RDMA Reads or Writes except for requests of the responder.
        """
        backward = self.from_responder | self.maybe_from_responder
        return self.forward_requests - len(backward) - len(self.answers) - bool(self.used)

    @property
    def forward_requests(self) -> int:
        return len(self.requests - self.from_responder - self.maybe_from_responder)

    @property
    def first_psn(self) -> int | None:
        """PSN of its first packet that is not a response."""
        for _, rows in self.pieces:
            asked = rows[~opcodes.IS_RESPONSE[rows["opcode"]]]
            if len(asked):
                return int(asked["psn"][0])
        return None

    @property
    def first_request(self) -> float:
        """Frame of its first packet that is not a response."""
        for _, rows in self.pieces:
            asked = rows[~opcodes.IS_RESPONSE[rows["opcode"]]]
            if len(asked):
                return int(asked["frame"][0])
        return inf

    @property
    def psns(self) -> tuple[Int64s, Int64s, Int64s]:
        """The PSNs of requests, ascending, and the PSNs after them; the PSNs of responses, each once."""
        if self._arrays is None:
            none = np.zeros(0, np.int64)
            starts = np.concatenate([none, *(start for start, _ in self._asked)])
            octets = np.concatenate([none, *(length for _, length in self._asked)])
            ends = starts + np.maximum(1, -(-octets // (self.mtu or 4096)))
            order = np.argsort(starts, kind="stable")
            self._arrays = starts[order], ends[order], unique(np.concatenate([none, *self._responses]))
        return self._arrays

    def add(self, data: Bytes, rows: Rows, reader: SendReader) -> set[Feature]:
        """Add packets; returns the features that are new."""
        self.pieces.append((data, rows))
        self.packets += len(rows)
        self._arrays = None
        opcode = rows["opcode"]
        full = rows["length"][opcodes.IS_FIRST[opcode] | opcodes.IS_MIDDLE[opcode]]
        self.mtu = max(self.mtu, int(full.max()) if len(full) else 0)
        responding = opcodes.IS_RESPONSE[opcode]
        asked = take(rows, ~responding)
        starts = asked["psn"].astype(np.int64)
        self._asked.append((starts, asked["dma_length"] * opcodes.IS_READ_REQUEST[asked["opcode"]].astype(np.int64)))
        responses = unique(rows["psn"][responding]).astype(np.int64)
        self._responses.append(responses)
        used = set(unique(rows["r_key"][opcodes.HAS_RETH[opcode]]).tolist()) - self.used
        ports = set(unique(rows["source_port"]).tolist()) - {0} - self.ports
        self.used |= used
        self.ports |= ports
        features: set[Feature] = {USED | handle for handle in used} | {PORT | port for port in ports}
        features |= {PSN_SENT | block for block in unique(starts >> PSN_BLOCK).tolist()}
        features |= {PSN_ANSWERED | block for block in unique(responses >> PSN_BLOCK).tolist()}
        features |= self._read(data, take(rows, _STARTS_SEND[opcode])[: SAMPLED_SENDS - self.sends], reader)
        features -= self.features
        self.features |= features
        return features

    def _read(self, data: Bytes, sends: Rows, reader: SendReader) -> set[Feature]:
        transactions: dict[str, set[int]] = {"request": set(), "answer": set(), "": set()}
        from_responder: dict[bool | None, set[int]] = {True: set(), None: set(), False: set()}
        advertised: set[int] = set()
        words: set[int] = set()
        columns = (sends[name].tolist() for name in ("payload", "captured", "length"))
        for offset, captured, length in zip(*columns, strict=True):
            self.sends += 1
            said = reader.read(data, offset, offset + captured, length)
            if said is not None and said.transaction is not None:
                transactions[said.role].add(said.transaction)
                advertised.update(said.advertised)
                from_responder[said.from_responder].add(said.transaction)
            if said is None or said.role != "answer":
                body = data[offset : offset + (min(captured, SAMPLED_BYTES) & ~3)]
                words.update(body.view(">u4").tolist())
        self.requests |= transactions["request"]
        self.answers |= transactions["answer"]
        self.from_responder |= from_responder[True]
        self.maybe_from_responder |= from_responder[None]
        self.undirected |= transactions[""]
        self.advertised |= advertised
        self.words |= words
        features = {TRANSACTION | role_xid for role in transactions.values() for role_xid in role}
        return features | {WORD | word for word in words}


class Pair(NamedTuple):
    """Two flows that belong together."""

    active: Flow
    """Sent by the requester."""
    passive: Flow
    confidence: float
    evidence: tuple[str, ...]


class _Score(NamedTuple):
    """How much suggests that two opposite flows are one connection."""

    weight: float
    share: float
    """Share of what could agree that does, 0 to 1."""
    evidence: tuple[str, ...]


_OPPOSITE = {
    TRANSACTION: TRANSACTION,
    USED: WORD,
    WORD: USED,
    PSN_SENT: PSN_ANSWERED,
    PSN_ANSWERED: PSN_SENT,
    PORT: PORT,
}
"""By kind of feature: the kind that the partner's corresponding feature has."""


def _between(source: int, destination: int) -> int:
    """Two address ids, in the bits from ``ENDS`` on."""
    return (source << 32 | destination) << ENDS


def _opposite(feature: Feature) -> Feature:
    kind = feature >> KIND << KIND
    return feature ^ kind ^ _OPPOSITE[kind]


class UnpairedFlows:
    """The flows without a partner, oldest first."""

    def __init__(self, reader: SendReader) -> None:
        self.reader = reader
        self.flows: dict[int, Flow] = {}
        """By flow key."""
        self.packets = 0
        self.refused = 0
        """Packets dropped because too many were held."""
        self._having: dict[int, int | dict[int, None]] = {}
        """By ``_between`` and feature: the key of the flow that has it, or the keys of several."""
        self._grown: dict[int, None] = {}
        """Flows with new packets since they were last compared."""

    def hold(self, key: int, data: Bytes, rows: Rows) -> None:
        flow = self.flows.get(key)
        if flow is None:
            ends = int(rows["source"][0]), int(rows["destination"][0])
            flow = self.flows[key] = Flow(key, *ends, int(rows["dest_qp"][0]))
        if flow.packets >= HELD_PACKETS:
            self.refused += len(rows)
            return
        self.packets += len(rows)
        self._grown[key] = None
        here, there = _between(flow.source, flow.destination), _between(flow.destination, flow.source)
        for feature in flow.add(data, rows, self.reader):
            having = self._having.setdefault(here | feature, key)
            if isinstance(having, dict):
                having[key] = None
            elif having != key:
                self._having[here | feature] = {having: None, key: None}
            others = self._having.get(there | _opposite(feature), ())
            if not isinstance(others, int) and len(others) > MAX_SHARED:
                continue
            for other in (others,) if isinstance(others, int) else others:
                flow.votes[other] += 1
                self.flows[other].votes[key] += 1
                self._grown[other] = None

    def release(self, key: int) -> Flow | None:
        """Take a flow out."""
        flow = self.flows.pop(key, None)
        if flow is None:
            return None
        self.packets -= flow.packets
        self._grown.pop(key, None)
        here = _between(flow.source, flow.destination)
        for feature in flow.features:
            having = self._having[here | feature]
            if isinstance(having, dict):
                having.pop(key, None)
            if having == key or not having:
                del self._having[here | feature]
        for other in flow.votes:
            if other in self.flows:
                self.flows[other].votes.pop(key, None)
        return flow

    def pairs(self, last_chance: bool) -> list[Pair]:
        """Pair the flows that can be paired, the most convincing first.

        Unless it is the ``last_chance`` (the capture goes on), only pairs beyond doubt are made.
        """
        chosen = list(self.flows) if last_chance else [key for key in self._grown if key in self.flows]
        self._grown.clear()
        pairs = self._by_evidence(chosen, last_chance)
        if last_chance:
            pairs += self._leftovers({flow.key for pair in pairs for flow in (pair.active, pair.passive)})
        return pairs

    def partners(self, keys: Sequence[int]) -> list[Pair]:
        """Pair those of these flows for which there is any evidence: they can wait no longer."""
        mine = set(keys)
        return [
            pair for pair in self._by_evidence(keys, True) if not mine.isdisjoint((pair.active.key, pair.passive.key))
        ]

    def _by_evidence(self, chosen: Iterable[int], last_chance: bool) -> list[Pair]:
        scores: dict[tuple[int, int], _Score] = {}
        """By the keys of both flows, the lower key first."""
        rivals: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
        """By flow: weight and key of each possible partner."""
        compared: set[int] = set()
        for key in chosen:
            self._compare(key, scores, rivals, compared)
        for key in list(rivals):
            self._compare(key, scores, rivals, compared)
        pairs: list[Pair] = []
        taken: dict[int, float] = {}
        """Flows that have a partner, with the confidence."""
        for (key, other), (weight, share, evidence) in sorted(scores.items(), key=lambda item: -item[1].weight):
            if key in taken or other in taken:
                continue
            against = [
                value
                for mine, partner in ((key, other), (other, key))
                for value, candidate in rivals[mine]
                if candidate != partner and candidate not in taken
            ]
            rival = max(against, default=0.0)
            passed = [candidate for mine in (key, other) for value, candidate in rivals[mine] if value * 2 > weight]
            if not last_chance and (weight < CONVINCING or rival * 2 > weight):
                continue
            confidence = round(min(0.99, max(0.05, share * (1 - rival / (2 * weight)) * (1 - 0.5 / (1 + weight)))), 2)
            # A pair is no surer than the pairs that took its better candidates.
            confidence = min([confidence, *[taken[candidate] for candidate in passed if candidate in taken]])
            taken[key] = taken[other] = confidence
            pairs.append(_oriented(self.flows[key], self.flows[other], confidence, evidence))
        return pairs

    def _compare(
        self,
        key: int,
        scores: dict[tuple[int, int], _Score],
        rivals: dict[int, list[tuple[float, int]]],
        compared: set[int],
    ) -> None:
        """Score a flow with the flows of the other direction that have the most in common with it."""
        if key in compared:
            return
        compared.add(key)
        flow = self.flows[key]
        for other, _ in flow.votes.most_common(MAX_CANDIDATES):
            pair = (key, other) if key < other else (other, key)
            if pair in scores:
                continue
            score = _score(flow, self.flows[other], self.reader.transactions)
            if score.weight:
                scores[pair] = score
                rivals[key].append((score.weight, other))
                rivals[other].append((score.weight, key))

    def _leftovers(self, taken: set[int]) -> list[Pair]:
        """If only one flow each way is left between two hosts, pair the two."""
        left: defaultdict[tuple[int, int], list[Flow]] = defaultdict(list)
        for flow in self.flows.values():
            if flow.key not in taken:
                left[flow.source, flow.destination].append(flow)
        pairs: list[Pair] = []
        for (source, destination), flows in left.items():
            back = left.get((destination, source), [])
            if source < destination and len(flows) == len(back) == 1:
                words = ("the only queue pairs left between the two hosts",)
                pairs.append(_oriented(flows[0], back[0], 0.3, words))
        return pairs


def _answered(requests: Flow, responses: Flow) -> int:
    """How many PSNs of the responses lie within requests."""
    starts, ends, _ = requests.psns
    psns = responses.psns[2]
    if not len(starts) or not len(psns):
        return 0
    range_at = np.searchsorted(starts, psns, side="right") - 1
    return int(((range_at >= 0) & (psns < ends[range_at])).sum())


def _score(flow: Flow, other: Flow, transactions: str) -> _Score:
    acknowledged = _answered(flow, other) + _answered(other, flow)
    responses = len(flow.psns[2]) + len(other.psns[2])
    matched = len(flow.requests & other.answers) + len(other.requests & flow.answers)
    alike = len(flow.undirected & (other.requests | other.answers | other.undirected))
    alike += len(other.undirected & (flow.requests | flow.answers))
    advertised = len(flow.used & other.advertised) + len(other.used & flow.advertised)
    named = len(flow.used & other.words) + len(other.used & flow.words) - advertised
    ports = bool(flow.ports & other.ports)
    evidence = []
    if acknowledged:
        evidence.append(f"{acknowledged} of {responses} acknowledged PSNs fit")
    if matched:
        evidence.append(f"{_plural(matched, transactions)} called and answered")
    if alike:
        evidence.append(f"{_plural(alike, transactions)} in both directions")
    if advertised:
        evidence.append(f"{_plural(advertised, 'handles')} advertised and used")
    if named > 0:
        evidence.append(f"{_plural(named, 'handles')} used that a Send of the other end contains")
    weight = acknowledged + 4.0 * (matched + alike + advertised + max(0, named))
    if weight and ports:
        evidence.append("same UDP source port")
        weight *= 1.25
    share = acknowledged / responses if responses else (1.0 if weight else 0.0)
    if matched or alike or advertised or named > 0:
        share = max(share, 0.9)
    return _Score(weight, share, tuple(evidence))


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun if number != 1 else noun.removesuffix('s')}"


def _oriented(flow: Flow, other: Flow, confidence: float, evidence: tuple[str, ...]) -> Pair:
    """The pair with the requester's flow first or, if nothing tells, the flow that sent the first request."""
    scores = flow.requester_score, other.requester_score
    if any(one.from_responder or one.maybe_from_responder for one in (flow, other)):
        # Then the requester answers as well, and may use memory.
        scores = flow.forward_requests + len(other.from_responder), other.forward_requests + len(flow.from_responder)
        if scores[0] == scores[1]:
            scores = len(other.maybe_from_responder), len(flow.maybe_from_responder)
    if (-scores[0], flow.first_request) <= (-scores[1], other.first_request):
        return Pair(flow, other, confidence, evidence)
    return Pair(other, flow, confidence, evidence)
