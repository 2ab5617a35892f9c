"""Which paths are URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from playbook.commands import EVERYTHING, run
from rdmascope.captures import CaptureError
from rdmascope.captures.read.remote import is_url, local, refuse_url, scheme, without_query


@pytest.mark.parametrize("path", ["a.pcap", "/a/b.pcap", "-", "fe80::1.pcap", "C:/a.pcap", "1s3://a"])
def test_paths(path: str) -> None:
    assert scheme(path) == "" and not is_url(path) and local(path) == path == without_query(path)
    refuse_url(path)


def test_urls() -> None:
    assert is_url("S3://bucket/a.pcap") and is_url("https://host/a.pcap?b")
    assert without_query("https://host/a.pcap?b") == "https://host/a.pcap"
    assert without_query("s3://host/a?.pcap") == "s3://host/a?.pcap"
    for output in ("s3://bucket/x", Path("s3://bucket/x")):
        with pytest.raises(CaptureError, match=f"{output}: cannot write to a URL"):
            refuse_url(output)


def test_a_file_of_this_machine_is_that_file(tmp_path: Path) -> None:
    assert not is_url("file:///a%20b.pcap") and local("file:///a%20b.pcap") == "/a b.pcap"
    copy = tmp_path / "a b.pcap.zst"
    copy.write_bytes(Path(EVERYTHING).read_bytes())
    assert run("rpcs", copy.as_uri(), "--json").stdout == run("rpcs", str(copy), "--json").stdout
    refused = run("report", copy.as_uri(), "-o", str(copy))
    assert refused.exit_code == 2 and "would overwrite what is read" in refused.stderr
