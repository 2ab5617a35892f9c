"""``rdmascope extcap``: NFS over RDMA as an interface of Wireshark's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import click

from rdmascope.captures import CaptureError
from rdmascope.captures.live import CaptureSettings
from rdmascope.captures.tables.condition import Condition
from rdmascope.captures.wireshark.extcap import (
    FILE,
    device_of,
    install,
    interface_lines,
    link_type_lines,
    open_pipe,
    option_lines,
    personal_folder,
)

from ..reading import analyzer_options, stoppable
from ..terminal import EXIT_BAD_INPUT, complain, say


@click.command("extcap")
@click.option("--install", "installs", is_flag=True, help="Make Wireshark list NFS over RDMA, for this user.")
@click.option("--extcap-interfaces", "list_interfaces", is_flag=True, help="List the interfaces.")
@click.option("--extcap-interface", "interface", metavar="NAME", help="The interface that is meant.")
@click.option("--extcap-dlts", "list_link_types", is_flag=True, help="List its link types.")
@click.option("--extcap-config", "list_options", is_flag=True, help="List its options.")
@click.option("--extcap-capture-filter", "filter", metavar="SQL", help="The same as --where.")
@click.option("--extcap-version", hidden=True)
@click.option("--capture", is_flag=True, help="Capture, until Wireshark closes the pipe.")
@click.option("--fifo", metavar="PIPE", help="The pipe that takes the packets.")
@click.option("--file", metavar="FILE", help=f"The capture that {FILE} replays.")
@click.option("--device", metavar="DEVICE", help="The network interface of nfs-rdma-interface.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="Another service port besides 20049.")
@click.option("--where", metavar="SQL", help="Filter: only RPCs that match, such as 'latency > 10ms'.")
def command(
    installs: bool,
    list_interfaces: bool,
    interface: str | None,
    list_link_types: bool,
    list_options: bool,
    filter: str | None,
    extcap_version: str | None,
    capture: bool,
    fifo: str | None,
    file: str | None,
    device: str | None,
    port: int | None,
    where: str | None,
) -> None:
    """NFS over RDMA as an interface of Wireshark's and tshark's.

    Wireshark runs this command itself (the extcap protocol), once it is installed:

    \b
      $ rdmascope extcap --install
      ...: Wireshark and tshark now list NFS over RDMA
      $ tshark -D | grep RDMA
      ... nfs-rdma-interface (NFS over RDMA: a network interface)
      ... nfs-rdma-file (NFS over RDMA: a capture file)

    For each RDMA device there is an interface, such as nfs-rdma-rxe0. It shows NFS over TCP: every RPC as soon as it is
    complete, reconstructed from RDMA, with the comments of "rdmascope export". The gear beside an interface has its
    options: the network interface, the service port, and a filter, a condition in SQL as for --where. Capturing needs
    the same privilege as "rdmascope live". To undo it, remove the file that --install names.

    tshark takes the options as preferences:

    \b
      $ tshark -i nfs-rdma-file -o extcap.nfs_rdma_file.file:nfs.pcap
      $ tshark -i nfs-rdma-rxe0 -Y 'nfs.opcode == 25'
    """
    if installs:
        say(f"{install(personal_folder())}: Wireshark and tshark now list NFS over RDMA")
        return
    if list_interfaces:
        lines = [*interface_lines(version("rdmascope"))]
    elif interface is None:
        raise click.UsageError("--install, or what Wireshark asks with", click.get_current_context())
    elif list_link_types:
        lines = [*link_type_lines()]
    elif list_options:
        lines = [*option_lines(interface)]
    elif capture:
        _capture(interface, fifo, file, device, port, tuple(part for part in (where, filter) if part))
        return
    else:
        lines = _judge(filter)
    for line in lines:
        say(line)


def _capture(
    interface: str, fifo: str | None, file: str | None, device: str | None, port: int | None, filters: tuple[str, ...]
) -> None:
    from rdmascope.captures.live.session import Ending
    from rdmascope.captures.wireshark.tcp_feed import feed, replay

    context = click.get_current_context()
    if fifo is None:
        raise click.UsageError("--capture takes --fifo PIPE", context)
    ending = Ending()
    options = analyzer_options(() if port is None else (port,), None)
    # The pipe first of all: Wireshark would wait for it for ever.
    with open_pipe(fifo) as pipe, stoppable(ending), _condition(filters) as condition:
        if interface == FILE:
            if not file:
                raise click.ClickException(f"{FILE} takes a file; for tshark: -o extcap.nfs_rdma_file.file:FILE")
            replay((file,), options, pipe, condition, lambda: ending.why)
            return
        settings = CaptureSettings(tuple(sorted(options.ports)))
        session = feed(device_of(interface, device), settings, options, pipe, condition, ending, complain)
    if session.damage is not None:
        complain(str(session.damage))
        context.exit(EXIT_BAD_INPUT)


@contextmanager
def _condition(filters: tuple[str, ...]) -> Iterator[Condition | None]:
    """Raises CaptureError for one that cannot be judged."""
    if not filters:
        yield None
        return

    condition = Condition(filters)
    try:
        yield condition
    finally:
        condition.close()


def _judge(filter: str | None) -> list[str]:
    """What Wireshark shows of a filter that is being typed: nothing where it can be used."""
    if filter:
        try:
            with _condition((filter,)):
                return []
        except CaptureError as error:
            return [str(error)]
    return []
