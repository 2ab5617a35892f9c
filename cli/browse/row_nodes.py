"""What a row says, before anything is read for it, and where it leads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from rdmascope.dissect.audit.rule import all_rules
from rdmascope.dissect.units import seconds

from ..views.audit import FindingCells, finding_view, rule_view
from ..views.rows import cell
from .nodes import TreeNode, nodes_of

WIDTH = 100


def values_of(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is known of it: names of columns and values."""
    return [(name, cell(value)) for name, value in row.items() if value is not None]


def copied_values(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The same, with the XID as lists show it, too."""
    found = values_of(row)
    if row.get("xid") is not None:
        at = [name for name, _ in found].index("xid")
        found.insert(at + 1, ("xid, hexadecimal", f"{row['xid']:#010x}"))
    return found


def row_nodes(noun: str, row: Mapping[str, Any], first_time: int) -> list[TreeNode]:
    """A line for each value that is known; a finding as ``audit`` shows it, its rule; and what belongs to it."""
    nodes = []
    for name, value in values_of(row):
        label = Text.assemble((name, "cyan"), f": {value}")
        if name.endswith("time_ns"):
            label.append(f"  ({seconds(row[name] - first_time)} s)", "dim")
        if name == "xid":
            label.append(f"  ({row[name]:#010x})", "dim")
        nodes.append(TreeNode(label))
    if noun == "findings":
        nodes = [*nodes_of((finding_view(FindingCells.of_row(row)),), WIDTH), TreeNode(Text("its row", "bold"), nodes)]
        if row["rpc"] is not None:
            nodes.insert(0, TreeNode(Text(f"RPC {row['rpc']}"), goes_to=("rpcs", row["rpc"])))
        if row["frame"] is not None:
            nodes.insert(0, TreeNode(Text(f"packet in frame {row['frame']}"), goes_to=("packets", row["frame"])))
        rule = all_rules().get(row["rule"])
        if rule is not None:
            nodes.append(TreeNode(Text(f"the rule {rule.id}", "bold"), [*nodes_of((rule_view(rule),), WIDTH)]))
    if noun in ("rpcs", "findings"):
        connection = row["connection"]
        nodes.append(TreeNode(Text(f"connection {connection}"), goes_to=("connections", connection)))
    return nodes
