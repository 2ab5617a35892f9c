"""The audit's commands: exit status, selections, settings, and what other programs read."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from playbook import Wire, write_pcap
from playbook.violations import SCRIPTS, hello, proper
from rdmascope.cli.main import main
from rdmascope.dissect.audit.rule import all_rules

SAMPLES = Path(__file__).parents[3] / "captures" / "samples"
SERVED_BY_LINUX = str(SAMPLES / "bidir-rxe.pcap.zst")


def run(*arguments: str, columns: int = 120) -> Result:
    return CliRunner(env={"COLUMNS": str(columns), "RDMASCOPE_TRACEBACK": "1"}).invoke(main, arguments)


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def capture(*rules: str) -> str:
    """A capture in which these rules are broken, one on each connection; without any, a proper one."""
    wire = Wire(seed=5)
    for rule in rules:
        before = len(wire.connections)
        SCRIPTS[rule](wire)
        hello(wire.connections[before])
    if not rules:
        proper(wire)
    path = Path(f"{'-'.join(rules) or 'proper'}.pcap")
    write_pcap(wire.frames(), path)
    return str(path)


MUST, SHOULD, STATED, NOTE = "V1-CREDIT-ZERO", "V1-WRITE-EXTRA", "V1-WRITE-SEGMENT-COPY", "V1-NO-BINDING"


class TestStatus:
    def test_a_clean_capture(self) -> None:
        result = run("audit", capture())
        assert (result.exit_code, "no violation" in result.stdout) == (0, True)

    @pytest.mark.parametrize(
        "rule, fail_on, status",
        [
            (MUST, "MUST", 1),
            (SHOULD, "MUST", 0),
            (SHOULD, "SHOULD", 1),
            (STATED, "SHOULD", 0),
            (STATED, "STATED", 1),
            (NOTE, "STATED", 0),
            (NOTE, "NOTE", 1),
            (MUST, "NEVER", 0),
        ],
    )
    def test_violations_count_from_a_level_on(self, rule: str, fail_on: str, status: int) -> None:
        assert run("audit", capture(rule), "--fail-on", fail_on).exit_code == status

    def test_nothing_to_judge_is_another_status_than_nothing_found(self) -> None:
        assert run("audit", capture()).exit_code == 0
        wire = Wire(seed=5)
        wire.connect(port=3260)
        path = Path("other.pcap")
        write_pcap(wire.frames(), path)
        result = run("audit", str(path))
        assert (result.exit_code, "no RPC-over-RDMA connection to judge" in result.stdout) == (3, True)

    def test_by_default_from_must_on(self) -> None:
        assert run("audit", capture(SHOULD)).exit_code == 0
        assert run("audit", capture(MUST)).exit_code == 1

    def test_a_file_that_cannot_be_used(self) -> None:
        Path("empty.pcap").write_bytes(b"")
        result = run("audit", capture(MUST), "empty.pcap")
        assert result.exit_code == 2
        assert MUST in result.stdout and "empty.pcap" in result.stderr


class TestSelections:
    @pytest.mark.parametrize(
        "options, found",
        [
            ((), {MUST, SHOULD}),
            (("--rule", SHOULD), {SHOULD}),
            (("--rule", "v1-write*"), {SHOULD}),
            (("--ignore", SHOULD), {MUST}),
            (("--level", "MUST"), {MUST}),
            (("--role", "requester"), {SHOULD}),
            (("--role", "server"), {MUST}),
            (("--role", "client"), {SHOULD}),
            (("--connection", "1"), {MUST}),
        ],
    )
    def test_what_is_judged(self, options: tuple[str, ...], found: set[str]) -> None:
        result = run("audit", capture(MUST, SHOULD), "--json", *options)
        records = [json.loads(line) for line in result.stdout.splitlines()]
        assert {record["rule"] for record in records if record["type"] == "finding"} == found

    def test_a_rule_that_is_none(self) -> None:
        assert run("audit", capture(), "--rule", "V1-NONSENSE").exit_code == 2

    def test_a_connection_that_is_none(self) -> None:
        assert run("audit", capture(), "--connection", "9").exit_code == 2


class TestSettings:
    def test_a_waiver_needs_a_reason(self) -> None:
        Path("rdmascope.toml").write_text(f'[[tool.rdmascope.audit.waive]]\nrule = "{MUST}"\n')
        result = run("audit", capture(MUST))
        assert result.exit_code == 2 and "reason" in result.stderr

    def test_a_waived_finding_does_not_count_and_is_reported(self) -> None:
        Path("pyproject.toml").write_text(
            f'[[tool.rdmascope.audit.waive]]\nrule = "{MUST}"\nrole = "responder"\nreason = "known, being repaired"\n'
        )
        result = run("audit", capture(MUST))
        assert result.exit_code == 0
        assert "known, being repaired" in result.stdout

    def test_a_waiver_of_another_end_does_not_help(self) -> None:
        Path("rdmascope.toml").write_text(
            f'[[tool.rdmascope.audit.waive]]\nrule = "{MUST}"\naddress = "10.0.0.2"\nreason = "the client\'s"\n'
        )
        assert run("audit", capture(MUST)).exit_code == 1

    def test_selections_are_pinned_and_options_come_first(self) -> None:
        Path("own.toml").write_text('[tool.rdmascope.audit]\nlevel = "SHOULD"\nfail-on = "SHOULD"\n')
        assert run("audit", capture(SHOULD), "--config", "own.toml").exit_code == 1
        assert run("audit", capture(SHOULD), "--config", "own.toml", "--fail-on", "MUST").exit_code == 0
        assert run("audit", capture(STATED), "--config", "own.toml", "--fail-on", "STATED").exit_code == 0

    @pytest.mark.parametrize("text", ["levle = 1", 'level = "SHALL"', "rule = 3", "waive = [3]", "= nothing"])
    def test_nonsense_is_refused(self, text: str) -> None:
        Path("rdmascope.toml").write_text(f"[tool.rdmascope.audit]\n{text}\n")
        result = run("audit", capture())
        assert result.exit_code == 2 and "rdmascope.toml" in result.stderr


FINDING = (
    "schema type rule title level severity document section final verdict connection endpoint address role frames"
    " time_ns rpc xid observed required violated file"
)
VERDICT = (
    "schema type rule level connection endpoint address verdict passed violated notes findings undecidable reasons file"
)


class TestForOtherPrograms:
    def test_json_has_stable_names(self) -> None:
        records = [json.loads(line) for line in run("audit", capture(MUST), "--json").stdout.splitlines()]
        finding, *verdicts, last = records
        assert set(finding) == set(FINDING.split()) and finding["schema"] == "rdmascope.finding/1.0"
        assert all(set(verdict) == set(VERDICT.split()) for verdict in verdicts)
        assert len(verdicts) == 2 * len(all_rules())
        assert {verdict["verdict"] for verdict in verdicts} == {"pass", "violation", "not applicable", "not judged"}
        assert (last["schema"], last["violations"]) == ("rdmascope.audit/1.0", 1)

    @pytest.mark.parametrize("kept", (0, 2, 100))
    def test_json_says_how_many_findings_are_left_out(self, kept: int) -> None:
        output = run("audit", SERVED_BY_LINUX, "--json", "--examples", str(kept)).stdout
        records = [json.loads(line) for line in output.splitlines()]
        found = Counter(
            (one["rule"], one["connection"], one["endpoint"], one["violated"])
            for one in records
            if one["type"] == "finding"
        )
        broken = [one for one in records if one["type"] == "verdict" and one["violated"]]
        assert broken and all(one["findings"] == min(kept, one["violated"]) for one in broken)
        names = "rule", "connection", "endpoint", "violated"
        assert found == Counter({tuple(one[name] for name in names): one["findings"] for one in broken})

    def test_junit(self) -> None:
        run("audit", capture(MUST), "--junit", "out.xml")
        root = ElementTree.parse("out.xml").getroot()
        assert [suite.get("failures") for suite in root] == ["0", "1"]
        (failure,) = root.iterfind("testsuite/testcase/failure")
        assert failure.get("type") == "MUST" and "a grant of 0 credits" in (failure.text or "")

    def test_sarif(self) -> None:
        run("audit", capture(MUST, NOTE), "--sarif", "out.sarif")
        document = json.loads(Path("out.sarif").read_text())
        assert document["version"] == "2.1.0"
        (one,) = document["runs"]
        results = {result["ruleId"]: result["level"] for result in one["results"]}
        assert results == {MUST: "error", NOTE: "note"}
        for result in one["results"]:
            assert one["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
            assert result["locations"] and result["message"]["text"]


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize(
    "arguments",
    [("audit", SERVED_BY_LINUX), ("rules",), ("rules", MUST), ("transport", "--credits", SERVED_BY_LINUX)],
    ids=lambda arguments: arguments[0],
)
def test_the_page_fits(arguments: tuple[str, ...], columns: int) -> None:
    lines = run(*arguments, columns=columns).stdout.splitlines()
    assert lines and max(map(len, lines)) <= columns


def test_linux_invalidates_what_it_did_not_agree_to() -> None:
    """knfsd goes by the client's R flag, and does not set its own; nothing else is found but notes."""
    for sample in sorted(SAMPLES.glob("*-rxe*.zst")):
        records = [json.loads(line) for line in run("audit", str(sample), "--json").stdout.splitlines()]
        findings = [record for record in records if record["type"] == "finding" and record["severity"] != "note"]
        assert {(one["rule"], one["endpoint"]) for one in findings} == {("PD-INVALIDATE-AGREED", "passive")}, sample


