"""The words of the info column."""

from __future__ import annotations

import pytest

from playbook.samples import MANIFEST, analyzed
from rdmascope.dissect.records.packet_info import call_shown, reply_shown, title_of
from rdmascope.dissect.rpcrdma.rpc_table import ProcedureNames


def well_spaced(text: str) -> bool:
    return bool(text) and text == " ".join(text.split()) and " ;" not in text and " ," not in text


@pytest.mark.parametrize(
    ("names", "title"),
    [
        (ProcedureNames(None, None, None, None, (), ""), "Reply"),
        (ProcedureNames(100003, 3, None, None, (), ""), "NFS V3 Reply"),
        (ProcedureNames(100003, 3, None, 6, (), "READ"), "NFS V3 READ Reply"),
        (
            ProcedureNames(100003, 4, 2, 1, ("SEQUENCE", "PUTFH"), "COMPOUND"),
            "NFS V4.2 COMPOUND Reply SEQUENCE | PUTFH",
        ),
    ],
)
def test_a_title_without_a_name_has_no_gap(names: ProcedureNames, title: str) -> None:
    assert title_of(names, "Reply") == title
    assert well_spaced(title)


@pytest.mark.parametrize("name", [*MANIFEST])
def test_messages_of_every_sample_are_well_spaced(name: str) -> None:
    shown = [call_shown(rpc) for rpc in analyzed(name).rpcs if rpc.call is not None]
    shown += [reply_shown(rpc) for rpc in analyzed(name).rpcs if rpc.reply is not None]
    assert shown
    for protocol, info in shown:
        assert well_spaced(protocol) and well_spaced(info), info
        assert info.count("(") == info.count(")") and not info.startswith(f"{protocol} "), info
