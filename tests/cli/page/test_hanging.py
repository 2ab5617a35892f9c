"""The page of a mount that hangs: its first line, bars of what waits, and verdicts on service levels."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from playbook import hangs
from playbook.commands import EVERYTHING, LOSS, run
from playbook.wire import Wire
from rdmascope.cli.page.examples import _idle


def page(path: str, tmp_path: Path, *options: str, status: int = 0) -> str:
    made = tmp_path / "page.html"
    done = run("report", path, "-o", str(made), *options)
    assert done.exit_code == status, done.stderr
    return made.read_text()


@pytest.fixture
def hung(tmp_path: Path) -> str:
    wire = Wire()
    hangs.one_call(wire)
    return hangs.saved(wire, tmp_path / "hung.pcap")


def test_it_begins_with_what_hangs(hung: str, tmp_path: Path) -> None:
    html = page(hung, tmp_path)
    words = '<p class="bad">CREATE …/export/w3 (RPC 22) has hung for 46.0 s; the server last spoke at 22:14:06 UTC</p>'
    assert words in html and html.index(words) < html.index("<h1>")


def test_its_path_takes_no_second_look_at_the_capture(
    hung: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdmascope.captures.session.session.MAX_READ_FOR_NAMES", 0)
    assert '<p class="bad">CREATE …/export/w3 (RPC 22) has hung' in page(hung, tmp_path)


def test_what_hangs_has_bars(hung: str, tmp_path: Path) -> None:
    html = page(hung, tmp_path)
    waterfall = html[html.index('<section id="waterfall"') : html.index("</section>", html.index('id="waterfall"'))]
    assert 'class="phase hung"' in waterfall and 'class="phase server"' in waterfall
    assert "<code>…/export/w3</code>" in waterfall and "&gt;46.0 s" in waterfall
    assert "Calls outstanding without a reply" in html


def test_its_time_is_a_lower_bound_in_the_tables(hung: str, tmp_path: Path) -> None:
    html = page(hung, tmp_path)
    for id, name in (("procedures", "NFSv3 CREATE"), ("clients", "10.0.0.2"), ("files", "…/export/w3")):
        table = html[html.index(f'<table id="{id}"') : html.index("</table>", html.index(f'<table id="{id}"'))]
        (row,) = [one for one in re.findall(r"<tr data-row=.*?</tr>", table) if f">{name}<" in one]
        cells = re.findall(r"<td[^>]*>([^<]*)", row)
        assert cells[2] in ("99%", "99.8%", "100%") and cells[6] == "&gt;46.0 s"
        assert all(float(one[:-1]) <= 100 for one in re.findall(r">([\d.]+%)<", table))


def test_healthy_traffic_has_no_such_bars(tmp_path: Path) -> None:
    wire = Wire()
    hangs.healthy(wire)
    html = page(hangs.saved(wire, tmp_path / "healthy.pcap"), tmp_path)
    assert 'class="phase hung"' not in html and "Calls outstanding without a reply" not in html


def test_the_slowest_have_their_path_time_and_phases(tmp_path: Path) -> None:
    html = page(EVERYTHING, tmp_path)
    waterfall = html[html.index('<section id="waterfall"') : html.index('<section id="findings"')]
    assert "/export/w4.0" in waterfall and "106.637 s" in waterfall
    widths = [float(one) for one in re.findall(r"left:[\d.]+%;width:([\d.]+)%", waterfall)]
    assert widths and all(0 <= one <= 100 for one in widths)
    assert "in which none of them waited are folded" in waterfall


def test_idle_time_is_between_spans() -> None:
    assert _idle([(0, 5), (3, 9), (20, 21), (21, 30), (40, 41)]) == [(9, 20), (30, 40)]


@pytest.mark.parametrize(
    ("level", "verdict", "status"), [("WRITE max < 1s", "fail", 1), ("WRITE max < 1h", "undecidable", 3)]
)
def test_service_levels_stand_on_top(level: str, verdict: str, status: int, tmp_path: Path) -> None:
    html = page(LOSS, tmp_path, "--slo", level, status=status)
    section = html[html.index('<section id="levels"') : html.index('<section id="diagnosis"')]
    assert f">{verdict}</span>" in section and level.replace("<", "&lt;") in section


def test_a_name_that_does_not_exist_is_no_red_error(tmp_path: Path) -> None:
    html = page(EVERYTHING, tmp_path)
    outcomes = re.findall(r'class="(outcome[^"]*)">([^<]*)', html)
    assert all("bad" not in style for style, outcome in outcomes if "NOENT" in outcome)
    failed = html[html.index('id="failed"') :] if 'id="failed"' in html else ""
    assert "NOENT" not in failed
