"""The page of ``rdmascope report -o``, in a real browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from playbook import Wire, call, fetch, nfs3, reply, write_pcap
from playbook.browser import CHROMIUM, Page, browser
from playbook.commands import LOSS, PROGRAM, run
from playbook.rpc import Call, opaque
from rdmascope.captures.library import read
from rdmascope.cli.page import over_time
from rdmascope.cli.page.document import page_html
from rdmascope.cli.page.over_time import PageFacts

HOSTILE = (
    b"<script>alert(1)</script>",
    b'"><img src=x onerror=alert(2)>',
    b"</script><svg onload=alert(3)>",
    b"\x1b[2J\x1b]0;owned\x07",
    "\u202egnp.exe\u2066".encode(),
    b"&lt;b&gt;'`${alert(4)}",
    b"\xff\xfe\x00raw",
)
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (Debian: chromium)")


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a capture with losses, failures and calls without a reply."""
    path = tmp_path_factory.mktemp("page") / "loss.html"
    made = run("report", LOSS, "-o", str(path))
    assert made.exit_code == 0 and made.stdout.startswith(f"{path}: "), made.stderr
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Page]:
    with browser() as page:
        yield page


@pytest.fixture
def page(chromium: Page) -> Iterator[Page]:
    chromium.problems.clear()
    yield chromium
    assert chromium.problems == []


def first_column(page: Page, table: str) -> list[str]:
    """The names of the rows that are shown."""
    found: list[str] = page.value(
        f"[...document.querySelectorAll('#{table} tbody tr')].filter((row) => !row.hidden)"
        ".map((row) => row.cells[0].textContent)"
    )
    return found


def numbers(page: Page, table: str, column: int) -> list[float]:
    found: list[float] = page.value(
        f"[...document.querySelectorAll('#{table} tbody tr')].filter((row) => !row.hidden)"
        f".map((row) => Number(row.cells[{column}].dataset.v))"
    )
    return found


def click(page: Page, selector: str) -> None:
    page.value(f"document.querySelector({selector!r}).click()")


@in_browser
def test_it_loads_nothing_and_says_no_word_of_error(page: Page, lossy: Path) -> None:
    page.open(lossy)
    assert page.value("document.querySelectorAll('section').length") >= 8
    assert page.value("document.querySelector('main section h2').textContent") == "Diagnosis: 3 problems, 1 warning"
    assert page.value("[...document.querySelectorAll('.badge')].map((one) => one.textContent)")[0] == "problem"
    assert not page.value("[...document.querySelectorAll('[src], link')].length")


@in_browser
def test_tables_are_sorted_and_filtered_by_keyboard(page: Page, lossy: Path) -> None:
    page.open(lossy)
    waited = numbers(page, "procedures", 3)
    assert waited == sorted(waited, reverse=True) and len(waited) > 10
    page.value("document.querySelector('#procedures th[data-key=calls] button').focus()")
    page.key("Enter")
    calls = numbers(page, "procedures", 1)
    assert calls == sorted(calls, reverse=True)
    assert page.value("document.querySelector('#procedures th[data-key=calls]').ariaSort") == "descending"
    page.key("Enter")
    assert numbers(page, "procedures", 1) == calls[::-1]
    click(page, "#procedures th[data-key=name] button")
    names = first_column(page, "procedures")
    assert names == sorted(names) and page.value("document.querySelectorAll('[aria-sort=ascending]').length") == 1
    page.value("document.getElementById('filter-procedures').focus()")
    for letter in "seQ":
        page.key(letter)
    assert first_column(page, "procedures") == ["NFSv4.1 SEQUENCE"]
    assert page.value("document.getElementById('shown-procedures').textContent") == f"1 of {len(names)} rows"


