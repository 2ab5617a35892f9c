"""What the guests boot from, each part made again only when its recipe, or something that it is made from, changed."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

LAB = Path(__file__).parent
ROOT = LAB.parents[1]
RECIPE = LAB / "recipe"
WORK = Path(os.environ.get("LAB_WORK") or LAB / "work").absolute()

TOOLS = ("qemu-system-x86", "debootstrap", "busybox-static", "cpio", "kmod", "e2fsprogs", "binutils", "tshark")
"""What the host needs; what only kernel.sh needs it installs itself."""

MINUTES = 15
"""No part may take longer.  The slowest, the root file system, takes less than two on a slow machine."""


class CannotRun(Exception):
    """The lab cannot run on this machine, which is not a fault of the project; the message says why."""


class Broken(Exception):
    """A part could not be made; the message says which, and has the end of its log."""


KERNELS = ("6.1", "6.12")
"""Those that apt has for Debian 12; the first is what guests boot unless a scenario wants another."""


class Part(NamedTuple):
    """``recipe/NAME.sh`` makes it, in an empty folder of its own, ``work/NAME/``.

    A part that depends on the kernel has the version behind its name, unless it is the usual one: ``kernel-6.12``.
    """

    name: str
    made_from: tuple[str, ...] = ()
    """Other parts; the script finds their folders in variables of the same names, without a version."""
    reads: Callable[[], Iterable[Path]] = tuple
    """Files beside the script."""
    variables: Callable[[], dict[str, str]] = dict


def requirements() -> dict[str, str]:
    """What the guests run needs: the plain installation, and ``layers`` for the probe."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"requirements": "\n".join(project["dependencies"] + project["optional-dependencies"]["layers"])}


def sources() -> Iterator[Path]:
    """Whatever may be installed; the samples are not."""
    yield ROOT / "pyproject.toml"
    for folder in ("captures", "cli", "dissect", "docs", "rdmascope"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and not {"__pycache__", "samples"} & set(path.parts):
                yield path


def of_kernel(name: str, version: str) -> str:
    """What a part that depends on the kernel is called."""
    return name if version == KERNELS[0] else f"{name}-{version}"


def _with_kernel(version: str) -> Iterator[Part]:
    kernel = of_kernel("kernel", version)
    yield Part(kernel, reads=lambda: [RECIPE / "scarce.c"], variables=lambda: {"version": version})
    yield Part(of_kernel("initramfs", version), made_from=(kernel,), reads=lambda: [RECIPE / "first-process.sh"])
    yield Part(of_kernel("disk", version), made_from=("rootfs", kernel))


def mirror_script() -> list[Path]:
    return [RECIPE / "mirror.sh"]


BARE = Part("bare", reads=mirror_script)
"""No part of the guests: a Debian 12 with nothing but apt, see ``lab/walk.py``."""

PARTS = (
    Part("rootfs", reads=mirror_script),
    *(part for version in KERNELS for part in _with_kernel(version)),
    Part("python", variables=requirements),
    Part("project", reads=sources),
)


def wanted_parts(kernels: Collection[str]) -> list[Part]:
    """What guests with these kernels boot from."""
    others = {part.name for version in KERNELS if version not in kernels for part in _with_kernel(version)}
    return [part for part in PARTS if part.name not in others]


def recipe(name: str) -> Path:
    """The script of a part."""
    return RECIPE / f"{name.split('-')[0]}.sh"


def keys(parts: Iterable[Part] = PARTS) -> dict[str, str]:
    """Part -> a digest of everything that decides what it will be, except what Debian and PyPI have today."""
    found: dict[str, str] = {}
    for part in parts:
        digest = hashlib.sha256()
        for path in (recipe(part.name), *part.reads()):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
        for name, value in (*sorted(part.variables().items()), *((name, found[name]) for name in part.made_from)):
            digest.update(f"{name}={value}\n".encode())
        found[part.name] = digest.hexdigest()
    return found


def stale(kernels: Collection[str] = KERNELS[:1]) -> dict[str, str]:
    """The keys of those parts that are missing or out of date."""
    return {name: key for name, key in keys(wanted_parts(kernels)).items() if read(WORK / name / "key") != key}


def read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def environment() -> dict[str, str]:
    """Of everything that is run here, without questions, which have no answer here."""
    return {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PIP_ROOT_USER_ACTION": "ignore", "LC_ALL": "C.UTF-8"}


def run(command: list[str], log: Path, folder: Path, variables: dict[str, str]) -> bool:
    """Whether it ended well, and in time.  What it prints goes into the log."""
    with log.open("ab") as output:
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment() | variables, timeout=MINUTES * 60,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            output.write(f"given up after {MINUTES} minutes\n".encode())
            return False
        return done.returncode == 0


def debian_12() -> bool:
    try:
        return platform.freedesktop_os_release().get("VERSION_CODENAME") == "bookworm"
    except OSError:
        return False


def check_host(wanted: Collection[str]) -> None:
    """Raises CannotRun where the lab has no chance to make these parts; installs what is missing of TOOLS."""
    if platform.machine() != "x86_64":
        raise CannotRun(f"the guests are amd64, this machine is {platform.machine()}")
    if not debian_12() or shutil.which("apt-get") is None or shutil.which("dpkg-query") is None:
        raise CannotRun("this is not Debian 12, whose packages the guests are made of")
    if " " in str(WORK):
        raise CannotRun(f"debootstrap makes nothing in a folder with blanks in its name: {WORK}")
    if os.geteuid() != 0:
        raise CannotRun("not root: debootstrap and the packages of the host need it")
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"], capture_output=True, text=True
    )
    missing = set(TOOLS) - {line.split()[0] for line in listed.stdout.splitlines() if line.endswith(" installed")}
    if not missing and not any(name.split("-")[0] in ("rootfs", "kernel") for name in wanted):
        return
    log = WORK / "packages.log"
    log.write_bytes(b"")
    patience = ["-o", "DPkg::Lock::Timeout=120"]
    if not run(["apt-get", "-qq", "-o", "APT::Update::Error-Mode=any", "update"], log, WORK, {}):
        raise CannotRun(f"apt-get update failed, see {log}: {last_lines(log, 1)}")
    if missing and not run(
        ["apt-get", "-qq", *patience, "install", "-y", "--no-install-recommends", *sorted(missing)], log, WORK, {}
    ):
        raise CannotRun(f"could not install {' '.join(sorted(missing))}, see {log}: {last_lines(log, 1)}")


def last_lines(log: Path, count: int) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])


