"""Every pair of a state and an input is in the tables, and nothing that comes from the wire stops an endpoint."""

from __future__ import annotations

from itertools import product
from typing import get_args

from hypothesis import given, strategies as st

from rdmascope.captures.peer.endpoint import (
    Completed,
    Connected,
    ConnectionEnded,
    Disconnect,
    EndpointSettings,
    Event,
    Registered,
    Release,
    Released,
    Role,
    RpcRdmaEndpoint,
    Send,
    SendReceived,
    encode_header,
    service,
    whole,
)
from rdmascope.captures.peer.endpoint.nouns import STAGES, TRANSITIONS, Input, Stage, State, choose
from rdmascope.dissect.layers.rpcrdma_codes import RDMA_ERROR
from rdmascope.dissect.rpcrdma.messages import ReadChunk, Segment, TransportHeader, WriteChunk
from rdmascope.dissect.rpcrdma.transport_header import decode_header

WORDS = st.integers(0, (1 << 32) - 1)
SEGMENTS = st.builds(Segment, WORDS, WORDS, st.integers(0, (1 << 64) - 1))
SOME = st.lists(SEGMENTS, min_size=1, max_size=3).map(tuple)
ENDPOINTS = st.builds(
    RpcRdmaEndpoint,
    st.sampled_from(Role),
    st.builds(EndpointSettings, version=st.sampled_from([1, 2]), extension=st.booleans()),
)


@st.composite
def headers(draw: st.DrawFn) -> TransportHeader:
    version = draw(st.sampled_from([1, 2]))
    procedure = draw(st.sampled_from([0, 1, 4, 5] if version == 2 else [0, 1, 4]))
    header = TransportHeader(draw(WORDS), version, draw(WORDS), procedure)
    if procedure == RDMA_ERROR:
        header.error = draw(st.integers(1, version + 1))
        header.supported = draw(st.tuples(WORDS, WORDS)) if header.error == 1 else None
        return header
    header.direction = draw(st.integers(0, 1)) if version == 2 else None
    if procedure == 5:
        header.option, header.optinfo = draw(WORDS), draw(st.binary(max_size=40))
        return header
    positions = draw(st.lists(WORDS, max_size=3, unique=True))
    header.reads = tuple(ReadChunk(position, draw(SOME)) for position in positions)
    header.writes = tuple(WriteChunk(segments) for segments in draw(st.lists(SOME, max_size=2)))
    header.reply = draw(st.none() | st.builds(WriteChunk, SOME))
    return header


FIELDS = (
    "xid", "version", "credits", "procedure", "reads", "writes", "reply", "error", "supported", "direction", "option",
    "optinfo",
)  # fmt: skip


@given(headers())
def test_a_header_is_decoded_as_it_was_built(header: TransportHeader) -> None:
    data = encode_header(header)
    found = decode_header(data, 0, len(data), len(data))
    assert found.problem == "" and found.length == len(data)
    assert {name: getattr(found, name) for name in FIELDS} == {name: getattr(header, name) for name in FIELDS}


def test_every_input_is_foreseen_in_every_state() -> None:
    assert set(TRANSITIONS) == set(product(State, Input))
    assert set(STAGES) == set(product(Stage, get_args(Event)))


@given(st.lists(st.sampled_from(Input)))
def test_what_is_settled_stays_settled(inputs: list[Input]) -> None:
    state = State.FRESH
    for one in inputs:
        following = TRANSITIONS[state, one]
        assert following is state or state not in (State.SETTLED, State.HOPELESS)
        state = following


@given(st.integers(1, 5), st.integers(1, 5), st.tuples(st.integers(0, 6), st.integers(0, 6)))
def test_the_version_chosen_is_the_highest_of_both(lowest: int, highest: int, supported: tuple[int, int]) -> None:
    common = set(range(lowest, highest + 1)) & set(range(supported[0], supported[1] + 1))
    assert choose(lowest, highest, supported) == max(common, default=None)


EVENTS = st.one_of(
    st.builds(Connected, st.binary(max_size=16)),
    st.builds(SendReceived, st.binary(max_size=120), st.none() | WORDS),
    st.builds(SendReceived, headers().map(encode_header)),
    st.builds(SendReceived, headers().map(lambda one: encode_header(one) + whole(service.null(one.xid)))),
    st.builds(Registered, st.integers(1, 9), WORDS, WORDS),
    st.builds(Released, st.integers(1, 9), st.binary(max_size=9)),
    st.builds(Completed, st.integers(1, 9), st.binary(max_size=9)),
    st.just(ConnectionEnded("gone")),
)


@given(ENDPOINTS, st.lists(EVENTS, max_size=8))
def test_nothing_that_happens_stops_an_endpoint(endpoint: RpcRdmaEndpoint, events: list[Event]) -> None:
    for event in events:
        before = endpoint.stage
        outputs = endpoint.take(event)
        if STAGES[before, type(event)] is None:
            assert outputs == [] and endpoint.stage is before


@given(ENDPOINTS, st.lists(EVENTS, max_size=8))
def test_an_error_is_never_answered_by_an_error(endpoint: RpcRdmaEndpoint, events: list[Event]) -> None:
    endpoint.take(Connected(b""))
    for event in events:
        refuses = isinstance(event, SendReceived) and event.data[12:16] == b"\0\0\0\4"
        for output in endpoint.take(event):
            if refuses and isinstance(output, Send):
                assert output.data[12:16] != b"\0\0\0\4"


def test_a_client_gives_up_where_there_is_no_common_version() -> None:
    endpoint = RpcRdmaEndpoint(Role.CLIENT, EndpointSettings(version=2, lowest=2))
    (first,) = (one for one in endpoint.take(Connected(b"")) if isinstance(one, Send))
    xid = int.from_bytes(first.data[:4])
    refusal = TransportHeader(xid, 2, 1, RDMA_ERROR, error=1, supported=(1, 1))
    assert any(isinstance(one, Disconnect) for one in endpoint.take(SendReceived(encode_header(refusal))))
    assert not any(isinstance(one, Release) for one in endpoint.take(ConnectionEnded()))
