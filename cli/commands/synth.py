"""``rdmascope synth``: captures that two endpoints play after a script."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rdmascope.captures.peer.shipped import read_script, shipped_scripts, write_capture
from rdmascope.captures.write.modes import PUBLIC
from rdmascope.captures.write.output import check_outputs, open_output
from rdmascope.dissect.records.schema import record, schema
from rdmascope.dissect.units import plural

from ..terminal import EXIT_FOUND, binary_output, complain, console, print_json, say, show

if TYPE_CHECKING:
    from rdmascope.captures.peer.wire.script import Played, Script


@click.command("synth")
@click.argument("script", required=False)
@click.option(
    "-o", "--output", metavar="OUT", type=click.Path(path_type=Path), help="File to write, - for standard output."
)
@click.option("--fault", metavar="NAME", help="A fault to be committed on the first connection, by name or rule.")
@click.option("--list", "as_list", is_flag=True, help="The scripts that come with rdmascope, and what each shows.")
@click.option("--faults", "as_faults", is_flag=True, help="The faults that an endpoint can commit.")
@click.option("--keys", "as_keys", is_flag=True, help="What a script can contain.")
@click.option("--print", "as_text", is_flag=True, help="Print the script, to base another one on.")
@click.option("--json", "as_json", is_flag=True, help=f"The same as {schema('synth')} objects, one a line.")
def command(
    script: str | None,
    output: Path | None,
    fault: str | None,
    as_list: bool,
    as_faults: bool,
    as_keys: bool,
    as_text: bool,
    as_json: bool,
) -> None:
    """Play a script and write a capture of it, to test tools that read such traffic.

    SCRIPT is the name of a script that comes with rdmascope, a file, or - for standard input.  Two endpoints, a client
    and a server, use RPC-over-RDMA version 1 or 2 over RoCEv2 or iWARP, and every frame is right to its last checksum.
    An endpoint can commit one fault, and 'rdmascope audit' then finds that and nothing else.  The same script gives
    the same file.

    A script is TOML: one or more [[connection]], each with its two ends and its steps, in order.

    \b
      seed = 1
      [[connection]]
      transport = "rocev2"                  # or "iwarp"
      [connection.client]
      address = "2001:db8::2"               # IPv4 or IPv6
      version = 2
      [connection.server]
      address = "2001:db8::1"
      version = 2
      receive_buffer = 8192
      fault = "xc-no-response"              # one of 'rdmascope synth --faults'
      [[connection.step]]
      call = "read"                         # or null, write, readdirplus, …
      size = 20000
      count = 3                             # at once, as far as credits go
      segments = 2
      [[connection.step]]
      request = { receive_buffer = 16384 }  # a change of the server
      [[connection.step]]
      disconnect = true

    'rdmascope synth --keys' lists all that it can contain; lose = ["4-9"] and snaplen = 128 make an imperfect capture.

    \b
    Example: does my tool notice that a server grants no credits?
      $ rdmascope synth --faults | grep V1-CREDIT-ZERO
      grant-nothing             The server grants no credit (V1-CREDIT-ZERO).
      $ rdmascope synth v1-chunks --fault grant-nothing -o wrong.pcapng
      wrong.pcapng: 115 frames, 1 connection, 8 of 8 calls answered
        connection 1: the server grants no credit (V1-CREDIT-ZERO)
      $ rdmascope audit wrong.pcapng
      wrong.pcapng: 8 RPCs on 1 connection: 1 violation of 1 rule (1 MUST)
      ...
    """
    chosen = sum((as_list, as_faults, as_keys))
    if chosen > 1 or (chosen and (script or output or fault)):
        raise click.UsageError("--list, --faults and --keys stand alone")
    if as_list:
        _list_scripts(as_json)
    elif as_faults:
        _list_faults(as_json)
    elif as_keys:
        _list_keys(as_json)
    elif script is None:
        raise click.UsageError("which script? 'rdmascope synth --list' shows those that ship")
    elif as_text:
        click.echo(read_script(script), nl=False)
    elif output is None:
        raise click.UsageError("where to? give -o FILE.pcapng")
    else:
        _play(script, output, fault, as_json)


def _play(name: str, output: Path, fault: str | None, as_json: bool) -> None:
    from rdmascope.captures.peer.wire.script import ScriptError, captured, parse_script, play_script, with_fault

    try:
        script = parse_script(read_script(name))
    except ScriptError as error:
        raise ScriptError(f"{name}: {error}") from None
    if fault is not None:
        script = with_fault(script, fault)
    to_stdout = str(output) == "-"
    check_outputs([output], (name,))
    frames, played = play_script(script)
    kept = captured(script, frames)
    with nullcontext(binary_output()) if to_stdout else open_output(output, (name,), PUBLIC) as target:
        write_capture(target, kept, script.snaplen)
    calls, answered = sum(play.calls for play in played), sum(play.answered for play in played)
    if as_json and not to_stdout:
        print_json(
            record(
                "synth",
                script=name,
                output=str(output),
                frames=len(kept),
                sent=len(frames),
                connections=[
                    {
                        "connection": number,
                        "version": play.version,
                        "calls": play.calls,
                        "answered": play.answered,
                        "wrong": play.wrong,
                        "failed": [{"xid": failure.xid, "reason": failure.reason} for failure in play.failed],
                        "faults_committed": play.committed,
                    }
                    for number, play in enumerate(played, 1)
                ],
            )
        )
    else:
        parts = [
            plural(len(kept), "frame"),
            plural(len(played), "connection"),
            f"{answered} of {calls} calls answered",
        ]
        say(f"{output}: {', '.join(parts)}", to_stdout)
        for line in _remarks(script, played):
            say(f"  {line}", to_stdout)
    idle = _idle(script, played)
    for line in idle:
        complain(line)
    if idle:
        sys.exit(EXIT_FOUND)


def _remarks(script: Script, played: list[Played]) -> Iterator[str]:
    """What was not by the book, and what came of it."""
    for number, (setup, play) in enumerate(zip(script.connections, played, strict=True), 1):
        for fault, times in zip(setup.faults, play.committed, strict=True):
            if fault is not None and times:
                against = f" ({fault.rule})" if fault.rule else ""
                yield f"connection {number}: the {fault.by.name.lower()} {fault.says}{against}"
        for failure in play.failed:
            yield f"connection {number}: call 0x{failure.xid:08x} failed: {failure.reason}"
        for xid in play.wrong:
            yield f"connection {number}: call 0x{xid:08x} was answered otherwise than it should be"


def _idle(script: Script, played: list[Played]) -> list[str]:
    """Faults that no message gave an occasion for."""
    return [
        f"connection {number}: nothing in the script lets the {fault.by.name.lower()} commit its fault ({fault.says})"
        for number, (setup, play) in enumerate(zip(script.connections, played, strict=True), 1)
        for fault, times in zip(setup.faults, play.committed, strict=True)
        if fault is not None and not times
    ]


def _list_scripts(as_json: bool) -> None:
    titles = {name: str(tomllib.loads(text)["title"]) for name, text in shipped_scripts().items()}
    if as_json:
        for name, title in titles.items():
            print_json(record("script", name=name, title=title))
    else:
        _show([*titles.items()])


def _list_faults(as_json: bool) -> None:
    from rdmascope.captures.peer.faults import FAULTS

    if as_json:
        for name, fault in FAULTS.items():
            print_json(
                record("fault", name=name, by=fault.by.name.lower(), rule=fault.rule or None, description=fault.says,
                       occasion=fault.cause or None, version=fault.version or None)
            )  # fmt: skip
    else:
        rows = [
            (name, f"The {fault.by.name.lower()} {fault.says}{f' ({fault.rule})' if fault.rule else ''}.")
            for name, fault in FAULTS.items()
        ]
        _show(rows)


def _list_keys(as_json: bool) -> None:
    from rdmascope.captures.peer.wire.script import CONNECTION, END, STEP, TOP

    places = {
        "at the top": TOP,
        "[[connection]]": CONNECTION,
        "[connection.client], [connection.server]": END,
        "[[connection.step]]": STEP,
    }
    for table, keys in places.items():
        helps = {name: f"{key.help} {' | '.join(map(str, key.values))}".strip() for name, key in keys.items()}
        if as_json:
            for name, help in helps.items():
                print_json(record("synth_key", table=table, key=name, help=help))
        else:
            click.echo(table)
            _show([(f"  {name}", help) for name, help in helps.items()])


def _show(rows: list[tuple[str, str]]) -> None:
    from ..views.tables import facts

    show(console(), facts(rows, gap=2, indent=0))