def make(part: Part, key: str) -> float:
    """Run its recipe; returns the seconds that it took.  The old one stays in place until the new one is whole."""
    begun = time.monotonic()
    fresh = WORK / f"{part.name}.new"
    log = WORK / f"{part.name}.log"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    log.write_bytes(b"")
    variables = {name.split("-")[0]: str(WORK / name) for name in part.made_from}
    variables |= {"python": sys.executable, "root": str(ROOT), "recipe": str(RECIPE)} | part.variables()
    if not run(["bash", "-euo", "pipefail", str(recipe(part.name))], log, fresh, variables):
        raise Broken(f"recipe/{recipe(part.name).name} failed, see {log}:\n{last_lines(log, 15)}")
    (fresh / "key").write_text(key)
    shutil.rmtree(WORK / part.name, ignore_errors=True)
    fresh.rename(WORK / part.name)
    return time.monotonic() - begun


@contextmanager
def alone() -> Iterator[None]:
    """No other run changes a part, or the packages of the host, meanwhile."""
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def built(say: Callable[[str], None], kernels: Collection[str] = KERNELS[:1]) -> Iterator[Path]:
    """The folder with all parts for these kernels, up to date, which no other run changes meanwhile."""
    with alone():
        wanted = stale(kernels)
        check_host(wanted)
        if wanted:
            say(f"building {', '.join(wanted)}")
        futures: dict[str, Future[float]] = {}

        def after_what_it_is_made_from(part: Part) -> float:
            for name in part.made_from:
                if name in futures:
                    futures[name].result()
            return make(part, wanted[part.name])

        # PARTS come after what they are made from, so those that wait never hold all the threads.
        with ThreadPoolExecutor(len(PARTS)) as pool:
            for part in PARTS:
                if part.name in wanted:
                    futures[part.name] = pool.submit(after_what_it_is_made_from, part)
            for name, future in futures.items():
                say(f"  {name:<14} {future.result():4.0f} s")
        yield WORK
