"""Characteristics in force against a simple model, over conversations of any announcements, wishes and updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings, strategies as st

from playbook import Capture, Wire, nfs3
from playbook.capture import frame_batches
from playbook.rpcrdma import announce, call, reply, respond, update, wish
from playbook.wire import Connection as Talk
from rdmascope.dissect.layers.characteristics_codes import CHARACTERISTICS, interpret
from rdmascope.dissect.rpcrdma.analyzer import Analyzer

Value = tuple[int, int | bytes]
VALUES = st.one_of(
    st.tuples(st.just(1), st.integers(0, 2**32 - 1)),
    st.tuples(st.just(2), st.integers(0, 2)),
    st.tuples(st.just(3), st.integers(0, 3)),
    st.tuples(st.sampled_from([1, 2, 3, 9, 4294967040]), st.binary(max_size=9)),
)
SEVERAL = st.lists(VALUES, max_size=4)
ENDS = st.integers(0, 1)


@dataclass
class Model:
    """What holds, by endpoint and characteristic."""

    talk: Talk
    values: dict[tuple[int, int], int | bool | None] = field(default_factory=dict)
    xid: int = 100
    history: list[tuple[int, dict[tuple[int, int], int | bool | None]]] = field(default_factory=list)
    """The number of an operation, and what held before it."""

    def say(self, end: int, values: Sequence[Value]) -> None:
        for which, value in values:
            data = value if isinstance(value, bytes) else value.to_bytes(4)
            self.values[end, which] = interpret(which, data).value

    def note(self, operation: int) -> None:
        self.history.append((operation, dict(self.values)))

    def act(self, draw: st.DrawFn) -> None:
        self.xid += 1
        end = draw(ENDS)
        match draw(st.sampled_from(["announce", "wish", "update", "ping"])):
            case "announce":
                values = draw(SEVERAL)
                self.note(announce(self.talk, end, *values, nochange=[0] if values else [], xid=self.xid).number)
                self.say(end, values)
            case "wish":
                values = draw(SEVERAL)
                self.note(wish(self.talk, 1 - end, *values, xid=self.xid).number)
                fates = [draw(st.sampled_from("drp")) for _ in values]
                done, rejected, pending = ([at for at, fate in enumerate(fates) if fate == one] for one in "drp")
                if draw(st.integers(0, 4)):
                    self.note(respond(self.talk, end, done, rejected, pending, xid=self.xid).number)
                    self.say(end, [values[at] for at in done])
            case "update":
                which, value = draw(VALUES)
                self.note(update(self.talk, end, which, value, clear=draw(st.booleans()), xid=self.xid).number)
                self.say(end, [(which, value)])
            case "ping":
                reply(call(self.talk, nfs3.null(), xid=self.xid), nfs3.null_reply())


@st.composite
def dialogues(draw: st.DrawFn) -> tuple[Wire, Model]:
    wire = Wire()
    wire.version = 2
    model = Model(wire.connect())
    reply(call(model.talk, nfs3.null(), xid=1), nfs3.null_reply())
    for _ in range(draw(st.integers(1, 12))):
        model.act(draw)
    return wire, model


@settings(suppress_health_check=list(HealthCheck))
@given(dialogues())
def test_what_is_in_force_is_what_was_last_said(dialogue: tuple[Wire, Model]) -> None:
    wire, model = dialogue
    analyzer = Analyzer()
    for batch in frame_batches(Capture(wire).frames, ()):
        analyzer.feed(batch)
    analyzer.finish()
    (conversation,) = analyzer.conversations
    frames = {packet.operation: frame for frame, packet in reversed(list(enumerate(wire.packets, 1)))}
    moments = [(frames[operation], values) for operation, values in model.history]
    for frame, values in [*moments, (None, model.values)]:
        for end in (0, 1):
            for which, kind in CHARACTERISTICS.items():
                known = conversation.in_force(which, end, frame)
                assert known.value == values.get((end, which), kind.default), (frame, end, which)
                announced = (end, which) in values
                assert announced == known.source.startswith("ROPT_"), known
