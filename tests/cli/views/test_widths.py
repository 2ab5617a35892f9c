"""Every page fits its terminal, and nothing on it is clipped, from 60 to 200 columns."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console

from rdmascope.cli.main import main
from rdmascope.cli.reading import Reading
from rdmascope.cli.views.transport import connection_view, troubles_view
from rdmascope.dissect.transport.connection import Connection
from rdmascope.dissect.transport.health import TransportHealth

SAMPLES = Path(__file__).parents[3] / "captures" / "samples"
WIDTHS = (60, 76, 80, 110, 131, 160)
PAGES = (
    ("report", "bidir-rxe"),
    ("transport", "v2-falls-back"),
    ("files", "longcall-rxe"),
    ("audit", "bidir-rxe"),
    ("transport", "--credits", "ipv6-rxe"),
    ("info", "ipv6-rxe"),
    ("rules", ""),
    ("rules", "V1-CREDIT-EXCEEDED"),
    ("show", "longcall-rxe", "--rpc", "21"),
    ("show", "ipv6-rxe", "--frame", "9"),
    ("synth", "--faults"),
)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_pages_fit(page: tuple[str, ...], width: int) -> None:
    arguments = [str(SAMPLES / f"{word}.pcap.zst") if word.endswith("-rxe") or word.startswith("v2") else word
                 for word in page if word]  # fmt: skip
    result = CliRunner(env={"COLUMNS": str(width)}).invoke(main, arguments)
    lines = result.stdout.splitlines()
    assert lines
    assert [line for line in lines if cell_len(line) > width] == []
    assert [
        line for line in lines if "…" in line.replace("… and", "") and "more" not in line and "hex" not in line
    ] == []


@pytest.fixture(scope="module", params=["loss-rxe", "loss-siw"])
def healths(request: pytest.FixtureRequest) -> list[tuple[Connection, TransportHealth]]:
    reading = Reading((str(SAMPLES / f"{request.param}.pcap.zst"),))
    for _ in reading.rpcs():
        pass
    analyzer = reading.analyzer
    return [(one, analyzer.health(one.number)) for one in analyzer.connections]


def test_retransmissions_fit_at_every_width(healths: list[tuple[Connection, TransportHealth]]) -> None:
    for width in range(60, 201):
        out = io.StringIO()
        console = Console(file=out, width=width, highlight=False)
        for connection, health in healths:
            console.print(connection_view(connection, health, (), width, everything=True))
        console.print(troubles_view(healths))
        lines = out.getvalue().splitlines()
        assert max(map(cell_len, lines)) <= width
        assert not any("…" in line for line in lines), width