@in_browser
def test_a_span_that_is_dragged_over_a_chart_filters_the_tables(page: Page, lossy: Path) -> None:
    """The capture has a burst after 8 s and another after 70 s."""
    page.open(lossy, height=3000)
    whole = sum(numbers(page, "procedures", 1))
    names = first_column(page, "connections")
    box = page.value("(({x, y, width}) => [x, y, width])(document.getElementById('charts').getBoundingClientRect())")
    left, top, width = box
    middle = left + 72 + (width - 88) / 2
    page.drag((middle, top + 120), (left + width - 20, top + 130))
    page.wait("document.getElementById('span-state').className === 'selected'")
    late = sum(numbers(page, "procedures", 1))
    assert 0 < late < whole
    assert first_column(page, "connections") == [name for name in names if name.startswith("2")]
    page.key("Escape")
    assert sum(numbers(page, "procedures", 1)) == whole and first_column(page, "connections") == names


@in_browser
def test_a_span_can_be_typed_and_adds_up_to_the_whole(page: Page, lossy: Path) -> None:
    page.open(lossy)
    whole = {table: sum(numbers(page, table, 1)) for table in ("procedures", "clients", "files", "connections")}
    failed = sum(numbers(page, "procedures", 2))
    parts = []
    for start, end in ((0, 36), (36, 72)):
        page.value(
            f"document.getElementById('span-from').value = {start}, document.getElementById('span-to').value = {end},"
            "document.querySelector('#span button').click()"
        )
        parts.append([sum(numbers(page, table, 1)) for table in whole])
        assert "from" in page.value("document.getElementById('span-state').textContent")
    assert [sum(both) for both in zip(*parts, strict=True)] == list(whole.values()) == [78] * 4
    assert sum(numbers(page, "procedures", 2)) == failed == 6
    assert all(shown.startswith("≈") for shown in page.value(
        "[...document.querySelectorAll('#clients tbody tr')].map((row) => row.cells[4].textContent)"
    ))  # fmt: skip
    click(page, "#span-clear")
    assert sum(numbers(page, "files", 1)) == 78


@in_browser
def test_a_link_of_the_diagnosis_opens_the_rpc_with_ladder_and_tree(page: Page, lossy: Path) -> None:
    page.open(lossy)
    link = page.value("document.querySelector('#diagnosis a[href^=\"#rpc-\"]').hash")
    assert not page.value(f"document.querySelector({link!r}).open")
    click(page, f'#diagnosis a[href="{link}"]')
    page.wait(f"document.querySelector({link!r}).open")
    assert page.value(f"document.querySelectorAll('{link} .ladder tbody tr').length") > 0
    assert "WRITE" in page.value(f"document.querySelector('{link} .tree').textContent")
    assert page.value("document.querySelectorAll('#slowest .ladder .notable').length") > 0


