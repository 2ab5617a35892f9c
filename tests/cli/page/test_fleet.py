"""The page of a data set: where hosts were slow, and commands that cut out what was slowest."""

from __future__ import annotations

import re
import shlex
from html import unescape
from pathlib import Path

import pytest

import rdmascope
from playbook.commands import objects, run
from playbook.fleets import make_fleet
from rdmascope.captures.tables import fleet_sums


def test_a_page_of_many_captures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = make_fleet(tmp_path)
    monkeypatch.setattr(fleet_sums, "FEW_CAPTURES", 0)
    page = tmp_path / "fleet.html"
    written = run("report", fleet.data_set, "-o", str(page), "--slo", "* p99 < 1ns")
    assert written.exit_code == 1, written.stderr
    html = page.read_text()
    for id in ("levels", "diagnosis", "hosts", "worst"):
        assert f'href="#{id}"' in html and re.search(f'<section id="{id}"', html)
    cells = re.findall(r"<title>(\w+), ([^:]+):00 UTC: ([\d,]+) RPCs?, 99% within ([^,]+), (\d+) errors?</title>", html)
    known = objects(
        "sql",
        fleet.data_set,
        "SELECT host, count_if(waiting_ns IS NOT NULL) AS calls, count_if(failed AND waiting_ns IS NOT NULL) AS errors"
        " FROM rpcs GROUP BY host",
    )
    assert {(host, calls.replace(",", ""), errors) for host, _, calls, _, errors in cells} == {
        (one["host"], str(one["calls"]), str(one["errors"])) for one in known
    }
    commands = [shlex.split(unescape(one)) for one in re.findall(r"<code>(rdmascope export [^<]*)</code>", html)]
    slowest = [one["number"] for one in objects("report", fleet.data_set) if one["type"] == "slowest"]
    assert [int(one[one.index("--rpc") + 1]) for one in commands] == slowest
    monkeypatch.chdir(tmp_path)
    assert run(*commands[0][1:]).exit_code == 0
    (cut,) = objects("rpcs", commands[0][-1])
    (whole,) = objects("show", fleet.data_set, "--rpc", str(slowest[0]))
    assert cut["xid"] == whole["xid"]
    again = tmp_path / "again.html"
    assert rdmascope.write_page(rdmascope.read(fleet.data_set), again) == len(again.read_bytes())
    assert 'id="hosts"' in again.read_text()
