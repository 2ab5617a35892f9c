"""``python -m fuzz.one TARGET FOLDER SECONDS``: one target under libFuzzer; FOLDER keeps what it learns and finds."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

ALLOCATED = 256
"""MiB at once: more than any input needs.  The fuzzer's own memory grows, so that of the process says nothing."""
PATIENCE = 60
"""Seconds that an input may take."""


def main() -> None:
    name, folder, seconds = sys.argv[1:]
    with atheris.instrument_imports(include=["rdmascope"]):
        from .targets import TARGETS
    target = TARGETS[name]
    corpus = Path(folder) / "corpus"
    if not corpus.exists():
        corpus.mkdir(parents=True)
        for number, seed in enumerate(target.seeds()):
            (corpus / f"seed-{number:05}").write_bytes(seed[: target.max_bytes])
    options = (
        f"-max_total_time={seconds}",
        f"-max_len={target.max_bytes}",
        "-rss_limit_mb=0",
        f"-malloc_limit_mb={ALLOCATED}",
        f"-timeout={PATIENCE}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        "-verbosity=0",
    )
    atheris.Setup([sys.argv[0], *options, str(corpus)], target.run)
    atheris.Fuzz()


main()