class TestExplain:
    def test_a_rule(self) -> None:
        page = run("rules", "v1-credit-zero").stdout
        assert "RFC 8166" in page and "Wrong" in page

    def test_a_rule_that_is_none(self) -> None:
        result = run("rules", "V1-CREDIT")
        assert result.exit_code == 2 and "V1-CREDIT-" in result.stderr


class TestCredits:
    def test_both_directions(self) -> None:
        records = [
            json.loads(line) for line in run("transport", "--credits", SERVED_BY_LINUX, "--json").stdout.splitlines()
        ]
        assert [(one["connection"], one["direction"]) for one in records[:2]] == [(1, "forward"), (1, "backward")]
        assert records[0]["granted"] == {"lowest": 64, "highest": 64}

    def test_time_at_the_limit(self) -> None:
        """Two granted, three outstanding until the first reply."""
        file = capture("V1-CREDIT-EXCEEDED")
        (one,) = [json.loads(line) for line in run("transport", "--credits", file, "--json").stdout.splitlines()]
        assert (one["max_outstanding"], one["exceeded"], one["at_limit_count"]) == (3, 1, 1)
        assert 10_000 < one["at_limit_ns"] < 100_000
        assert sum(interval["at_limit_ns"] for interval in one["intervals"]) == one["at_limit_ns"]
        assert "above the limit" in run("transport", "--credits", file).stdout
