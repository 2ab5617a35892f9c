"""What every command prints of every sample, held against ``tests/golden``.

``python tests/test_outputs.py`` writes the present outputs there; ``git diff tests/golden`` then shows what a change to
the code does to the screen and to the JSON.  A command has one file, and a word is in it once: the pages of the first
sample are kept whole, of all others the lines whose words no page before had, and a digest of the page's numbers.  Of
JSON Lines there are the names, and what their values come to: how many, the sum of numbers, the different words.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from rdmascope.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
WHOLE = "rxe-nfs-all.pcap.zst"
"""The first sample, whose pages are kept whole."""
FOLDER = ROOT / "captures" / "samples"
SAMPLES = sorted((path.name for path in FOLDER.glob("*.zst")), key=lambda name: (name != WHOLE, name))
FIRST_LINES = 60
"""Of a whole page; what follows is kept as of other pages."""
VALUE = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|[\d.,:]*\d[\d.,:]*|[▁-▏]+")
"""Numbers, and bars of charts."""
MAX_VALUES = 6
"""Different words that are listed."""


class Run(NamedTuple):
    arguments: tuple[str, ...]
    width: int = 80
    outputs: tuple[str, ...] = ()
    """Files that it writes."""


def pages(*arguments: str) -> list[Run]:
    """Text, narrow and wide, and JSON."""
    return [Run(arguments), Run(arguments, 160), Run((*arguments, "--json"))]


def runs(sample: str) -> dict[str, list[Run]]:
    """What is run on a sample, by the name of the file that keeps it."""
    commands = ("info", "report", "rpcs", "transport", "files", "audit", "sessions", "diagnose")
    found = {name: pages(name, sample) for name in commands}
    found["credits"] = pages("transport", "--credits", sample)
    found["packets"] = pages("packets", sample)
    questions = "--by", "connection,procedure", "--by", "10s", "--over-time", "--slo", "READ p99 < 10ms"
    found["questions"] = pages("report", sample, *questions, "--slo", "GETATTR median < 600us")
    found["show"] = [run for number in ("1", "7", "23") for run in pages("show", sample, "--rpc", number)]
    found["show"] += pages("show", sample, "--frame", "9")
    found["export"] = [Run(("export", sample, "-o", "out.pcapng"), outputs=("out.pcapng",))]
    return found


def common_runs() -> dict[str, list[Run]]:
    """What needs no sample."""
    explained = ("V1-CREDIT-EXCEEDED", "V1-READ-POSITION", "PD-INLINE", "packets-lost")
    played = ("v1-chunks", "v1-callbacks", "faults", "v2-settles")
    return {
        "rules": pages("rules"),
        "explain": [Run(("rules", one)) for one in explained],
        "synth": [
            *(Run(("synth", *option)) for option in (["--list"], ["--faults"], ["--keys"], ["--list", "--json"])),
            *(Run(("synth", script, "-o", "out.pcapng"), outputs=("out.pcapng",)) for script in played),
            Run(("synth", "v1-chunks", "--fault", "grant-nothing", "-o", "wrong.pcapng")),
            *pages("audit", "wrong.pcapng"),
        ],
        "compare": pages("compare", "rxe-nfs-all.pcap.zst", "siw-nfs-all.pcap.zst"),
        "help": [Run(("--help",)), *(Run((name, "--help")) for name in COMMANDS)],
    }


def words(line: str) -> str:
    """A line without its numbers and the room between words."""
    return re.sub(r"\s+|[─━-]{2,}", " ", VALUE.sub("#", line)).strip()


def new_lines(text: str, seen: set[str], whole: int) -> Iterator[str]:
    """The first ``whole`` lines and those whose words are new, which become ``seen``; and a digest of all numbers."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if number < whole or words(line) not in seen:
            seen.add(words(line))
            yield f"{line}\n"
    digest = hashlib.sha256(" ".join(VALUE.findall(text)).encode()).hexdigest()[:16]
    yield f"[{len(lines)} lines, numbers {digest}]\n"


