"""The second opinion: what was compared, and where the two differ, kind by kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.text import Text

from rdmascope.dissect.units import count, duration, plural
from rdmascope.dissect.verify.frame_fields import PRESENCE, Values
from rdmascope.dissect.verify.second_opinion import Comparison, ComparisonTally, Difference

from .tables import Cell, Grid, counted, indented, more

DECIMAL = frozenset(
    {
        "frame.number", "rpc.reqframe", "rpc.repframe", "rpc.program", "rpc.programversion", "rpc.procedure",
        "rpcordma.version", "rpcordma.flow_control", "rpcordma.msg_type", "rpcordma.reads_count",
        "rpcordma.writes_count", "rpcordma.reply_count", "rpcordma.position", "rpcordma.segment_count",
        "rpcordma.rdma_length", "rpcordma.errcode", "rpcordma.vers_low", "rpcordma.vers_high",
        "infiniband.bth.psn", "infiniband.bth.padcnt", "infiniband.bth.a", "infiniband.bth.se",
        "infiniband.bth.m", "infiniband.bth.tver", "infiniband.reth.dmalen", "infiniband.aeth.msn",
    }
)  # fmt: skip
"""Fields that are shown as decimal numbers; the others, but for times, as hexadecimal ones."""

MAX_VALUES = 4
MAX_WORDS = 6

Kind = tuple[str, str, str]
"""Who is right, why, and where to read about it."""


@dataclass(slots=True)
class Kinds:
    """Differences, sorted by who is right and why."""

    limit: int
    """How many of each kind are kept; 0 is all."""
    kept: dict[Kind, list[Difference]] = field(default_factory=dict)
    counts: dict[Kind, int] = field(default_factory=dict)

    def add(self, difference: Difference) -> bool:
        """Whether it was kept."""
        kind = difference.right, difference.reason, difference.reference
        kept = self.kept.setdefault(kind, [])
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if self.limit and len(kept) >= self.limit:
            return False
        kept.append(difference)
        return True

    def undecided(self) -> list[Difference]:
        """The kept differences that are not explained."""
        return [difference for kept in self.kept.values() for difference in kept if not difference.explained]

    def ordered(self) -> list[Kind]:
        """What is not explained first, then the commonest."""
        return sorted(self.kept, key=lambda kind: (self.kept[kind][0].explained, -self.counts[kind], kind))


def verification(
    file: str, tshark: str, comparison: Comparison, kinds: Kinds, words: Mapping[int, Sequence[str]]
) -> RenderableType:
    """All of it.  ``words`` are Wireshark's own about single frames."""
    explained = sum(number for kind, number in kinds.counts.items() if kinds.kept[kind][0].explained)
    open_ = sum(kinds.counts.values()) - explained
    if open_:
        verdict = Text(f"{plural(open_, 'difference')} without explanation", "red")
    elif explained:
        verdict = Text(f"they agree, {plural(explained, 'difference')} explained", "green")
    else:
        verdict = Text("they agree", "green")
    parts: list[RenderableType] = [
        Text.assemble((file, "bold"), f" beside {tshark}"),
        verdict,
        Text(),
        Grid([""], ["compared", "equal", "explained", "unexplained"], list(_rows(comparison.tallies))),
    ]
    if comparison.names:
        text = f"of calls and replies, {plural(len(comparison.names), 'field')} that Wireshark names"
        parts.append(indented(Text(text, "dim")))
    for kind in kinds.ordered():
        parts += [Text(), *_kind(kind, kinds.kept[kind], kinds.counts[kind], words)]
    return Group(*parts)


def _rows(tallies: Mapping[str, ComparisonTally]) -> Iterator[list[Cell]]:
    for what, tally in tallies.items():
        several = "replies" if what == "reply" else f"{what}s"
        numbers = (tally.compared, tally.equal, tally.explained, tally.unexplained)
        yield [several, *map(counted, numbers)]


def _kind(
    kind: Kind, kept: Sequence[Difference], number: int, words: Mapping[int, Sequence[str]]
) -> Iterator[RenderableType]:
    right, reason, reference = kind
    times = f" ({count(number)})" if number > 1 else ""
    if reason:
        lead = "Both are right" if right == "both" else f"{right} is right"
        yield Text.assemble((lead, "bold"), f": {reason}{times}")
        yield indented(Text(f"see {reference}", "dim"))
    else:
        yield Text(f"Undecided{times}", "bold red")
    rows: list[list[Cell]] = [
        [
            str(difference.frame),
            difference.what,
            difference.field,
            values_shown(difference.field, difference.ours),
            values_shown(difference.field, difference.theirs),
        ]
        for difference in kept
    ]
    yield Grid(["frame", "what", "field", "rdmascope", "Wireshark"], [], rows, flexible=4)
    yield from more(number - len(kept), " (--limit 0 lists all)")
    if not reason:
        for frame in sorted({difference.frame for difference in kept} & words.keys()):
            for line in words[frame][:MAX_WORDS]:
                yield indented(Text(f"frame {frame} in Wireshark's words: {line}", "dim"))


def values_shown(name: str, values: Values | None) -> str:
    """'107', '0x00000c7f', '8.91 ms', '-' for nothing; of a long list the beginning."""
    if values is None:
        return "-"
    if name == "rpc.time":
        shown = [duration(value) for value in values]
    elif name in DECIMAL:
        shown = [str(value) for value in values]
    else:
        shown = [f"0x{value:08x}" if value > 0xFFFF else f"0x{value:x}" for value in values]
    if name in PRESENCE:
        return "present" if name == "packet" else f"present, XID {shown[0]}"
    return " ".join(shown[:MAX_VALUES]) + (" …" if len(shown) > MAX_VALUES else "")
