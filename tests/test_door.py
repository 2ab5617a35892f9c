"""``import rdmascope``: the same answers as the commands give, without click or rich."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import rdmascope
from playbook.commands import BOTH_WAYS, EVERYTHING, LONG_CALLS, objects, run as command
from rdmascope.dissect.records.rpc_columns import DTYPES

SAMPLES = Path(LONG_CALLS).parent


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_neither_click_nor_rich_nor_duckdb_stands_behind_it() -> None:
    loaded = run(
        "import sys, rdmascope\n"
        "light = 'numpy' in sys.modules\n"
        f"capture = rdmascope.read({LONG_CALLS!r})\n"
        "list(capture.rpcs()), list(capture.packets(1, 9)), list(capture.findings()), capture.table('segments')\n"
        "print(light, *(name in sys.modules for name in ('click', 'rich', 'duckdb')))"
    )
    assert loaded == "False False False False\n"


def test_every_name_is_there() -> None:
    assert all(getattr(rdmascope, name) is not None for name in rdmascope.__all__)
    assert set(rdmascope.__all__) <= set(dir(rdmascope))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        rdmascope.Nothing  # noqa: B018


def test_the_module_is_the_command() -> None:
    started = [sys.executable, "-X", "importtime", "-m", "rdmascope", "--version"]
    result = subprocess.run(started, capture_output=True, text=True)
    assert (result.returncode, rdmascope.__version__ in result.stdout) == (0, True)
    assert "numpy" not in result.stderr, "every start of the program would wait for it"


def test_rpcs_are_those_of_the_command() -> None:
    printed = objects("rpcs", LONG_CALLS)
    capture = rdmascope.read(LONG_CALLS)
    assert sorted((rpc.number, rpc.xid, rpc.state, rpc.status or None) for rpc in capture) == [
        (one["number"], one["xid"], one["state"], one["status"]) for one in printed
    ]
    assert capture.damage is None
    assert [one.number for one in capture.connections] == sorted({one["connection"] for one in printed})


def test_packets_are_those_of_the_command() -> None:
    printed = objects("packets", LONG_CALLS, "--frame", "40-60")
    listed = list(rdmascope.read(LONG_CALLS).packets(40, 60))
    assert [(one.frame, one.protocol, one.info, one.rpc) for one in listed] == [
        (one["frame"], one["protocol"], one["info"], one["rpc"]) for one in printed
    ]


def test_findings_are_those_of_the_command() -> None:
    audited = objects("audit", "--fail-on", "NEVER", EVERYTHING)
    (violations,) = (one["violations"] + one["notes"] for one in audited if one["type"] == "audit")
    found = list(rdmascope.read(EVERYTHING).findings())
    assert len(found) == violations
    assert {one.rule.id for one in found} == {one["rule"] for one in audited if one["type"] == "finding"}
    few = Counter(
        (one.rule.id, one.connection.number) for one in rdmascope.read(EVERYTHING).findings("PD-*", examples=2)
    )
    assert few and set(few.values()) <= {1, 2}
    with pytest.raises(rdmascope.CaptureError, match="no rule 'V9-X'"):
        rdmascope.read(EVERYTHING).findings("V9-X")


def test_a_page_is_that_of_the_command(tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    capture = rdmascope.read(LONG_CALLS)
    size = rdmascope.write_page(capture, tmp_path / "page.html")
    subprocess.run(
        [sys.executable, "-m", "rdmascope", "report", LONG_CALLS, "-o", str(tmp_path / "other.html")], check=True
    )
    ours, theirs = ((tmp_path / name).read_text() for name in ("page.html", "other.html"))
    assert size == len(ours.encode()) and ours.split("<script")[0] == theirs.split("<script")[0]
    rdmascope.write_page(capture, tmp_path / "page.html", where=["procedure = 'COMPOUND'"], top=1, audit=False)
    short = (tmp_path / "page.html").read_text()
    assert "procedure = &#x27;COMPOUND&#x27;" in short and "Not judged here" in short
    with pytest.raises(rdmascope.CaptureError, match="would overwrite what is read"):
        rdmascope.write_page(capture, LONG_CALLS)


@pytest.mark.parametrize("name", rdmascope.TABLES)
def test_columns_of_a_table_have_one_length_and_their_types(name: str) -> None:
    table = rdmascope.TABLES[name]
    columns = rdmascope.read(EVERYTHING).table(name)
    assert list(columns) == [column.name for column in table.columns]
    rows = {len(values) for values in columns.values()}
    assert len(rows) == 1 and (rows == {0}) == (name == "places")  # Which are of several files.
    kinds = {kind: np.dtype(dtype) for kind, (dtype, _) in DTYPES.items()}
    for column in table.columns:
        assert columns[column.name].dtype == kinds[column.type], column.name
        if column.type == "text":
            assert all(isinstance(value, str) for value in columns[column.name].compressed())


def test_a_table_says_what_the_records_say() -> None:
    table, printed = rdmascope.read(BOTH_WAYS).table("rpcs"), objects("rpcs", BOTH_WAYS)
    latency = {one["number"]: one["latency_ns"] for one in printed}
    known = {
        int(number): None if value is np.ma.masked else int(value)
        for number, value in zip(table["number"], table["latency_ns"], strict=True)
    }
    assert known == latency
    segments = rdmascope.read(LONG_CALLS).table("segments")
    offsets = {
        segment["offset"]
        for one in objects("rpcs", LONG_CALLS, "--full")
        for chunk in one["chunk_list"]
        for segment in chunk["segments"]
    }
    assert {int(offset) for offset in segments["offset_bytes"]} == offsets


def test_sql_gives_columns() -> None:
    with rdmascope.read(EVERYTHING) as capture:
        answer = capture.sql("SELECT 1; SELECT state, count(*) AS calls, max(minor_version) AS v, max(time) AS t, "
                             "sum(xid) AS s FROM rpcs GROUP BY ALL ORDER BY calls DESC")  # fmt: skip
        assert list(answer) == ["state", "calls", "v", "t", "s"] and answer.length == 2
        assert answer["calls"].tolist() == [219, 18] and answer["calls"].dtype == np.int64
        assert answer["s"].sum() == capture.table("rpcs")["xid"].sum() and answer["s"].dtype == np.int64
        assert answer["t"].max() == capture.table("rpcs")["time"].max()
        names = capture.sql("DESCRIBE files")["column_name"].tolist()
        assert names == [column.name for column in rdmascope.TABLES["files"].columns]
        with pytest.raises(rdmascope.CaptureError, match="did you mean"):
            capture.sql("SELECT latency FROM rpcs")
        assert capture.sql("CREATE TABLE x (y INTEGER)") == {}


def test_columns_become_those_of_arrow_and_pandas() -> None:
    table = rdmascope.read(BOTH_WAYS).table("rpcs")
    numbers, delays = table["number"].tolist(), table["latency_ns"].tolist()
    arrow = pytest.importorskip("pyarrow") and table.arrow()
    assert (arrow["number"].to_pylist(), arrow["latency_ns"].to_pylist()) == (numbers, delays)
    assert arrow["procedure"].to_pylist() == table["procedure"].tolist()
    assert str(arrow.schema.field("time").type) == "timestamp[ns]"


def test_integers_stay_exact_in_pandas() -> None:
    pytest.importorskip("pandas")
    frame = rdmascope.read(LONG_CALLS).sql("SELECT offset_bytes, 1::BIGINT AS n, NULL::BIGINT AS z FROM segments").df()
    offsets = rdmascope.read(LONG_CALLS).table("segments")["offset_bytes"].tolist()
    assert frame["offset_bytes"].tolist() == offsets and max(offsets) > 1 << 53
    assert frame["z"].isna().all() and str(frame["n"].dtype) in ("Int64", "int64")


@pytest.mark.parametrize(("method", "module"), [("arrow", "pyarrow"), ("df", "pandas")])
def test_what_is_not_installed_is_named(method: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    table = rdmascope.ColumnTable({"x": np.ma.MaskedArray([1])})
    with pytest.raises(rdmascope.CaptureError, match=f"{module}, which is not installed: pip install"):
        getattr(table, method)()


def test_a_missing_file_raises_and_a_damaged_one_gives_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(rdmascope.CaptureError, match="no such file"):
        list(rdmascope.read(tmp_path / "none.pcap").rpcs())
    import zstandard

    whole = zstandard.ZstdDecompressor().decompressobj().decompress(Path(LONG_CALLS).read_bytes())
    damaged = tmp_path / "damaged.pcap"
    damaged.write_bytes(whole[: len(whole) // 2 + 3])
    capture = rdmascope.read(damaged)
    assert list(capture.rpcs())
    assert isinstance(capture.damage, rdmascope.CaptureError)
    with pytest.raises(rdmascope.CaptureError):
        capture.check()


def test_a_pass_can_be_left_early() -> None:
    with rdmascope.read(EVERYTHING) as capture:
        first = next(iter(capture))
        assert first.number
    assert capture.frames == 3697


def test_progress_and_limits() -> None:
    seen: list[tuple[int, int | None, int]] = []
    limits = rdmascope.Limits(frames=500)
    capture = rdmascope.read(EVERYTHING, limits=limits, progress=lambda *at: seen.append(at))
    assert len(list(capture.rpcs())) == 237
    assert [frames for _, _, frames in seen] == sorted(frames for _, _, frames in seen)
    assert seen[-1][2] == 3697 and len(seen) > 7


def test_whole_messages() -> None:
    for rpc in rdmascope.read(LONG_CALLS):
        call = rdmascope.reassembled_call(rpc)
        assert call is not None and call.complete
        assert int.from_bytes(call.prefix[:4], "big") == rpc.xid


def test_records_of_nouns_can_be_made() -> None:
    from rdmascope.dissect.records.rpc_lines import rpc_record

    (first, *_) = rdmascope.read(LONG_CALLS)
    assert json.loads(json.dumps(rpc_record(first)))["type"] == "rpc"


def test_saved_tables_stand_for_a_capture(tmp_path: Path) -> None:
    path = str(tmp_path / "tables.duckdb")
    rdmascope.read(BOTH_WAYS).save(path)
    with rdmascope.read(path) as saved, rdmascope.read(BOTH_WAYS) as fresh:
        for name, table in rdmascope.TABLES.items():
            mine, theirs = saved.table(name), fresh.table(name)
            assert {one.name: mine[one.name].dtype for one in table.columns} == {
                one.name: theirs[one.name].dtype for one in table.columns
            }
            assert {name: values.tolist() for name, values in mine.items()} == {
                name: values.tolist() for name, values in theirs.items()
            }, name
        assert [one.xid for one in saved] == [one.xid for one in fresh]
        assert [one.observed for one in saved.findings()] == [one.observed for one in fresh.findings()] != []
        assert (saved.frames, len(saved.connections)) == (fresh.frames, len(fresh.connections))
        assert saved.place(7) == (BOTH_WAYS, 7)
        query = "SELECT state, count(*) AS n FROM rpcs GROUP BY ALL ORDER BY 1"
        assert saved.sql(query)["n"].tolist() == fresh.sql(query)["n"].tolist()
        for asked in (lambda: list(saved.packets()), lambda: saved.rpcs(lambda _: None)):  # type: ignore[arg-type,return-value]
            with pytest.raises(rdmascope.CaptureError, match="holds tables, in which"):
                asked()
        with pytest.raises(rdmascope.CaptureError, match="holds tables, in which packets are not"):
            saved.save(tmp_path / "again.duckdb")
    with rdmascope.read(path, ports=[1]) as anew, rdmascope.read(BOTH_WAYS, ports=[1]) as fresh:
        assert [one.number for one in anew] == [one.number for one in fresh]
        query = "SELECT count(*) AS n FROM packets"
        assert anew.sql(query)["n"].tolist() == fresh.sql(query)["n"].tolist()
    with pytest.raises(rdmascope.CaptureError, match="what ports, force"):
        list(rdmascope.read(path, ports=[1], follow=rdmascope.Follow(idle=0)))


def test_groups_are_those_of_the_command() -> None:
    capture = rdmascope.read(BOTH_WAYS)
    printed = objects("report", BOTH_WAYS, "--by", "client,procedure", "--where", "connection = 1")
    groups = capture.groups("client", "procedure", where=["connection = 1"])
    found = {(*one["by"].values(),): (one["rpcs"], one["errors"]) for one in printed if one["type"] == "group"}
    assert {group.key: (group.calls, group.errors) for group in groups.groups()} == found
    with pytest.raises(rdmascope.CaptureError, match="nothing is grouped by"):
        capture.groups("colour")
    with pytest.raises(rdmascope.CaptureError, match="passes the filter"):
        capture.groups("client", where=["latency_ns > 1e15"])


def test_times_are_those_of_the_command() -> None:
    printed = [one for one in objects("report", EVERYTHING, "--over-time") if one["type"] == "interval"]
    intervals = rdmascope.read(EVERYTHING).over_time()
    assert [(one.begin, one.calls, one.percentile(99)) for one in intervals] == [
        (one["begin_ns"], one["rpcs"], one["p99_ns"]) for one in printed
    ]


def test_service_levels_are_those_of_the_command() -> None:
    levels = ("READ p99 < 30ms", "GETATTR median < 1us")
    done = command("report", EVERYTHING, "--slo", levels[0], "--slo", levels[1], "--json")
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    judged = rdmascope.read(EVERYTHING).service_levels(*levels)
    assert [(one.verdict, one.value, one.beyond) for one in judged] == [
        (one["verdict"], one["value_ns"], one["beyond"]) for one in printed if one["type"] == "service_level"
    ]
    assert judged[1].spans()
    with pytest.raises(rdmascope.CaptureError, match="no service level"):
        rdmascope.read(EVERYTHING).service_levels("READ < 4")


def test_what_is_printed_is_short() -> None:
    capture = rdmascope.read(EVERYTHING)
    rpcs = list(capture)
    assert all(len(repr(rpc)) < 300 and "\n" not in repr(rpc) for rpc in rpcs)
    assert repr(rpcs[0]).startswith("<RPC 1 on connection 1: ")
    printed = repr(capture.table("rpcs")).splitlines()
    assert len(printed) == 12 and printed[0].split()[0] == "number"
    assert printed[-1].startswith("[237 rows, ") and printed[-1].endswith(" columns not shown]")
    page = capture.table("rpcs")._repr_html_()
    assert page.count("<tr>") == 11 and "237 rows" in page
    bad = rdmascope.ColumnTable({"a": np.ma.MaskedArray(["<b>\x1b[1m", "x" * 99], dtype=object, mask=[False, True])})
    assert "\x1b" not in repr(bad) + bad._repr_html_() and "<b>" not in bad._repr_html_()
    assert repr(rdmascope.ColumnTable({})) == "[0 rows, 0 columns]"


def test_an_rpc_by_its_number() -> None:
    capture = rdmascope.read(EVERYTHING)
    assert (capture.rpc(27).number, capture.rpc(27).name) == (27, list(capture)[26].name)
    with pytest.raises(rdmascope.CaptureError, match="no RPC 999; there are 237"):
        capture.rpc(999)


def test_a_name_that_nothing_has_gets_those_that_there_are() -> None:
    capture = rdmascope.read(LONG_CALLS)
    with pytest.raises(rdmascope.CaptureError, match=r"no table 'rpc'; there are .*rpcs"):
        capture.table("rpc")
    with pytest.raises(rdmascope.CaptureError, match=r"no detector 'slow'; there are .*packets-missing"):
        capture.diagnosis("slow")


def test_when_a_file_is_opened(tmp_path: Path) -> None:
    with pytest.raises(rdmascope.CaptureError, match="no such file"):
        rdmascope.read(tmp_path / "none.pcap")
    (tmp_path / "text").write_text("no capture at all, only words and words")
    with pytest.raises(rdmascope.CaptureError, match="text"):
        rdmascope.read(tmp_path / "text")
    assert rdmascope.read("-").paths == "-"


def test_tables_are_taken_by_others_as_they_are() -> None:
    pytest.importorskip("pyarrow")
    polars, duckdb, pandas = (pytest.importorskip(name) for name in ("polars", "duckdb", "pandas"))
    table = rdmascope.read(BOTH_WAYS).table("rpcs")
    taken = polars.DataFrame(table)
    assert taken.shape == (table.length, len(table)) and taken["latency_ns"].to_list() == table["latency_ns"].tolist()
    assert duckdb.sql('SELECT count(*), count(latency_ns) FROM "table"').fetchall() == [
        (table.length, int(table["latency_ns"].count()))
    ]
    assert pandas.DataFrame.from_arrow(table).shape == taken.shape
