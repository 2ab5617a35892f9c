"""``make walk``: a newcomer's first hour on a bare Debian 12, in a chroot, with what README.md and docs/install.md say.

Nobody but apt has been there.  Folders have blanks in their names, the newcomer is not root, and where nothing is
installed there is no network.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from . import build

USER = "newcomer"
CLONE, EMPTY = "a clone", "an empty folder"
SESSION = re.compile(r"```console\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
TRUSTED = "/etc/host.crt"
"""The same, under a name that no package writes to."""
LISTING = "find . -path ./.venv -prune -o -type f -print | sort"


class Step(NamedTuple):
    title: str
    script: str
    """Of bash, which ends at the first failure."""
    folder: str = CLONE
    """In the home."""
    root: bool = False
    network: bool = False
    expected: str | None = None
    """What it prints, where that is known."""


def typed(line: str, paper: str) -> str:
    """A line that a paper tells to type; fails where it no longer does."""
    text = (build.ROOT / paper).read_text()
    if not re.search(rf"^    {re.escape(line)}( |$)", text, re.MULTILINE):
        sys.exit(f"walk: {paper} does not say: {line}")
    return line


def steps() -> Iterator[Step]:
    """In the order in which a newcomer goes."""
    make = typed("apt install make", "README.md")
    yield Step("two commands do the set-up", f"{make} -qq -y", root=True, network=True)
    yield Step("the demo", typed("make demo", "README.md") + " | grep 'RDMA packets'", root=True, network=True)
    yield Step("pipx", "apt-get install -qq -y --no-install-recommends pipx", root=True, network=True)
    pipx = typed("pipx install '.[all]'", "README.md")
    nothing_left = f"{LISTING} >../before; {{}}; {LISTING} | diff ../before -"
    yield Step("install as README says", nothing_left.format(pipx), network=True)
    for block in SESSION.findall((build.ROOT / "README.md").read_text()):
        commands = COMMAND.findall(block)
        script = "\n".join(command for command, _ in commands)
        yield Step("README as typed", script, EMPTY, expected="".join(printed for _, printed in commands))
    wheel = typed("pip wheel --no-deps -w dist .", "docs/install.md")
    empty = f"python3 -m venv ~/'a venv' && . ~/'a venv'/bin/activate && {wheel} && pip install dist/*.whl"
    only_the_wheel = f"{nothing_left.format(empty)} >../left || test $(grep -c '^[<>]' ../left) = 1"
    yield Step("the wheel in an empty environment", only_the_wheel, network=True)
    use = """
        . ~/'a venv'/bin/activate
        rdmascope demo
        for words in info report diagnose audit 'rpcs --sort latency' 'show --rpc 23' transport packets; do
          rdmascope ${words%% *} loss-rxe.pcap.zst ${words#${words%% *}} >printed || test $? = 1
          test -s printed
        done
        python -c 'import rdmascope; print(rdmascope.read("loss-rxe.pcap.zst").rpc(23))'
        if said=$(rdmascope sql loss-rxe.pcap.zst 'SELECT 1' 2>&1); then exit 1; fi
        test "$(wc -l <<<"$said")" = 1 && grep 'rdmascope\\[sql\\]' <<<"$said"
    """
    yield Step("used without a network", use, EMPTY)


@contextmanager
def debian() -> Iterator[Path]:
    """The root of a Debian of one's own, with a clone of this checkout in two homes."""
    with build.alone():
        build.check_host(())
        if not CERTIFICATES.exists():
            raise build.CannotRun(f"there is no {CERTIFICATES}")
        key = build.keys([build.BARE])["bare"]
        if build.read(build.WORK / "bare" / "key") != key:
            click.echo(f"a bare Debian 12: {build.make(build.BARE, key):.0f} s")
    root = build.WORK / "walk"
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["cp", "-a", build.WORK / "bare" / "root", root], check=True)
    try:
        subprocess.run(["chroot", root, "useradd", "--create-home", "--shell", "/bin/bash", USER], check=True)
        shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
        shutil.copy(CERTIFICATES, root / TRUSTED[1:])
        for home in (root / "root", root / "home" / USER):
            (home / CLONE).mkdir()
            (home / EMPTY).mkdir()
            files = subprocess.run(
                ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                cwd=build.ROOT, capture_output=True, check=True,
            ).stdout.split(b"\0")  # fmt: skip
            copy = ["cp", "-a", "--parents", *(os.fsdecode(name) for name in files if name), str(home / CLONE)]
            subprocess.run(copy, cwd=build.ROOT, check=True)
            owner = "root" if home.name == "root" else USER
            subprocess.run(["chroot", root, "chown", "-R", f"{owner}:", f"/{home.relative_to(root)}"], check=True)
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


INSIDE = """
mount -t proc proc "$root/proc" && mount -t tmpfs none "$root/dev/shm" && chmod 1777 "$root/dev/shm"
exec chroot --userspec="$user:" "$root" "$@"
"""
"""What is mounted goes with the namespace."""


def take(step: Step, root: Path) -> tuple[bool, str]:
    """Whether it went well, and what it printed."""
    user, home = ("root", "/root") if step.root else (USER, f"/home/{USER}")
    path = f"{home}/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    wanted = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "http"))}
    wanted |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), TRUSTED)
    wanted |= {"HOME": home, "PATH": path, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "CI": "true"}
    namespaces = ["--mount", "--pid", "--fork", "--kill-child", *([] if step.network else ["--net"])]
    script = f"set -eu\ncd {shlex.quote(f'{home}/{step.folder}')}\n{step.script}\n"
    words = ["env", "-i", *(f"{name}={value}" for name, value in wanted.items()), "bash", "-c", script]
    done = subprocess.run(
        ["unshare", *namespaces, "bash", "-c", INSIDE, "inside", *words],
        env=os.environ | {"root": str(root), "user": user},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    return done.returncode == 0 and step.expected in (None, done.stdout), done.stdout


@click.command()
def main() -> None:
    """Go the whole way, or to the first step that fails."""
    try:
        with debian() as root:
            for step in steps():
                begun = time.monotonic()
                well, printed = take(step, root)
                click.echo(f"{step.title}: {'as said' if well else 'NOT as said'}, {time.monotonic() - begun:.0f} s")
                if not well:
                    click.echo(printed)
                    sys.exit(1)
    except build.CannotRun as error:
        click.echo(f"walk: skipped, it cannot run here: {error}")
    except build.Broken as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
