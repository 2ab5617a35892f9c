"""Which two flows make a connection, when no CM exchange tells: evidence from the traffic itself.

A flow is all packets from one address to one queue pair of another.  Its partner runs between the same two hosts the
other way, acknowledges its PSNs, answers its XIDs and uses the handles that it advertised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...arrays import Bytes, Int64s, Rows
from ...layers import opcodes
from ...layers.rpcrdma_codes import RDMA_MSG
from ...rpcrdma.header import decode_header

SAMPLED_SENDS = 256
"""Sends of a flow whose words are looked at."""
CONVINCING = 8
"""A score that allows a verdict before the capture ends."""
HELD_PACKETS = 1 << 18
"""So many packets of a flow wait for a partner."""
MAX_CANDIDATES = 64
"""Flows of one direction between two hosts that are compared with those of the other; the oldest come first."""

_STARTS_SEND = opcodes.IS_SEND & (opcodes.IS_FIRST | opcodes.IS_ONLY)


@dataclass(slots=True)
class Flow:
    """Packets from one host to one queue pair of another, waiting for the flow in the other direction."""

    source: int
    destination: int
    dest_qp: int
    pieces: list[tuple[Bytes, Rows]] = field(default_factory=list)
    packets: int = 0
    traits: Traits | None = None

    @property
    def hosts(self) -> tuple[int, int]:
        """Address ids of both ends, the lower first."""
        return min(self.source, self.destination), max(self.source, self.destination)

    @property
    def last_time(self) -> int:
        """Nanoseconds."""
        return int(self.pieces[-1][1]["time"][-1])

    def add(self, data: Bytes, rows: Rows) -> None:
        self.pieces.append((data, rows))
        self.packets += len(rows)
        self.traits = None


class Traits(NamedTuple):
    """What pairing looks at."""

    request_starts: Int64s
    """PSNs of requests, ascending."""
    request_ends: Int64s
    responses: Int64s
    """PSNs of responses, unique."""
    xids: set[int]
    words: set[int]
    """32-bit words of Sends, among them advertised handles."""
    handles: set[int]
    """R_keys that RDMA Reads and Writes name."""
    ports: set[int]
    calls: int
    replies: int


class Pair(NamedTuple):
    """Two flows that belong together."""

    active: Flow
    """Sent by the requester."""
    passive: Flow
    confidence: float
    evidence: tuple[str, ...]


def traits(flow: Flow) -> Traits:
    """Look at what is held of a flow; remembered until more is added."""
    if flow.traits is not None:
        return flow.traits
    rows = np.concatenate([piece for _, piece in flow.pieces])
    opcode = rows["opcode"]
    responding = opcodes.IS_RESPONSE[opcode]
    requests = rows[~responding]
    full = rows["length"][opcodes.IS_FIRST[opcode] | opcodes.IS_MIDDLE[opcode]]
    mtu = int(full.max()) if len(full) and full.max() else 4096
    spans = np.where(
        opcodes.IS_READ_REQUEST[requests["opcode"]],
        np.maximum(1, -(-requests["dma_length"].astype(np.int64) // mtu)),
        1,
    )
    starts = requests["psn"].astype(np.int64)
    order = np.argsort(starts, kind="stable")
    xids, words, calls, replies = _sends(flow)
    return_traits = Traits(
        starts[order],
        (starts + spans)[order],
        np.unique(rows["psn"][responding]).astype(np.int64),
        xids,
        words,
        set(np.unique(rows["r_key"][opcodes.HAS_RETH[opcode]]).tolist()),
        set(np.unique(rows["source_port"]).tolist()) - {0},
        calls,
        replies,
    )
    flow.traits = return_traits
    return return_traits


def _sends(flow: Flow) -> tuple[set[int], set[int], int, int]:
    """XIDs, words, number of RPC calls and replies in the first Sends of a flow."""
    xids: set[int] = set()
    words: set[int] = set()
    calls = replies = looked = 0
    for data, rows in flow.pieces:
        sends = rows[_STARTS_SEND[rows["opcode"]]]
        for offset, captured, length in zip(
            sends["payload"].tolist(), sends["captured"].tolist(), sends["length"].tolist(), strict=True
        ):
            if captured < 8:
                continue
            header = decode_header(data, offset, offset + captured, length)
            if header.version in (1, 2):
                xids.add(header.xid)
            if header.procedure == RDMA_MSG and captured >= header.length + 8 and not header.problem:
                kind = int.from_bytes(data[offset + header.length + 4 : offset + header.length + 8].tobytes())
                calls += kind == 0
                replies += kind == 1
            body = data[offset : offset + (captured & ~3)]
            words.update(body.view(">u4").tolist())
            looked += 1
            if looked == SAMPLED_SENDS:
                return xids, words, calls, replies
    return xids, words, calls, replies


def _answered(requests: Traits, responses: Traits) -> int:
    """How many PSNs of the responses lie in requests."""
    if not len(requests.request_starts) or not len(responses.responses):
        return 0
    place = np.searchsorted(requests.request_starts, responses.responses, side="right") - 1
    return int(((place >= 0) & (responses.responses < requests.request_ends[place])).sum())


def _score(one: Flow, other: Flow) -> tuple[float, float, tuple[str, ...]]:
    """Weight of the evidence that two opposite flows are one connection, a share from 0 to 1, and the words."""
    a, b = traits(one), traits(other)
    acknowledged = _answered(a, b) + _answered(b, a)
    responses = len(a.responses) + len(b.responses)
    xids = len(a.xids & b.xids)
    handles = len(a.handles & b.words) + len(b.handles & a.words)
    ports = bool(a.ports & b.ports)
    evidence = []
    if acknowledged:
        evidence.append(f"{acknowledged} of {responses} acknowledged PSNs fit")
    if xids:
        evidence.append(f"{xids} XIDs called and answered")
    if handles:
        evidence.append(f"{handles} handles advertised and used")
    if ports and (acknowledged or xids or handles):
        evidence.append("same UDP source port")
    weight = acknowledged + 4.0 * xids + 4.0 * handles
    if weight and ports:
        weight *= 1.25
    share = acknowledged / responses if responses else (1.0 if weight else 0.0)
    if xids or handles:
        share = max(share, 0.9)
    return weight, share, tuple(evidence)


def pair(forth: list[Flow], back: list[Flow], last_chance: bool) -> list[Pair]:
    """Pair flows from host A to host B with flows from B to A, the most convincing first.

    Before the ``last_chance`` (the capture goes on) only what cannot be mistaken is paired.
    """
    scored = []
    for one in forth[:MAX_CANDIDATES]:
        for other in back[:MAX_CANDIDATES]:
            weight, share, evidence = _score(one, other)
            if weight:
                scored.append((weight, share, evidence, one, other))
    scored.sort(key=lambda row: -row[0])
    pairs: list[Pair] = []
    taken: set[int] = set()
    for weight, share, evidence, one, other in scored:
        if id(one) in taken or id(other) in taken:
            continue
        rival = max(
            (row[0] for row in scored if (row[3] is one) != (row[4] is other) and not {id(row[3]), id(row[4])} & taken),
            default=0.0,
        )
        if not last_chance and (weight < CONVINCING or rival * 2 > weight):
            continue
        taken |= {id(one), id(other)}
        confidence = round(min(0.99, max(0.05, share * (1 - rival / (2 * weight)) * (1 - 0.5 / (1 + weight)))), 2)
        pairs.append(_oriented(one, other, confidence, evidence))
    left_forth = [flow for flow in forth if id(flow) not in taken]
    left_back = [flow for flow in back if id(flow) not in taken]
    if last_chance and len(left_forth) == len(left_back) == 1:
        words = ("the only queue pairs left between the two hosts",)
        pairs.append(_oriented(left_forth[0], left_back[0], 0.3, words))
    return pairs


def _oriented(one: Flow, other: Flow, confidence: float, evidence: tuple[str, ...]) -> Pair:
    """The requester's flow first: it sends calls, and it never issues RDMA Reads or Writes."""
    if requester_score(one) >= requester_score(other):
        return Pair(one, other, confidence, evidence)
    return Pair(other, one, confidence, evidence)


def requester_score(flow: Flow) -> int:
    """Above zero for the flow of a requester, below for that of a responder."""
    seen = traits(flow)
    return seen.calls - seen.replies - (1 if seen.handles else 0)
