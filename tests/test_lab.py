"""What of the lab can be tried without booting it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab import __main__ as runner, build, guests
from lab.scenarios import reactions
from lab.wire import delayed

SCRIPTS = sorted(path for folder in ("guest", "recipe", "scenarios") for path in (build.LAB / folder).glob("*.sh"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_well_formed(path: Path) -> None:
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", runner.SCENARIOS)
def test_a_scenario_says_what_it_is_and_has_something_to_play(name: str) -> None:
    module = runner.module(name)
    assert (module.__doc__ or "").splitlines()[0].endswith(".")
    assert callable(module.judge)
    assert (build.LAB / "scenarios" / f"{name}.client.sh").exists()
    assert set(getattr(module, "SMOKE", ())) <= set(getattr(module, "TRANSPORTS", guests.TRANSPORTS))


def test_no_script_without_a_scenario() -> None:
    assert {path.name.split(".")[0] for path in (build.LAB / "scenarios").glob("*.sh")} <= set(runner.SCENARIOS)


def test_the_page_about_the_probe_has_the_faults_that_linux_is_shown() -> None:
    script = (build.LAB / "scenarios" / "reactions.client.sh").read_text()
    shown = script.partition("faults='")[2].partition("'")[0].split()
    assert shown[0] == "none"
    assert list(reactions.documented("NFSv3 rxe 6.1")) == shown[1:]
    assert reactions.documented("NFSv4.1 rxe 6.1")["half-written"] == {"**wrong data**"}
    for known in reactions.documented("of no run").values():
        assert known and known <= {
            *("goes on", "connects again", "**wrong data**", "**wrong data**, connects again"),
            *("an error", "the mount fails", "hangs", "no occasion"),
        }


def test_the_smoke_set_mounts_over_both_transports_and_probes() -> None:
    chosen = set(runner.chosen((), None, smoke=True))
    assert chosen >= {("mount", "rxe"), ("mount", "siw")}
    assert "probe" in {name for name, _ in chosen}


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the recipe, and little else."""
    copied = tmp_path / "tests" / "lab" / "recipe"
    shutil.copytree(build.RECIPE, copied)
    shutil.copy(build.ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "main.py").write_text("")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "RECIPE", copied)
    monkeypatch.setattr(build, "WORK", tmp_path / "work")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ("tests/lab/recipe/rootfs.sh", {"rootfs", "disk", "disk-6.12"}),
        (
            "tests/lab/recipe/kernel.sh",
            {"kernel", "initramfs", "disk", "kernel-6.12", "initramfs-6.12", "disk-6.12"},
        ),
        ("tests/lab/recipe/disk.sh", {"disk", "disk-6.12"}),
        ("tests/lab/recipe/project.sh", {"project"}),
        ("cli/main.py", {"project"}),
    ],
)
def test_a_change_makes_only_what_is_made_from_it(recipe: Path, changed: str, again: set[str]) -> None:
    before = build.keys()
    with (recipe / changed).open("a") as file:
        file.write("# changed\n")
    after = build.keys()
    assert {name for name in before if before[name] != after[name]} == again


def test_what_was_made_is_not_made_again(recipe: Path) -> None:
    assert build.stale(build.KERNELS) == build.keys()
    for name, key in build.keys().items():
        (build.WORK / name).mkdir(parents=True)
        (build.WORK / name / "key").write_text(key)
    assert build.stale() == {}
    (build.WORK / "disk" / "key").write_text("of another recipe")
    (build.WORK / "disk-6.12" / "key").write_text("of another recipe")
    assert build.stale().keys() == {"disk"}
    assert build.stale(["6.12"]).keys() == {"disk-6.12"}


def test_a_scenario_is_played_with_each_kernel_that_it_names() -> None:
    assert runner.kernels("nfs", {}, smoke=False) == [{}, {"client": "6.12"}, {"server": "6.12"}]
    assert runner.kernels("mount", {}, smoke=False) == runner.kernels("nfs", {}, smoke=True) == [{}]
    assert runner.kernels("nfs", {"server": "6.12"}, smoke=True) == [{"server": "6.12"}]
    assert runner.run_name("nfs", "rxe", {"client": "6.12"}) == "nfs-rxe-client-6.12"
    assert runner.wanted_kernels({"client": "6.12"}) == {"6.1", "6.12"}


