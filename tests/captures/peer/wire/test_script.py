"""Scripts: what they say, what they may not say, and those that ship."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from playbook.spoken import CLIENT, RBSIZ, REQREMINV, SERVER, analyzed, broken, undecided
from rdmascope.captures.peer.endpoint import Chunks
from rdmascope.captures.peer.faults import FAULTS
from rdmascope.captures.peer.shipped import shipped_scripts
from rdmascope.captures.peer.wire.script import ScriptError, ScriptStep, parse_script, play_script, with_fault

WHOLE = """
title = "All of it"
seed = 9
start = 1700000000
lose = [3, "5-7"]
snaplen = 96

[[connection]]
transport = "iwarp"
mtu = 1460
port = 20050
mpa_revision = 2
markers = true

[connection.client]
address = "2001:db8::7"
version = 2
lowest = 2
credits = 5
private_data = false
backward_support = "general"
unchanging = ["receive_buffer"]

[connection.server]
address = "2001:db8::8"
version = 2
remote_invalidation = true
on_request = "pending"
fault = "xc-no-response"

[[connection.step]]
call = "read"
size = 100
room = 200
with = ["write"]
without = ["reply"]
segments = 2
count = 3
pause = "250us"

[[connection.step]]
call = "callback"
together = true

[[connection.step]]
from = "server"
request = { receive_buffer = 8192, remote_invalidation = true }

