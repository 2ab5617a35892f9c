"""The ``rdmascope`` command: finds the subcommand, and turns every failure into one line."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import click

from .terminal import (
    EXIT_BAD_INPUT,
    EXIT_CLOSED,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_SIGNAL,
    complain,
    settle_streams,
)

COMMANDS = {
    "demo": "A recorded capture, to try the commands on.",
    "help": "The pages of the documentation.",
    "info": "A capture file at a glance: format, interfaces, time span, drops, truncation, protocols.",
    "report": "Summary of a capture: connections, procedures, latencies, payloads, the slowest RPCs.",
    "diagnose": "What is wrong, the worst first: causes with their evidence, cost, and what to look at next.",
    "rpcs": "One line per RPC, with filters and sorting.",
    "show": "One RPC or one frame in full.",
    "browse": "Walk through a capture on the terminal: lists, trees, packets, bytes, what is wrong.",
    "live": "RPCs, latencies and findings on an interface or RDMA device, as they happen.",
    "record": "What records the kernel's own traces, where no capture is possible.",
    "packets": "One line per RDMA packet, as tshark lists them.",
    "transport": "Health of the transport: losses, retransmissions, congestion, and the RPCs they delayed.",
    "files": "The files that were read and written, and their contents.",
    "audit": "Check both ends against the specifications: each violation, by whom, and where.",
    "sessions": "NFSv4 clients, sessions and slots, delegations, leases: what clients wait for.",
    "compare": "Two captures: of the same traffic at two points, or of two runs.",
    "batch": "Many captures of many hosts, each analysed once, into one data set.",
    "sql": "SQL over the tables of a capture: RPCs, operations, chunks, packets, findings, files.",
    "rules": "The rules of the audit and the detectors of diagnose; one of them in full.",
    "export": "Write RPCs: as ONC RPC over TCP, also into Wireshark, as a capture of their frames, or as tables.",
    "extcap": "NFS over RDMA as an interface of Wireshark's and tshark's.",
    "synth": "Make a capture of two endpoints that follow a script, correctly or with one fault.",
    "probe": "Test a server: what it agrees to, how fast it answers, whether it conforms.",
    "verify": "Compare with Wireshark, and explain where the two differ.",
}
"""Each is a module of the same name, imported when it is run: ``--help`` must not wait for NumPy."""


HIDDEN = ("extcap",)
"""What Wireshark runs, not people."""
TSHARK_OPTIONS = {"-r": True, "-Y": True, "-w": True, "-t": True, "-c": True, "-V": False, "-n": False}
"""What is understood without a command, and whether a value follows."""


def _end_in_order() -> list[int]:
    """SIGTERM and SIGHUP, where they are not ignored, end the command as Ctrl-C does: temporary files are removed.

    The list will hold the number of the signal that came: DuckDB makes an error of its own of what a handler raises.
    """
    came: list[int] = []

    def end(number: int, _: FrameType | None) -> NoReturn:
        came.append(number)
        sys.exit(EXIT_SIGNAL + number)

    def unraisable(lost: sys.UnraisableHookArgs) -> None:
        """What a handler raises within the callback of a weak reference goes nowhere: the signal comes once more."""
        if lost.exc_type in (KeyboardInterrupt, SystemExit):
            number = came[-1] if lost.exc_type is SystemExit and came else signal.SIGINT
            import threading

            # Later, and in the main thread: within this hook it would be lost again.
            threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, number)).start()
        else:
            sys.__unraisablehook__(lost)

    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = unraisable
    with suppress(ValueError):  # Only the main thread may.
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, end)
    return came


def _as_for_tshark(args: list[str]) -> list[str]:
    """The arguments of ``packets``, where they begin with an option of tshark's and name a file with -r."""
    if not args or (args[0] not in TSHARK_OPTIONS and args[0][:2] != "-r"):
        return args
    files: list[str] = []
    others: list[str] = []
    given = iter(args)
    for argument in given:
        if argument == "-r":
            files += [next(given, "")]
        elif argument[:2] == "-r":
            files.append(argument[2:])
        else:
            others.append(argument)
            if TSHARK_OPTIONS.get(argument):
                others += [value for value in [next(given, None)] if value is not None]
    if not files or "" in files:
        raise click.UsageError("-r takes a FILE; then -Y FILTER, -w OUT, -t FORMAT, -c N, -V and -n are understood")
    return ["packets", *others, "--", *files]


def _plugins_of(args: list[str]) -> tuple[list[str], list[str]]:
    """The other arguments, and the files of --plugin: commands take their options from what plug-ins bring."""
    others: list[str] = []
    files: list[str] = []
    given = iter(args)
    for argument in given:
        if argument == "--":
            return [*others, argument, *given], files
        if argument == "--plugin":
            files.append(next(given, ""))
        elif argument.startswith("--plugin="):
            files.append(argument.removeprefix("--plugin="))
        else:
            others.append(argument)
    if "" in files:
        raise click.UsageError("--plugin takes a FILE")
    return others, files


def _installed_plugins() -> bool:
    """Whether a package has an entry point for us: the files are looked at, as to parse them would take longer."""
    for folder in sys.path:
        with suppress(OSError):
            for entry in os.scandir(folder or "."):
                if entry.name.endswith(".dist-info"):
                    with suppress(OSError), open(f"{entry.path}/entry_points.txt", encoding="utf-8") as file:
                        if "[rdmascope." in file.read():
                            return True
    return False


def _load_plugins(files: list[str]) -> None:
    """Load the plug-ins that are named and those that are installed."""
    if not files and "RDMASCOPE_PLUGINS" not in os.environ and not _installed_plugins():
        return
    from rdmascope.captures.plugins import load_plugins
    from rdmascope.dissect import plugged

    plugged.report.append(complain)
    load_plugins(files)


