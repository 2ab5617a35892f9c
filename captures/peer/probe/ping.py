"""Examines a server: what it agrees to, how fast it answers, and which programs it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from rdmascope.dissect.layers.oncrpc_codes import PROG_MISMATCH, PROG_UNAVAIL, SUCCESS
from rdmascope.dissect.layers.private_data_codes import PrivateData, find_private_data
from rdmascope.dissect.layers.rpcrdma_codes import ERR_VERS
from rdmascope.dissect.onc.rpc_header import NFS, ReplyHeader, reply_header
from rdmascope.dissect.percentiles import Distribution, Samples

from ..endpoint import Answered, Call, Chunks, EndpointSettings, Failed, service
from ..endpoint.nouns import Value
from ..verbs.interface import Depths, PeerAddress, Verbs, VerbsError
from .serve import Client, echo

NO_SUCH_VERSION = 0xFFFFFFFF
"""Of a program: asks for the range of versions that there are (RFC 5531, 9)."""
_REPLY_ROOM = 512
"""Bytes of a reply beside the data."""
MAX_VERSIONS = 8
"""Versions of a program that are tried."""


@dataclass(frozen=True, slots=True)
class PingPlan:
    """What to ask.  Times are in nanoseconds."""

    count: int = 5
    interval: int = 1_000_000_000
    timeout: int = 5_000_000_000
    programs: tuple[int, ...] = (NFS,)
    program: int = NFS
    """Of the NULL calls that are timed."""
    version: int = 3
    echo: int = 0
    """Bytes to send there and back through the echo program, and to read, in each round besides."""
    highest: int = 1
    """Version that is spoken at most."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The connection stands, and the first call was answered."""

    device: str
    local: str
    connect_time: int
    private_data: bytes
    announced: PrivateData | None
    to_server: int
    """Inline threshold in force."""
    to_client: int
    depths: Depths
    requested: int
    granted: int | None
    """None: no message granted credits."""
    problem: str = ""
    """Why the first call got no reply."""


@dataclass(frozen=True, slots=True)
class Round:
    """One NULL call, and how long its reply took."""

    number: int
    time: int | None
    """From the call's Send to the reply's Receive; None where there was none."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Echoed:
    """Bulk data that was echoed by another ``rdmascope probe --serve``."""

    number: int
    size: int
    there_and_back: int | None
    """Nanoseconds of a call with so many bytes in both directions; None where it failed."""
    read: int | None
    """Nanoseconds of a READ of so many bytes."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class VersionTwoProbe:
    """The result of trying version 2 on a connection of its own."""

    version: int | None
    """That was settled on; None: none was."""
    supported: tuple[int, int] | None
    """The range that an RDMA_ERR_VERS gave."""
    extended: bool
    """The peer knows the transport characteristics."""
    characteristics: dict[int, Value]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """What is known of an RPC program."""

    number: int
    versions: tuple[int, ...]
    """That answered NULL."""
    low: int | None
    high: int | None
    """From PROG_MISMATCH."""
    status: str
    """'answers', 'not there', or why nothing is known."""


PingResult = Reached | Round | Echoed | VersionTwoProbe | Program


def ping(devices: Verbs, target: PeerAddress, plan: PingPlan) -> Iterator[PingResult]:
    """Examine the server, and yield each result as it is known; raises VerbsError where it cannot connect at first."""
    xids = iter(range(Random(devices.now()).randrange(1, 1 << 31), 1 << 32))
    client = Client(devices, target, EndpointSettings(version=plan.highest), devices.now() + plan.timeout)
    try:
        first = client.call(_null(next(xids), plan.program, plan.version), devices.now() + plan.timeout)
        yield _reached(client, first)
        for number in range(1, plan.count + 1):
            started = devices.now()
            try:
                client = _connected(client, target, plan)
            except VerbsError as error:
                yield Round(number, None, str(error))
            else:
                called = devices.now()
                answer = client.call(_null(next(xids), plan.program, plan.version), called + plan.timeout)
                yield _round(number, answer, devices.now() - called)
                if plan.echo:
                    yield _echo(client, number, plan, xids)
            if number < plan.count:
                client.idle(started + plan.interval)
        version_two = _speak(devices, target, plan, next(xids))
        if version_two.version is None and version_two.supported is None:
            version_two = _speak(devices, target, plan, next(xids))  # one lost message proves nothing
        yield version_two
        for program in plan.programs:
            try:
                client = _connected(client, target, plan)
            except VerbsError as error:
                yield Program(program, (), None, None, str(error))
            else:
                yield _program(client, program, xids, plan.timeout)
    finally:
        client.close()


