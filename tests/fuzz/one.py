"""``python -m fuzz.one TARGET FOLDER SECONDS``: one target under libFuzzer; FOLDER keeps what it learns and finds."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

MEMORY = 2048
"""MiB that the process may have: more than any input needs."""
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
        f"-rss_limit_mb={MEMORY}",
        f"-timeout={PATIENCE}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        "-verbosity=0",
    )
    atheris.Setup([sys.argv[0], *options, str(corpus)], target.run)
    atheris.Fuzz()


main()
