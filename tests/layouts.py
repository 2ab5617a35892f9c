"""Writes dissect/layers/layouts.py: ``python tests/layouts.py``, or ``make layouts``.

The headers are declared in the layers, as Scapy packets; this only notes the widths of their fields, so that the bulk
path need not start Scapy.  A test fails where the note is stale.
"""

from __future__ import annotations

from pathlib import Path

from rdmascope.dissect.layers import bth, cm, mpa
from rdmascope.dissect.layers.columns import layout

PLACE = Path(__file__).parent.parent / "dissect" / "layers" / "layouts.py"

HEADERS = (
    bth.BTH,
    bth.RETH,
    bth.AtomicETH,
    bth.AtomicAckETH,
    bth.AETH,
    bth.DETH,
    bth.ImmDt,
    bth.IETH,
    mpa.DDPTagged,
    mpa.DDPUntagged,
    mpa.RDMAPReadRequest,
    cm.MAD,
    cm.IPCMRequest,
    *(layer for _, layer in cm.CM_MESSAGES.values()),
)


def text() -> str:
    """What layouts.py must hold."""
    lines = [
        '"""Field widths in bits of the headers that the bulk path reads: written by make layouts, do not edit."""',
        "",
        "LAYOUTS: dict[str, tuple[tuple[str, int], ...]] = {",
    ]
    for header in HEADERS:
        lines.append(f'    "{header.__name__}": (')
        lines += [f'        ("{name}", {bits}),' for name, bits in layout(header)]
        lines.append("    ),")
    return "\n".join([*lines, "}", ""])


if __name__ == "__main__":
    PLACE.write_text(text())