class ClosedOutputError(Exception):
    """The reader of the output went away."""


class Commands(click.Group):
    """A group that imports a subcommand when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # NumPy's matrix library would start threads; there is no matrix product here.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        name = f"{__package__}.commands.{cmd_name}"
        loaded = name in sys.modules
        gc.disable()  # Imports make no garbage, and looking for it takes a tenth of them.
        command: click.Command = import_module(name).command
        if not loaded:
            gc.freeze()  # Nor will what they made become any.
            atexit.register(_before_exit)
        gc.enable()
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, words in COMMANDS.items() if name not in HIDDEN])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What is typed as for tshark, -r FILE somewhere and no command, lists packets; --plugin may stand anywhere."""
        args, files = _plugins_of(args)
        _load_plugins(files)
        return super().parse_args(ctx, _as_for_tshark(args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and (args[0] == "-" or "://" in args[0] or os.path.exists(args[0])):
            args = ["report", *args]  # A file of a command's name is given as ./NAME.
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches  # Only here: every start would pay for it.

            if not args[0].replace("-", "").isalnum():
                raise click.UsageError(f"{args[0]}: no such file, and no command")
            near = get_close_matches(args[0], COMMANDS, 2, 0.6)
            hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command {args[0]!r}; {hint}")
        resolved = super().resolve_command(ctx, args)
        if ctx.obj is not None:
            ctx.obj()
        return resolved

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        click would end with 1 where the output is closed, as if something was found, and say an empty line by Ctrl-C.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise ClosedOutputError from None
        except KeyboardInterrupt:
            raise click.Abort from None
        except EOFError as error:  # Which click takes for Ctrl-D at a prompt of its own.
            raise RuntimeError(f"EOFError: {error}") from error

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run; with ``standalone_mode`` end the process with a status, never with a traceback."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        settle_streams()
        signals = _end_in_order()
        try:
            status = super().main(args, prog_name or "rdmascope", complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except (BrokenPipeError, ClosedOutputError):
            # The reader of the output closed it; Python would complain once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(EXIT_CLOSED)
        except (KeyboardInterrupt, click.Abort):
            complain("interrupted")
            sys.exit(EXIT_INTERRUPTED)
        except click.UsageError as error:
            hint = f" (try '{error.ctx.command_path} --help')" if error.ctx else ""
            complain(error.format_message() + hint)
            sys.exit(EXIT_BAD_INPUT)
        except click.ClickException as error:
            complain(error.format_message())
            sys.exit(EXIT_BAD_INPUT)
        except Exception as error:
            from rdmascope.captures.errors import EXTRAS, not_installed, words_of
            from rdmascope.dissect.audit.rule import UnknownRule

            if signals:
                sys.exit(EXIT_SIGNAL + signals[0])
            if isinstance(error, RuntimeError) and str(error) == "Query interrupted":
                complain("interrupted")
                sys.exit(EXIT_INTERRUPTED)
            if isinstance(error, ModuleNotFoundError) and (library := str(error.name).partition(".")[0]) in EXTRAS:
                complain(not_installed(library))
                sys.exit(EXIT_BAD_INPUT)
            words = str(error) if isinstance(error, UnknownRule) else words_of(error)
            if words is not None:
                complain(words)
                sys.exit(EXIT_BAD_INPUT)
            # A fault of this program.  With RDMASCOPE_TRACEBACK set, its traceback is shown.
            if os.environ.get("RDMASCOPE_TRACEBACK"):
                raise
            complain(f"internal error, please report it: {type(error).__name__}: {error}")
            sys.exit(EXIT_INTERNAL)
        sys.exit(status if isinstance(status, int) else 0)


def _before_exit() -> None:
    if "duckdb" in sys.modules:  # Which complains about what is left of it.
        gc.unfreeze()
    else:
        gc.freeze()  # The interpreter would look through all that is left once more.


def _print_manual(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and isinstance(ctx.command, click.Group):
        from .manual import manual

        click.echo(manual(ctx.command, ctx), nl=False)
        ctx.exit()


@click.command(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rdmascope", message="%(prog)s %(version)s")
@click.option(
    "--man", is_flag=True, expose_value=False, callback=_print_manual, help="Print the manual page, for 'man -l -'."
)
@click.option(
    "--plugin", metavar="FILE", multiple=True, expose_value=False, help="Load a plug-in: 'rdmascope help plugins'."
)
@click.pass_context
def main(ctx: click.Context) -> None:
    """See the RPCs inside RDMA: NFS over RoCE, InfiniBand and iWARP, reassembled, timed and named.

    rdmascope FILE alone is rdmascope report FILE; a file of a command's name is given as ./NAME. rdmascope -r FILE
    lists packets, and takes -Y, -w, -t, -c, -V and -n as tshark does.

    \b
    Example: what does this capture hold, what was slow, and why?
      $ rdmascope report nfs.pcap
      $ rdmascope rpcs nfs.pcap --slower-than 10ms --sort latency
      $ rdmascope show nfs.pcap --rpc 118
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def program(when_loaded: Callable[[], None]) -> None:
    """``main`` as a process, which ends without giving back one by one all objects that it has.

    ``when_loaded`` is called when the command is, and before it runs.
    """
    ended: list[int] = []
    atexit.register(_leave, ended)  # Before all that commands register: it comes behind that.
    try:
        main(obj=when_loaded)
    except SystemExit as end:
        if isinstance(end.code, int):
            ended.append(end.code)
        raise


def _leave(ended: list[int]) -> None:
    """``ended``: the status, where there is one."""
    if not ended or "duckdb" in sys.modules:
        return
    try:
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (OSError, ValueError):
        return  # The interpreter says so.
    os._exit(ended[0])
