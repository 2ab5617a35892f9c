"""Every dependency, direct or not, may be distributed together with Scapy, which is under version 2 of the GPL only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, metadata

import pytest
from packaging.requirements import Requirement

COMPATIBLE = {
    "0BSD": "permissive, without conditions",
    "BSD": "permissive: BSD without its advertising clause, GPL-compatible by the FSF's list",
    "BSD-2-Clause": "permissive, GPL-compatible by the FSF's list",
    "BSD-3-Clause": "permissive, GPL-compatible by the FSF's list",
    "CC0-1.0": "public domain, GPL-compatible by the FSF's list",
    "GPL-2.0-only": "the licence itself",
    "MIT": "permissive, GPL-compatible by the FSF's list (there: Expat)",
    "MIT-CMU": "permissive: MIT with a clause about names",
    "PSF-2.0": "permissive, GPL-compatible by the FSF's list",
    "Zlib": "permissive, GPL-compatible by the FSF's list",
}
"""Licences that the FSF calls compatible with version 2 of the GPL -> why."""
SPELLED = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 3-Clause License": "BSD-3-Clause",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Other spellings in the metadata of packages -> SPDX identifier."""
BY_THE_USER = {
    "arrow": {"pyarrow": "Arrow's own library, which writes its files and Parquet; CSV is written without it"},
    "cluster": {
        "pyarrow": "data sets are Parquet",
        "importlib-metadata": "Dask takes it",
        "lazy-importer": "Dask takes it",
        "msgpack": "Dask takes it",
        "sortedcontainers": "Dask takes it",
        "tornado": "Dask takes it",
    },
    "html": {"tornado": "Bokeh takes it, for servers that this program does not run"},
    "metrics": {"prometheus-client": "the library of Prometheus; nothing else serves its format"},
    "remote": {
        "aiobotocore": "s3fs takes it",
        "aiohttp": "fsspec takes it for HTTP",
        "aiosignal": "aiohttp takes it",
        "botocore": "s3fs takes it",
        "frozenlist": "aiohttp takes it",
        "multidict": "aiohttp takes it",
        "propcache": "aiohttp takes it",
        "yarl": "aiohttp takes it",
    },
}
"""Extra -> package under the Apache License 2.0 -> why it is there all the same: it is only ever combined with Scapy by
the user who installs the extra, and not distributed with it."""
BY_THE_USER["all"] = {name: why for one in [*BY_THE_USER.values()] for name, why in one.items()}
NOT_DISTRIBUTED = ("docs", "test", "fuzz")
"""Extras of which nothing runs in the program."""


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def dependencies(package: str, extra: str = "") -> set[str]:
    """Names of all packages that a package needs on this machine, itself left out."""
    found: set[tuple[str, str]] = set()

    def follow(name: str, extra: str) -> None:
        try:
            needed = [Requirement(line) for line in distribution(name).requires or ()]
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed")
        for one in needed:
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                for wanted in ("", *one.extras):
                    key = normalised(one.name), wanted
                    if key not in found:
                        found.add(key)
                        follow(one.name, wanted)

    follow(package, extra)
    return {name for name, _ in found} - {package}


def licence(package: str) -> str:
    """Of an installed package as an SPDX expression, as far as its metadata says; '' where they do not."""
    about = metadata(package)
    classified = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier", ()) if one.startswith("License ::")]
    fields = ["\n".join(about.get_all(name, ())) for name in ("License-Expression", "License")]
    words = [one for field in fields for one in field.splitlines()[:1] if "opyright" not in one] + classified
    known = [SPELLED.get(one, one) for one in map(str, words) if one]
    return next((one for one in known if one in COMPATIBLE), next(iter(known), ""))


def compatible(expression: str) -> bool:
    """Whether what an SPDX expression, without brackets, allows can be combined with version 2 of the GPL."""
    return any(all(one in COMPATIBLE for one in either.split(" AND ")) for either in expression.split(" OR "))


def incompatible(extra: str = "") -> Iterator[str]:
    return (name for name in sorted(dependencies("rdmascope", extra)) if not compatible(licence(name)))


def extras() -> list[str]:
    return [one for one in metadata("rdmascope").get_all("Provides-Extra", ()) if one not in NOT_DISTRIBUTED]


def test_the_core_can_be_distributed_with_scapy() -> None:
    assert {"fastcrc", "mdurl"} <= dependencies("rdmascope") and "scapy" in dependencies("rdmascope", "layers")
    assert {name: licence(name) for name in incompatible()} == {}


@pytest.mark.parametrize("extra", extras())
def test_extras_name_what_only_the_user_may_combine(extra: str) -> None:
    everything = {name: why for names in BY_THE_USER.values() for name, why in names.items()}
    excused = everything if extra == "all" else BY_THE_USER.get(extra, {})
    found = {name: licence(name) for name in incompatible(extra)}
    assert {name: words for name, words in found.items() if name not in excused} == {}
    assert excused.keys() <= found.keys()


@pytest.mark.parametrize(
    ("expression", "can"),
    [
        ("MIT", True),
        ("Apache-2.0", False),
        ("Apache-2.0 OR BSD-2-Clause", True),
        ("Apache-2.0 AND BSD-2-Clause", False),
        ("", False),
    ],
)
def test_expressions(expression: str, can: bool) -> None:
    assert compatible(expression) is can