def _connected(client: Client, target: PeerAddress, plan: PingPlan) -> Client:
    """The client, or where it is gone another; raises VerbsError where that cannot connect."""
    if not client.gone:
        return client
    client.close()
    return Client(client.devices, target, EndpointSettings(version=plan.highest), client.devices.now() + plan.timeout)


def _null(xid: int, program: int, version: int) -> Call:
    return Call(service.null(xid, program, version))


def _reached(client: Client, first: Answered | Failed) -> Reached:
    link, endpoint = client.link, client.endpoint
    announcements = find_private_data(link.private_data)
    return Reached(
        link.device,
        link.local,
        client.connect_time,
        link.private_data,
        announcements[0] if announcements else None,
        endpoint.send_limit,
        endpoint.receive_limit,
        link.depths,
        endpoint.settings.credits,
        client.driver.granted,
        _problem(first),
    )


def _round(number: int, answer: Answered | Failed, time: int) -> Round:
    return Round(number, None if isinstance(answer, Failed) else time, _problem(answer))


def _echo(client: Client, number: int, plan: PingPlan, xids: Iterator[int]) -> Echoed:
    """Through a position-zero Read chunk and a Reply chunk; the READ through a Write chunk."""
    devices = client.devices
    data = service.pattern(number, plan.echo)
    room = plan.echo + _REPLY_ROOM
    there = Call(echo(next(xids), data), largest_reply=room, chunks=Chunks(read=False))
    back = Call(service.read(next(xids), number, plan.echo), results=(plan.echo,))
    times: list[int] = []
    for call in (there, back):
        started = devices.now()
        answer = client.call(call, started + plan.timeout)
        if problem := _problem(answer):
            return Echoed(number, plan.echo, times[0] if times else None, None, problem)
        times.append(devices.now() - started)
        if isinstance(answer, Answered) and data not in answer.message:
            return Echoed(number, plan.echo, times[0], None, "different bytes were returned")
    return Echoed(number, plan.echo, times[0], times[1])


def _speak(devices: Verbs, target: PeerAddress, plan: PingPlan, xid: int) -> VersionTwoProbe:
    """Version 2, and version 1 where it is refused."""
    try:
        client = Client(devices, target, EndpointSettings(version=2), devices.now() + plan.timeout)
    except VerbsError as error:
        return VersionTwoProbe(None, None, False, {}, str(error))
    try:
        answer = client.call(_null(xid, plan.program, plan.version), devices.now() + plan.timeout)
        refused = [header for header in client.driver.refusals if header.error == ERR_VERS]
        characteristics = client.endpoint.characteristics
        return VersionTwoProbe(
            client.endpoint.version if isinstance(answer, Answered) else None,
            refused[0].supported if refused else None,
            characteristics.known,
            dict(characteristics.peer) if characteristics.known else {},
            answer.reason if isinstance(answer, Failed) else "",
        )
    finally:
        client.close()


def _program(client: Client, number: int, xids: Iterator[int], timeout: int) -> Program:
    def ask(version: int) -> ReplyHeader | str:
        answer = client.call(_null(next(xids), number, version), client.devices.now() + timeout)
        if isinstance(answer, Failed):
            return answer.reason
        return reply_header(answer.message, 0, len(answer.message)) or "the answer is no RPC reply"

    probed = ask(NO_SUCH_VERSION)
    if isinstance(probed, str):
        return Program(number, (), None, None, probed)
    if probed.accept_status == PROG_UNAVAIL:
        return Program(number, (), None, None, "not there")
    if probed.accept_status != PROG_MISMATCH or probed.low is None or probed.high is None:
        return Program(number, (), None, None, f"an absurd version drew {probed.error}, not PROG_MISMATCH")
    answered = []
    for version in range(probed.low, min(probed.high, probed.low + MAX_VERSIONS - 1) + 1):
        reply = ask(version)
        if isinstance(reply, ReplyHeader) and reply.accept_status == SUCCESS:
            answered.append(version)
    return Program(number, tuple(answered), probed.low, probed.high, "answers" if answered else "no version answers")


def _problem(answer: Answered | Failed) -> str:
    """'' for a reply that succeeded."""
    if isinstance(answer, Failed):
        return answer.reason
    reply = reply_header(answer.message, 0, len(answer.message))
    if reply is None:
        return "the answer is no RPC reply"
    return "" if reply.accept_status == SUCCESS else reply.error


def times(rounds: Sequence[Round]) -> Distribution | None:
    """Latencies of the rounds that were answered; None where none was."""
    samples = Samples()
    for echoed in rounds:
        if echoed.time is not None:
            samples.append(echoed.time)
    return samples.distribution()
