"""Data servers of pNFS: named by GETDEVICEINFO, or known by the file handles of layouts."""

from __future__ import annotations

import pytest

from playbook import Wire, nfs3, nfs4, reply
from playbook.capture import Capture, frame_batches
from playbook.nfs4_client import Client, stateid
from playbook.rpcrdma import call
from playbook.xdr_encode import done, op
from rdmascope.captures.peer.rpc import encoded
from rdmascope.dissect.measure.data_servers import BY_ADDRESS, BY_HANDLES, DataServers
from rdmascope.dissect.onc.shapes.layouts import TYPES
from rdmascope.dissect.rpcrdma.analyzer import Analyzer
from rdmascope.dissect.rpcrdma.conversation import DataServerRole
from rdmascope.dissect.rpcrdma.rpc_table import RpcTable

MDS, DS, OTHER = "10.0.0.1", "10.0.0.7", "10.0.0.8"
FILES, FLEX_FILES = 1, 4
DEVICE = bytes(range(16))
DS_HANDLE = b"handle on the data server"


def read_through(wire: Wire, counts: bool = True, cuts: tuple[int, ...] = ()) -> tuple[DataServers, Analyzer]:
    servers = DataServers(counts)
    analyzer = Analyzer()
    for batch in frame_batches(Capture(wire).frames, cuts):
        servers.learn(analyzer.feed_table(analyzer.decoder.take(batch)), lambda: analyzer.conversations)
    servers.learn(RpcTable(analyzer.finish()), lambda: analyzer.conversations)
    servers.mark(analyzer.conversations)
    return servers, analyzer


def pnfs(wire: Wire) -> DataServers:
    return read_through(wire)[0]


def roles(wire: Wire, cuts: tuple[int, ...] = ()) -> list[DataServerRole | None]:
    """Of the connections, as a pass that counts nothing finds them."""
    return [one.data_server for one in read_through(wire, False, cuts)[1].conversations]


def device(kind: int, address: str = f"{DS}.78.81", network: bytes = b"rdma") -> bytes:
    place = {"na_r_netid": network, "na_r_addr": address.encode()}
    if kind == FILES:
        return encoded(
            TYPES["nfsv4_1_file_layout_ds_addr4"], {"nflda_stripe_indices": [0], "nflda_multipath_ds_list": [[place]]}
        )
    return encoded(TYPES["ff_device_addr4"], {"ffda_netaddrs": [place], "ffda_versions": [{"ffdv_version": 3}]})


def layout(kind: int) -> bytes:
    if kind == FILES:
        return encoded(TYPES["nfsv4_1_file_layout4"], {"nfl_deviceid": DEVICE, "nfl_fh_list": [DS_HANDLE]})
    one = {"ffds_deviceid": DEVICE, "ffds_fh_vers": [DS_HANDLE]}
    return encoded(TYPES["ff_layout4"], {"ffl_mirrors": [{"ffm_data_servers": [one]}]})


def ask_for_layout(one: Client, kind: int, named: bool = True) -> None:
    content = {"loc_type": kind, "loc_body": layout(kind)}
    granted = done("LAYOUTGET", logr_stateid=stateid(4), logr_layout=[{"lo_iomode": 1, "lo_content": content}])
    one.ask(op("LAYOUTGET", loga_layout_type=kind, loga_iomode=1), granted)
    if named:
        address = {"da_layout_type": kind, "da_addr_body": device(kind)}
        asked = op("GETDEVICEINFO", gdia_device_id=DEVICE, gdia_layout_type=kind)
        one.answered(one.sent(asked), done("GETDEVICEINFO", gdir_device_addr=address))


def read(one: Client, handle: bytes) -> None:
    exchange = one.sent(nfs4.putfh(handle), nfs4.read(0, 12))
    one.answered(exchange, nfs4.putfh_done(), nfs4.read_done(b"twelve bytes"))


@pytest.mark.parametrize("kind", [FILES, FLEX_FILES])
@pytest.mark.parametrize("named", [True, False])
def test_a_connection_to_a_data_server(kind: int, named: bool) -> None:
    wire = Wire()
    metadata = Client(wire.connect(server=MDS))
    metadata.begin()
    ask_for_layout(metadata, kind, named)
    read(metadata, nfs4.FH)
    data = Client(wire.connect(server=DS), b"session of a ds.")
    data.exchange_id(flags=0x40000)
    data.create_session()
    read(data, DS_HANDLE)
    found = pnfs(wire)
    if named:
        server = found.servers[DS, 20049]
        assert (server.metadata_server, dict.fromkeys(["rdma"]), [*server.devices]) == (MDS, server.networks, [DEVICE])
        assert server.frame > 0
    (number, (traffic, by)) = next(iter(found.connections().items()))
    assert (len(found.connections()), number, traffic.calls, traffic.in_layout) == (1, 2, 1, 1)
    assert by is (found.servers[DS, 20049] if named else None)
    assert found.traffic[1].calls == 1
    frame = found.servers[DS, 20049].frame if named else next(iter(found.handles.values())).frame
    role = DataServerRole(BY_ADDRESS if named else BY_HANDLES, MDS, frame)
    for cuts in ((), (12,), (14, 22, 26)):
        assert roles(wire, cuts) == [None, role]
    live, analyzer = read_through(wire, counts=False)
    assert [*live.roles] == [2]
    live.evict(analyzer.conversations)
    assert not live.roles


@pytest.mark.parametrize("network", [b"tcp", b"tcp6"])
def test_an_address_for_another_transport(network: bytes) -> None:
    wire = Wire()
    metadata = Client(wire.connect(server=MDS))
    metadata.begin()
    address = {"da_layout_type": FILES, "da_addr_body": device(FILES, network=network)}
    metadata.ask(op("GETDEVICEINFO", gdia_device_id=DEVICE), done("GETDEVICEINFO", gdir_device_addr=address))
    Client(wire.connect(server=DS), b"session of a ds.").begin()
    assert [*pnfs(wire).servers] == [(DS, 20049)]
    assert roles(wire) == [None, None]


def test_a_connection_that_was_there_before_its_server_was_named() -> None:
    wire = Wire()
    data = Client(wire.connect(server=DS), b"session of a ds.")
    data.begin()
    metadata = Client(wire.connect(server=MDS))
    metadata.begin()
    ask_for_layout(metadata, FILES)
    first, second = roles(wire)
    assert (first.by if first else "", second) == (BY_ADDRESS, None)


def test_a_file_handle_before_a_layout_has_it() -> None:
    wire = Wire()
    data = Client(wire.connect(server=DS), b"session of a ds.")
    data.begin()
    read(data, DS_HANDLE)
    metadata = Client(wire.connect(server=MDS))
    metadata.begin()
    ask_for_layout(metadata, FILES, named=False)
    assert roles(wire) == [None, None]
    assert pnfs(wire).connections() == {}


def test_a_data_server_of_version_3() -> None:
    wire = Wire()
    metadata = Client(wire.connect(server=MDS))
    metadata.begin()
    ask_for_layout(metadata, FLEX_FILES, named=False)
    for server, handle in ((DS, DS_HANDLE), (OTHER, b"of another file")):
        reply(call(wire.connect(server=server), nfs3.read(0, 12, handle)), nfs3.read_reply(b"twelve bytes"))
    assert [(number, traffic.server) for number, (traffic, _) in pnfs(wire).connections().items()] == [(2, DS)]