[[connection.step]]
disconnect = true
"""


def test_a_script_is_described() -> None:
    script = parse_script(WHOLE)
    assert (script.title, script.seed, script.start) == ("All of it", 9, 1_700_000_000_000_000_000)
    assert (sorted(script.lose), script.snaplen) == ([3, 5, 6, 7], 96)
    (setup,) = script.connections
    assert (setup.transport, setup.path.hosts, setup.path.port) == ("iwarp", ("2001:db8::7", "2001:db8::8"), 20050)
    assert (setup.path.mtu, setup.mpa_revision, setup.markers) == (1460, 2, True)
    client, server = setup.settings
    assert (client.version, client.lowest, client.credits, client.announce) == (2, 2, 5, False)
    assert (client.backward_support, list(client.unchanging), server.remote_invalidation) == (2, [RBSIZ], True)
    assert server.on_request[RBSIZ] == "pending"
    assert setup.faults == (None, FAULTS["xc-no-response"])
    wishes = Chunks(write=True, reply=False, segments=2)
    assert setup.steps == (
        ScriptStep(CLIENT, "read", 3, 100, 0, 200, wishes, pause=250_000),
        ScriptStep(SERVER, "callback", size=64, room=4096, together=True),
        ScriptStep(SERVER, request=((RBSIZ, 8192), (REQREMINV, True)), room=4096),
        ScriptStep(CLIENT, room=4096, disconnect=True),
    )


WRONG = {
    "": "no [[connection]]",
    "seed = ": "no TOML",
    "sede = 1\n[[connection]]": "no key 'sede'; is it seed?",
    "seed = true\n[[connection]]": "seed is True, not a number",
    "seed = -1\n[[connection]]": "seed is -1, not in 0 to",
    "connection = [1]": "write [[connection]]",
    'lose = ["3-"]\n[[connection]]': "neither a frame number nor a stretch",
    '[[connection]]\ntransport = "ib"': "transport is 'ib', not one of rocev2, iwarp",
    "[[connection]]\nmtu = 1000": "connection 1: mtu is 1000",
    '[[connection]]\ntransport = "iwarp"\nmtu = 100': "mtu is 100",
    '[[connection]]\n[connection.client]\naddress = "here"': "'here' does not appear to be an IPv4 or IPv6 address",
    '[[connection]]\n[connection.client]\naddress = "::1"': "one address is IPv4, the other IPv6",
    "[[connection]]\n[connection.server]\nversion = 3": "connection 1, server: version is 3",
    "[[connection]]\n[connection.server]\nlowest = 2": "lowest is 2, and version 1",
    "[[connection]]\n[connection.server]\ncredits = 0": "credits is 0",
    "[[connection]]\n[connection.server]\nsend_size = 1500": "no multiple of 1024",
    "[[connection]]\n[connection.server]\nreceive_buffer = 100": "4096 is the least",
    '[[connection]]\n[connection.server]\nunchanging = ["all"]': "'all' is none of receive_buffer",
    '[[connection]]\n[connection.server]\nfault = "grant-nothin"': "no fault 'grant-nothin'; is it grant-nothing?",
    '[[connection]]\n[connection.client]\nfault = "grant-nothing"': "is one of the server",
    "[[connection]]\n[[connection.step]]": "connection 1, step 1: nothing in it",
    '[[connection]]\n[[connection.step]]\ncall = "null"\ndisconnect = true': "call and disconnect in it",
    '[[connection]]\n[[connection.step]]\ncall = "null"\nfrom = "server"': "a null comes from the client",
    '[[connection]]\n[[connection.step]]\ncall = "null"\nwith = ["all"]': "'all' is none of the chunks",
    '[[connection]]\n[[connection.step]]\ncall = "null"\npause = "1h"': "'1h' is no duration",
    '[[connection]]\n[[connection.step]]\ncall = "read"\nsize = 2000000': "size is 2000000, not in 0 to 1048576",
    "[[connection]]\n" + 300 * '[[connection.step]]\ncall = "read"\nsize = 1000000\n': "at most 268435456",
    "[[connection]]\n" + 10001 * '[[connection.step]]\ncall = "null"\n': "10001 steps, at most 10000",
    "[[connection]]\n[[connection.step]]\nrequest = { receive_buffer = true }": "receive_buffer is True",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_with_a_script_is_said_with_its_place(text: str) -> None:
    with pytest.raises(ScriptError, match=re.escape(WRONG[text])) as raised:
        parse_script(text)
    assert "\n" not in str(raised.value)


@given(st.integers(0, len(WHOLE) - 1), st.text("\"'=[]{}\n0-a ", max_size=3))
def test_a_spoiled_script_is_refused_or_read(at: int, more: str) -> None:
    try:
        parse_script(WHOLE[:at] + more + WHOLE[at + 1 :])
    except ScriptError as error:
        assert str(error)


BY_THE_BOOK = [name for name in shipped_scripts() if name != "faults"]


@pytest.mark.parametrize("name", BY_THE_BOOK)
def test_what_ships_is_by_the_book(name: str) -> None:
    script = parse_script(shipped_scripts()[name])
    assert script.title
    frames, played = play_script(script)
    assert all(one.answered == one.calls and not one.failed for one in played)
    _, auditor, _ = analyzed(frames)
    assert (broken(auditor), undecided(auditor)) == (set(), set())


def test_the_script_of_faults_breaks_the_rules_of_its_faults() -> None:
    script = parse_script(shipped_scripts()["faults"])
    named = [fault for setup in script.connections for fault in setup.faults if fault]
    _, auditor, _ = analyzed(play_script(script)[0])
    assert broken(auditor) == {fault.rule for fault in named}


def test_a_fault_brings_along_what_gives_the_occasion() -> None:
    script = with_fault(parse_script("[[connection]]"), "garbage-accepted")
    assert script.connections[0].faults == (FAULTS["short-arguments"], FAULTS["garbage-accepted"])
    with pytest.raises(ScriptError, match="no fault"):
        with_fault(script, "anything")


def test_a_connection_without_steps_is_still_made() -> None:
    frames, (played,) = play_script(parse_script("[[connection]]"))
    assert len(frames) == 3 and played.calls == 0


@pytest.mark.parametrize("extension", ["true", "false"])
def test_a_first_call_of_version_2_is_never_longer_than_1024_bytes(extension: str) -> None:
    """Whatever chunks the script forbids: what does not fit before the version is settled travels in a chunk."""
    ends = f"[connection.client]\nversion = 2\nextension = {extension}\n[connection.server]\nversion = 2\n"
    step = '[[connection.step]]\ncall = "write"\nsize = 3000\nwithout = ["read", "zero"]\n'
    frames, (played,) = play_script(parse_script(f"[[connection]]\n{ends}{step}"))
    assert played.answered == played.calls == 1
    assert broken(analyzed(frames)[1]) == set()