def test_a_guest_boots_the_kernel_that_is_asked_for(tmp_path: Path) -> None:
    words = guests.command(tmp_path, tmp_path, tmp_path, "server", "rxe", kernel="6.12")
    assert str(tmp_path / "kernel-6.12" / "vmlinuz") in words
    assert any(f"file={tmp_path / 'disk-6.12' / 'root.ext4'}," in word for word in words)
    assert str(tmp_path / "kernel" / "vmlinuz") in guests.command(tmp_path, tmp_path, tmp_path, "server", "rxe")


def test_a_recipe_that_fails_leaves_what_was_there(recipe: Path) -> None:
    (build.WORK / "kernel").mkdir(parents=True)
    (recipe / "tests/lab/recipe/kernel.sh").write_text("echo no such thing >&2; false")
    with pytest.raises(build.Broken, match=r"(?s)kernel\.sh failed.*no such thing"):
        build.make(build.Part("kernel"), "key")
    assert (build.WORK / "kernel").exists()


@pytest.mark.parametrize(
    ("target", "replacement", "reason"),
    [
        ("os.geteuid", lambda: 1000, "not root"),
        ("platform.machine", lambda: "aarch64", "this machine is aarch64"),
        ("platform.freedesktop_os_release", lambda: {"VERSION_CODENAME": "noble"}, "not Debian 12"),
        ("shutil.which", lambda name: None, "not Debian 12"),
        ("WORK", Path("/a clone"), "blanks in its name: /a clone"),
    ],
)
def test_where_it_cannot_run_it_says_so_in_one_line(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, target: str, replacement: object, reason: str
) -> None:
    monkeypatch.setattr(f"lab.build.{target}", replacement)
    result = CliRunner().invoke(runner.main, ["--smoke"])
    assert result.exit_code == 0
    (line,) = result.output.splitlines()
    assert line.startswith("lab: skipped, it cannot run here:") and reason in line


def test_guests_that_hang_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "command", lambda *_: ["sleep", "1000"])
    outcome = guests.play(tmp_path, tmp_path, "none", "rxe", deadline=0.5)
    assert outcome.problem is not None and outcome.problem.endswith("still running: server and client")


def test_a_guest_that_breaks_down_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def boot(parts: Path, folder: Path, wire: Path, role: str, *_: object) -> list[str]:
        return ["true"] if role == "server" else ["sleep", "1000"]

    monkeypatch.setattr(guests, "command", boot)
    outcome = guests.play(tmp_path, tmp_path, "none", "rxe", deadline=600)
    assert outcome.problem == "the server did not come up or broke down, still running: client"


def test_facts_are_read_by_their_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "command", lambda *_: ["true"])
    for role in ("server", "client"):
        (tmp_path / f"{role}.status").write_text("0\n")
        (tmp_path / f"{role}.facts").write_text(f"md5 /{role}\tabc\ncounter {role} sent\t3\n")
    outcome = guests.play(tmp_path, tmp_path, "none", "rxe", deadline=60)
    assert outcome.problem is None
    assert outcome.those("md5") == {"/server": "abc", "/client": "abc"}
    assert outcome.facts["counter", "client", "sent"] == "3"


def test_a_wire_that_takes_its_time(tmp_path: Path) -> None:
    ends = {role: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for role in ("client", "server")}
    for role, end in ends.items():
        end.bind(str(tmp_path / role))
        end.settimeout(60)
    with delayed(tmp_path, 0.05):
        begun = time.monotonic()
        for frame in (b"first", b"second"):
            ends["client"].sendto(frame, str(tmp_path / "to-server"))
        ends["server"].sendto(b"answer", str(tmp_path / "to-client"))
        assert [ends["server"].recv(100) for _ in range(2)] == [b"first", b"second"]
        assert ends["client"].recv(100) == b"answer"
        assert time.monotonic() - begun >= 0.05
    for end in ends.values():
        end.close()