@in_browser
@pytest.mark.parametrize("width", [500, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_the_window_in_light_and_dark(page: Page, lossy: Path, width: int, dark: bool) -> None:
    page.open(lossy, width, dark=dark)
    page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.value("document.documentElement.scrollWidth") <= width
    back = page.value("getComputedStyle(document.body).backgroundColor")
    bright = sum(map(int, re.findall(r"\d+", back)[:3])) > 3 * 128
    assert bright is not dark
    inside = "Bokeh.documents[0].get_model_by_name('Latency')"
    assert page.value(f"{inside}.title.text_color") == ("#e4e8ee" if dark else "#1c2430")
    assert page.picture().startswith(b"\x89PNG")


@in_browser
def test_it_prints(page: Page, lossy: Path) -> None:
    page.open(lossy, dark=True)
    printed = page.pdf()
    assert printed.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", printed)) >= 3
    assert not page.value("document.querySelectorAll('#diagnosis details[open]').length")
    page.value("dispatchEvent(new Event('beforeprint'))")
    assert page.value("document.querySelectorAll('#diagnosis details[open]').length") == 4
    page.value("dispatchEvent(new Event('afterprint'))")
    assert not page.value("document.querySelectorAll('#diagnosis details[open]').length")
    drawn = "getComputedStyle(document.getElementById('charts')).filter"
    assert page.value(drawn) == "none"
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.value(drawn) != "none"
    page.open(lossy)
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.value(drawn) == "none"


@in_browser
def test_it_is_readable_without_eyes_or_pointer(page: Page, lossy: Path) -> None:
    page.open(lossy)
    assert page.value("document.documentElement.lang") == "en"
    for what in (
        "[...document.querySelectorAll('table')].filter((one) => !one.caption || !one.caption.textContent)",
        "[...document.querySelectorAll('thead th:not([scope=col]), tbody th:not([scope=row])')]",
        "[...document.querySelectorAll('input')].filter((one) => !one.labels.length)",
        "[...document.querySelectorAll('main > section')]"
        ".filter((one) => !document.getElementById(one.getAttribute('aria-labelledby')))",
        "[...document.querySelectorAll('[id]')].filter((one) => document.querySelectorAll('#' + one.id).length > 1)",
    ):
        assert page.value(f"{what}.map((one) => one.outerHTML.slice(0, 80))") == []
    page.key("Tab")
    assert page.value("document.activeElement.className") == "skip"


def hostile_wire() -> Wire:
    """Names of files that would act where they are not made harmless, some of calls that fail or are not answered."""
    wire = Wire()
    connection = wire.connect()
    for name in HOSTILE:
        for answer in nfs3.readlink_reply(name), nfs3.read_failed():
            lookup = Call(nfs3.PROGRAM, nfs3.VERSION, 3, (opaque(nfs3.FH) + opaque(name),))
            reply(call(connection, lookup), nfs3.read_failed(nfs3.NOENT))
            reply(call(connection, nfs3.readlink()), answer)
    fetch(call(connection, nfs3.symlink(HOSTILE[0], HOSTILE[1])))
    return wire


@in_browser
def test_hostile_names_do_nothing(page: Page, tmp_path: Path) -> None:
    capture = tmp_path / "<img src=x onerror=alert(5)>\u202e\x1b[31m&quot;'.pcap"
    write_pcap(hostile_wire().frames(), capture)
    made = run("report", str(capture), "-o", str(tmp_path / "page.html"))
    assert made.exit_code == 0, made.stderr
    page.open(tmp_path / "page.html")
    page.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert not page.value("document.querySelectorAll('main img, main svg, main script, h1 *, .sortable td *').length")
    names = first_column(page, "files")
    assert "/<script>alert(1)<\\x2fscript>" in {re.sub("^…", "", name) for name in names}
    shown = page.value("document.body.innerText")
    assert not set("\x1b\u202e\u2066\x07") & set(shown) and "onerror=alert(2)" in shown
    click(page, "#files th button")
    page.value("document.getElementById('span-to').value = 99, document.querySelector('#span button').click()")
    assert sorted(first_column(page, "files")) == sorted(names)


def test_nothing_that_acts_is_in_the_text(tmp_path: Path) -> None:
    """The same without a browser."""
    capture = tmp_path / "hostile.pcap"
    write_pcap(hostile_wire().frames(), capture)
    assert run("report", str(capture), "-o", str(tmp_path / "page.html")).exit_code == 0
    html = (tmp_path / "page.html").read_bytes().decode()
    ours = html.replace(over_time.library(), "")
    assert "<script>alert" not in ours and "<img" not in ours and "<svg" not in ours
    assert not set("\x1b\u202e\u2066\x07") & set(ours)
    assert (
        'http-equiv="Content-Security-Policy" content="default-src &#x27;none&#x27;; script-src &#x27;sha256-' in ours
    )


def test_a_page_that_would_be_too_large_leaves_rpcs_out_and_says_so() -> None:
    page = PageFacts(read(LOSS).session())
    whole = page_html(page)
    library = len(over_time.library())
    small = page_html(page, len(whole.encode()) - 20_000)
    assert library < len(small.encode()) < len(whole.encode()) - 20_000
    assert "in full, for the size of the page" in small and "for the size of the page" not in whole
    assert small.count('class="rpc"') < whole.count('class="rpc"')


def test_filters_hold_for_the_page_and_are_said_on_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert (
        run("report", LOSS, "-o", str(path), "--where", "procedure = 'COMPOUND' AND failed", "--top", "3").exit_code
        == 0
    )
    text = path.read_text()
    assert "Only 6 of 78 RPCs: procedure = &#x27;COMPOUND&#x27; AND failed" in text
    assert "3 RPCs, by latency" in text
    none = run("report", LOSS, "-o", str(path), "--where", "latency_ns < 0")
    assert none.exit_code == 2 and "no RPC of 78 passes" in none.stderr


def test_an_input_is_not_overwritten_and_one_page_is_of_one_capture(tmp_path: Path) -> None:
    copy = tmp_path / "loss.pcap.zst"
    copy.write_bytes(Path(LOSS).read_bytes())
    os.link(copy, tmp_path / "link.html")
    for output, words in (
        (copy, "would overwrite what is read"),
        (tmp_path / "link.html", "would overwrite what is read"),
        (tmp_path, "is a directory"),
        (tmp_path / "none" / "page.html", "no such directory"),
    ):
        refused = run("report", str(copy), "-o", str(output))
        assert refused.exit_code == 2 and words in refused.stderr, refused.stderr
    assert copy.read_bytes() == Path(LOSS).read_bytes()
    for other in "--json", "--each":
        refused = run("report", LOSS, "-o", str(tmp_path / "a.html"), other)
        assert re.search(rf"-o writes one page; leave .*{other}\b.* out", refused.stderr)
    assert not (tmp_path / "a.html").exists()


def test_without_bokeh_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    refused = run("report", LOSS, "-o", str(tmp_path / "page.html"))
    assert refused.exit_code == 2 and not list(tmp_path.iterdir())
    assert refused.stderr == "rdmascope: a page takes Bokeh, which is not installed: pip install 'rdmascope[html]'\n"


def test_a_truncated_capture_gives_its_page_and_its_exit_status(tmp_path: Path) -> None:
    wire = hostile_wire()
    capture = tmp_path / "cut.pcap"
    write_pcap(wire.frames(), capture)
    capture.write_bytes(capture.read_bytes()[:-7])
    made = run("report", str(capture), "-o", str(tmp_path / "page.html"))
    assert made.exit_code == 2 and "cut.pcap" in made.stderr
    assert "Not decoded" in (tmp_path / "page.html").read_text()


def test_a_capture_without_rpcs_gives_a_page_without_charts(tmp_path: Path) -> None:
    wire = Wire()
    wire.connect()
    write_pcap(wire.frames(), tmp_path / "empty.pcap")
    assert run("report", str(tmp_path / "empty.pcap"), "-o", str(tmp_path / "page.html")).exit_code == 0
    text = (tmp_path / "page.html").read_text()
    assert "Diagnosis" in text and 'id="charts"' not in text.replace(over_time.library(), "")


def test_saved_tables_give_the_numbers_of_their_capture(tmp_path: Path) -> None:
    assert run("sql", LOSS, "--save", str(tmp_path / "saved.duckdb")).exit_code == 0
    rows = []
    for source in (LOSS, str(tmp_path / "saved.duckdb")):
        assert run("report", source, "-o", str(tmp_path / "page.html")).exit_code == 0
        text = (tmp_path / "page.html").read_text()
        rows.append(re.findall(r"<tr data-row=.*?</tr>", text))
    assert rows[0] == rows[1] and len(rows[0]) > 20


def test_several_captures_and_standard_input_give_one_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    subprocess.run([*PROGRAM, "report", "-", "-o", str(page)], input=Path(LOSS).read_bytes(), check=True)
    assert "78 RPCs" in page.read_text()
    other = tmp_path / "other.pcap"
    write_pcap(hostile_wire().frames(), other)
    assert run("report", LOSS, str(other), "-o", str(page)).exit_code == 0
    assert "107 RPCs" in page.read_text()


def test_long_names_are_shortened(tmp_path: Path) -> None:
    wire = Wire()
    connection = wire.connect()
    for number in range(30):
        name = b"%03d" % number + b"<" * 250
        lookup = Call(nfs3.PROGRAM, nfs3.VERSION, 3, (opaque(nfs3.FH) + opaque(name),))
        reply(call(connection, lookup), nfs3.read_failed(nfs3.NOENT))
    write_pcap(wire.frames(), tmp_path / "long.pcap")
    assert run("report", str(tmp_path / "long.pcap"), "-o", str(tmp_path / "page.html")).exit_code == 0
    text = (tmp_path / "page.html").read_text()
    assert "more …" in text and f"029{'&lt;' * 250}" not in re.sub("<section id=.slowest.*", "", text, flags=re.DOTALL)