def printed(run: Run, seen: set[str], whole: int) -> str:
    """What one run prints and writes, in the present folder; see ``new_lines``."""
    runner = CliRunner(env={"COLUMNS": str(run.width), "RDMASCOPE_TRACEBACK": "1", "TERM": "dumb"})
    done = runner.invoke(main, list(run.arguments), prog_name="rdmascope", terminal_width=run.width)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    text = done.output
    if "--json" in run.arguments and done.exit_code != 2:
        text = json_summary(text)
    else:
        text = "".join(new_lines(text, seen, whole))
    text += f"[exit status {done.exit_code}]\n" if done.exit_code else ""
    for name in run.outputs:
        written = Path(name).read_bytes()
        text += f"[{name}: {len(written)} bytes, sha256 {hashlib.sha256(written).hexdigest()[:16]}]\n"
    return text


def json_summary(lines: str) -> str:
    """Of JSON Lines: every name, by type of record, and what its values come to."""
    leaves: dict[str, list[Any]] = defaultdict(list)
    kinds: dict[str, int] = defaultdict(int)
    for line in lines.splitlines():
        record = json.loads(line)
        kind = str(record.get("type", "?"))
        kinds[kind] += 1
        for path, value in leaves_of(record, kind):
            leaves[path].append(value)
    head = [
        f"{kind}: {plural}" for kind, plural in sorted((kind, f"{number} of them") for kind, number in kinds.items())
    ]
    return "".join(f"{line}\n" for line in [*head, *(f"{path}  {summed(leaves[path])}" for path in sorted(leaves))])


def leaves_of(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves_of(inner, f"{path}.{name}")
    elif isinstance(value, list):
        yield f"{path}[]", len(value)
        for inner in value:
            yield from leaves_of(inner, f"{path}[]")
    else:
        yield path, value


def summed(values: list[Any]) -> str:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    others = [value for value in values if not isinstance(value, int | float) or isinstance(value, bool)]
    parts = [f"{len(numbers)} numbers, sum {round(sum(numbers), 6)}"] if numbers else []
    words = sorted({json.dumps(value, ensure_ascii=False) for value in others})
    if words:
        digest = hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]
        few = (
            ", ".join(words)
            if len(words) <= MAX_VALUES and len("".join(words)) < 400
            else f"{len(words)} different, {digest}"
        )
        parts.append(f"{len(others)} × {few}" if len(words) == 1 else f"{len(others)} of {few}")
    return "; ".join(parts)


def golden(several: list[Run], before: str = "", whole: int = sys.maxsize) -> str:
    """What is kept of runs, in a file that begins with ``before``."""
    seen = {words(line) for line in before.splitlines()}
    return "".join(
        f"$ rdmascope {' '.join(run.arguments)}  # {run.width}\n{printed(run, seen, whole)}\n" for run in several
    )


CASES = [*((sample, name) for sample in SAMPLES for name in runs(sample)), *(("", name) for name in common_runs())]


def made(sample: str, name: str, before: str = "") -> str:
    if not sample:
        return golden(common_runs()[name])
    return golden(runs(sample)[name], before, FIRST_LINES if sample == WHOLE else 0)


def kept(sample: str, name: str) -> tuple[str, str]:
    """What a file has before that sample, and of it."""
    before, of_it = "", ""
    for page in re.split(r"^(?=\$ rdmascope )", (GOLDEN / f"{name}.txt").read_text(), flags=re.MULTILINE):
        if sample in page.partition("\n")[0]:
            of_it += page
        elif not of_it:
            before += page
    return before, of_it


def link_samples(folder: Path) -> None:
    for sample in SAMPLES:
        (folder / sample).symlink_to(ROOT / "captures" / "samples" / sample)


@pytest.mark.parametrize(("sample", "name"), CASES)
def test_the_output_is_that_of_the_golden_file(
    sample: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link_samples(tmp_path)
    monkeypatch.chdir(tmp_path)
    before, of_it = kept(sample, name)
    assert made(sample, name, before) == of_it, "python tests/test_outputs.py writes the present output"


def rewrite(target: Path = GOLDEN) -> None:
    import os
    import shutil
    import tempfile

    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    texts: dict[str, str] = defaultdict(str)
    with tempfile.TemporaryDirectory() as folder:
        link_samples(Path(folder))
        os.chdir(folder)
        for sample, name in CASES:
            texts[name] += made(sample, name, texts[name])
        os.chdir(ROOT)
    for name, text in texts.items():
        (target / f"{name}.txt").write_text(text)


if __name__ == "__main__":
    rewrite(*map(Path, sys.argv[1:]))
