"""What a name stands for, by a made-up /sys/class/infiniband."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from rdmascope.captures import CaptureError
from rdmascope.captures.live import CaptureSettings, Device, find_device, open_live
from rdmascope.captures.live.device import trouble_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="live capture is Linux's")


def lay(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_an_interface(tmp_path: Path) -> None:
    device = find_device("lo", tmp_path)
    assert (device.kind, device.interface, device.ethernet, device.loopback) == ("interface", "lo", True, True)
    assert device.index == socket.if_nametoindex("lo")
    assert str(device) == "lo"


def test_all_interfaces(tmp_path: Path) -> None:
    device = find_device("any", tmp_path)
    assert (device.interface, device.index, device.ethernet) == ("any", 0, False)


def test_rxe_names_its_interface(tmp_path: Path) -> None:
    device = find_device("soft7", lay(tmp_path, {"soft7/parent": "lo\n"}))
    assert (device.kind, device.interface, str(device)) == ("rxe", "lo", "soft7 (lo)")


def test_siw_is_listed_beside_its_gid(tmp_path: Path) -> None:
    device = find_device("siw0", lay(tmp_path, {"siw0/ports/1/gid_attrs/ndevs/0": "lo\n"}))
    assert (device.kind, device.interface) == ("siw", "lo")


def test_siw_without_a_known_interface(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="siw0: its network interface is not known; name that"):
        find_device("siw0", lay(tmp_path, {"siw0/ports/1/gids/0": "0000:0000:0000:0000:0000:0000:0000:0000\n"}))


def adapter(folder: Path, driver: str) -> Path:
    place = lay(folder, {"rocep1s0/hca_type": "MT4119\n", "rocep1s0/device/net/lo/x": ""})
    (folder / driver).mkdir()
    (place / "rocep1s0/device/driver").symlink_to(folder / driver)
    return place


def test_mlx5_is_sniffed(tmp_path: Path) -> None:
    device = find_device("rocep1s0", adapter(tmp_path, "mlx5_core"))
    assert (device.kind, device.interface) == ("adapter", "")


def test_its_interface_shows_no_rdma_and_says_so(tmp_path: Path) -> None:
    device = find_device("lo", adapter(tmp_path, "mlx5_core"))
    assert device.note == "what the adapter rocep1s0 sends by RDMA passes lo by; see: rdmascope live rocep1s0"


def test_other_adapters_cannot_be_watched(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"\(cxgb4\) passes the kernel by .* at a mirror port"):
        find_device("rocep1s0", adapter(tmp_path, "cxgb4"))


@pytest.mark.parametrize(
    "name, remedy",
    [("rxe3", "rdma link add rxe3 type rxe netdev"), ("siw1", "rdma link add siw1 type siw netdev"),
     ("eth77", "rdma link add rxe0 type rxe netdev")],
)  # fmt: skip
def test_no_such_device(tmp_path: Path, name: str, remedy: str) -> None:
    with pytest.raises(CaptureError, match=f"{name}: no such device; there are .*lo.*{remedy}"):
        find_device(name, tmp_path)


@pytest.mark.parametrize("name", ["../net", "a/b", "", "x" * 100])
def test_names_that_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(CaptureError, match="no such device"):
        find_device(name, tmp_path)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_no_permission(own: bool, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise PermissionError

    monkeypatch.setattr(socket, "socket", refuse)
    python = tmp_path / "an environment" / "python3"
    python.parent.mkdir()
    monkeypatch.setattr(sys, "executable", str(python))
    python.touch() if own else python.symlink_to("/usr/bin/env")
    monkeypatch.setattr(sys, "prefix", str(python.parent))
    monkeypatch.setattr("rdmascope.captures.live.ring.which", lambda tool, path: "/a/path" if there else None)
    with pytest.raises(CaptureError) as refused:
        open_live("any", CaptureSettings((20049,)))
    tool = (
        f"once: sudo setcap cap_net_raw+ep '{python}'" if own else "sudo tcpdump -i any -s 0 -U -w - | rdmascope live -"
    )
    package = "libcap2-bin" if own else "tcpdump"
    assert str(refused.value).startswith("any: no permission to capture; run it as root, or ")
    assert tool in str(refused.value)
    assert (f"(after: apt install {package})" in str(refused.value)) is not there


def test_trouble_with_a_device(tmp_path: Path) -> None:
    lo = Device("lo", "interface", "lo")
    assert trouble_of(lo, tmp_path) == trouble_of(Device("any", "interface", "any"), tmp_path) == ""
    rxe = Device("rxe0", "rxe", "lo")
    assert "removed" in trouble_of(rxe, tmp_path)
    (tmp_path / "rxe0").mkdir()
    assert trouble_of(rxe, tmp_path) == ""
    assert "is gone" in trouble_of(Device("none0", "interface", "none0"), tmp_path)
    assert "removed" in trouble_of(Device("mlx5_0", "adapter"), tmp_path)
