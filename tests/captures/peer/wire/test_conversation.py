"""Two endpoints over the in-memory wire: whatever they are set to and whatever they say, it arrives, by the book."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.strategies import DrawFn

from playbook.spoken import CLIENT, RBSIZ, SERVER, SIX, analyzed, broken, undecided
from rdmascope.captures.peer.endpoint import Call, Chunks, EndpointSettings, Role, RpcRdmaEndpoint, service, whole
from rdmascope.captures.peer.wire import Dialogue, IwarpLink, Path, Rocev2Link, Tape
from rdmascope.captures.peer.wire.network import EPOCH
from rdmascope.captures.peer.wire.script import Script, ScriptConnection, ScriptStep, calls_of, play_script
from rdmascope.dissect.layers.rpcrdma_codes import RDMA_MSG, RDMA_NOMSG, RDMA_OPTIONAL
from rdmascope.dissect.rpcrdma.reassembly import reassembled_call, reassembled_reply
from rdmascope.dissect.rpcrdma.transport_header import decode_header

SIZES = st.one_of(st.sampled_from([0, 1, 3, 4, 500, 1023, 1024, 4096, 8192]), st.integers(0, 20000))
KIB = st.sampled_from([1024, 2048, 4096, 8192])
MAYBE = st.sampled_from([None, True])
CHUNKS = st.builds(Chunks, MAYBE, MAYBE, MAYBE, MAYBE, st.integers(1, 4))
ENDS = st.builds(
    EndpointSettings,
    version=st.sampled_from([1, 2]),
    credits=st.integers(1, 4),
    backward_credits=st.integers(1, 3),
    announce=st.booleans(),
    send_size=KIB,
    receive_size=KIB,
    remote_invalidation=st.booleans(),
    extension=st.booleans(),
    receive_buffer=st.sampled_from([4096, 6000, 16384]),
    backward_support=st.sampled_from([1, 2]),
    on_request=st.sampled_from([{}, {RBSIZ: "pending"}, {RBSIZ: "reject"}]),
)
FORWARD = st.builds(
    ScriptStep,
    end=st.just(CLIENT),
    call=st.sampled_from(["null", "getattr", "read", "write", "readdirplus"]),
    count=st.integers(1, 5),
    size=SIZES,
    offset=st.integers(0, 999),
    chunks=CHUNKS,
    together=st.booleans(),
)
BACKWARD = st.builds(
    ScriptStep, end=st.just(SERVER), call=st.just("callback"), count=st.integers(1, 4), size=st.integers(0, 500),
    together=st.booleans(),
)  # fmt: skip
CHANGES = st.builds(ScriptStep, end=st.sampled_from([CLIENT, SERVER]), request=st.sampled_from([((RBSIZ, 8192),)]))
GROWTH = st.builds(ScriptStep, end=st.sampled_from([CLIENT, SERVER]), update=st.sampled_from([((RBSIZ, 20000),)]))
PATHS = st.sampled_from([Path(), SIX, Path(mtu=256), Path(mtu=4096)])
FORWARD_XID = 0x5C00_0000
PROPERTY = settings(suppress_health_check=list(HealthCheck))


@st.composite
def scripts(draw: DrawFn) -> Script:
    """Version, network, settings and steps of any kind; callbacks from when they were offered."""
    opening = (ScriptStep(CLIENT, "null", count=2), ScriptStep(CLIENT, "create_session"), ScriptStep(CLIENT, "null"))
    steps = draw(st.lists(st.one_of(FORWARD, FORWARD, BACKWARD, CHANGES, GROWTH), max_size=6))
    closing = (ScriptStep(CLIENT, "null"), ScriptStep(CLIENT, disconnect=draw(st.booleans())))
    setup = ScriptConnection(
        draw(st.sampled_from(["rocev2", "iwarp"])),
        draw(PATHS),
        draw(st.sampled_from([1, 2])),
        draw(st.booleans()),
        (draw(ENDS), draw(ENDS)),
        (None, None),
        (*opening, *steps, *closing),
    )
    return Script("", draw(st.integers(0, 99)), EPOCH, frozenset(), 0, (setup,))


@PROPERTY
@given(scripts())
def test_what_is_said_arrives_and_is_read_back_and_nobody_breaks_a_rule(script: Script) -> None:
    frames, (played,) = play_script(script)
    assert (played.failed, played.wrong, played.answered) == ([], [], played.calls)
    versions = [one.version for one in script.connections[0].settings]
    assert played.version == min(versions)
    _, auditor, rpcs = analyzed(frames)
    assert broken(auditor) == set()
    assert undecided(auditor) == set()
    seen: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    for rpc in rpcs:
        if rpc.state == "error":  # the first message, of a version that the server does not speak
            continue
        call, reply = reassembled_call(rpc), reassembled_reply(rpc)
        assert call is not None and reply is not None and call.complete and reply.complete
        assert (int(rpc.backward), rpc.xid) not in seen
        seen[int(rpc.backward), rpc.xid] = call.prefix, reply.prefix
    said = {(end, call.xid): whole(call.parts) for end, call in calls_of(script.connections[0])}
    assert seen == {key: (call, whole(service.serve(call))) for key, call in said.items()}


@settings(max_examples=10)
@given(st.sampled_from(["rocev2", "iwarp"]), st.lists(st.integers(0, 30000), min_size=1, max_size=3), st.integers(1, 3))
def test_long_callbacks_travel_in_chunks_where_the_client_serves_them(
    transport: str, sizes: list[int], segments: int
) -> None:
    callbacks = [ScriptStep(SERVER, "callback", size=size, chunks=Chunks(segments=segments)) for size in sizes]
    steps = (ScriptStep(CLIENT, "null"), ScriptStep(CLIENT, "create_session"), ScriptStep(CLIENT, "null"), *callbacks)
    ends = EndpointSettings(version=2, backward_support=2), EndpointSettings(version=2)
    setup = ScriptConnection(transport, Path(), 1, False, ends, (None, None), (*steps, ScriptStep(CLIENT, "null")))
    frames, (played,) = play_script(Script("", 0, EPOCH, frozenset(), 0, (setup,)))
    assert (played.failed, played.answered) == ([], played.calls)
    _, auditor, rpcs = analyzed(frames)
    assert (broken(auditor), undecided(auditor)) == (set(), set())
    asked = {rpc.xid: reassembled_call(rpc) for rpc in rpcs if rpc.backward}
    for end, call in calls_of(setup):
        if end == SERVER:
            seen = asked[call.xid]
            assert seen is not None and seen.prefix == whole(call.parts)


class Counted:
    """What one end may have outstanding, and has."""

    def __init__(self) -> None:
        self.outstanding: set[int] = set()
        self.limit = 1
        self.most = 0


def count(sends: Sequence[tuple[int, bytes]]) -> tuple[Counted, Counted]:
    """Calls of either end over the Sends of a connection; fails where one is sent without a credit."""
    counted = Counted(), Counted()
    asked = [0, 0]
    for sender, data in sends:
        header = decode_header(data, 0, len(data), len(data))
        if header.procedure not in (RDMA_MSG, RDMA_NOMSG, RDMA_OPTIONAL):
            continue
        backward = header.xid < FORWARD_XID
        if header.procedure != RDMA_OPTIONAL and sender != backward:
            counted[1 - sender].outstanding.remove(header.xid)
            counted[1 - sender].limit = min(asked[1 - sender], header.credits or 0)
        elif header.procedure != RDMA_OPTIONAL:
            asked[sender] = header.credits or 0
            counted[sender].outstanding.add(header.xid)
            counted[sender].most = max(counted[sender].most, len(counted[sender].outstanding))
            assert len(counted[sender].outstanding) <= counted[sender].limit
    return counted


@PROPERTY
@given(
    st.sampled_from([Rocev2Link, IwarpLink]), st.sampled_from([1, 2]), st.integers(1, 6), st.integers(1, 6),
    st.integers(1, 20), st.integers(1, 20),
)  # fmt: skip
def test_no_call_is_sent_without_a_credit(
    network: type[Rocev2Link | IwarpLink], version: int, asked: int, granted: int, forward: int, backward: int
) -> None:
    sends: list[tuple[int, bytes]] = []

    class Recording(network):  # type: ignore[misc,valid-type]
        def send(self, sender: int, data: bytes, invalidate: int | None = None) -> None:
            sends.append((sender, data))
            super().send(sender, data, invalidate)

    client = RpcRdmaEndpoint(Role.CLIENT, EndpointSettings(version=version, credits=asked, backward_credits=granted))
    server = RpcRdmaEndpoint(Role.SERVER, EndpointSettings(version=version, credits=granted, backward_credits=asked))
    conversation = Dialogue(client, server, Recording(Tape(), Path()))
    conversation.connect()
    conversation.call(0, Call(service.null(FORWARD_XID)))
    conversation.submit(0, *(Call(service.getattr_(FORWARD_XID + 1 + number)) for number in range(forward)))
    conversation.submit(1, *(Call(service.callback(1 + number)) for number in range(backward)))
    conversation.run()
    counted = count(sends)
    assert [one.outstanding for one in counted] == [set(), set()]
    limit = min(asked, granted)
    assert counted[0].most == min(limit, forward)
    assert counted[1].most <= limit
