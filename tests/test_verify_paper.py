"""docs/verify.md: what `rdmascope verify` compares with Wireshark, from the tables that it compares by.

``python tests/test_verify_paper.py`` writes it.
"""

from __future__ import annotations

from pathlib import Path

from rdmascope.dissect.verify.frame_fields import HEADER_FIELDS, PACKET_NAMES
from rdmascope.dissect.verify.rpc_field_names import NAMES
from rdmascope.dissect.verify.second_opinion import HASHES, SPANNING, STATEID_HASH

PAPER = Path(__file__).parents[1] / "docs" / "verify.md"

HEAD = """# What `rdmascope verify` compares with Wireshark

Made from `dissect/verify/` by `python tests/test_verify_paper.py`; a test keeps it so.

tshark reads the same frames, in two passes. Compared are, frame by frame, the headers of packets and of RPC-over-RDMA,
and which reply answers which call. Then all calls and replies of which no byte is missing are written as ONC RPC over
TCP, which Wireshark dissects in full, and compared field by field: what it shows at a place of a message is there, with
the same bytes, under a name that means the same; and of what is there it shows all. Where the two differ, a table of
what Wireshark is known to get wrong (in `frame_fields.py` and `second_opinion.py`) says which of them is right, where
that is known; all else is a difference without explanation, and exit status 1.

Not compared: messages of which bytes are missing, replies whose call is not in the capture (Wireshark cannot decode
their results), and what RPCSEC_GSS seals.
"""


def generated() -> str:
    rows = "".join(
        f"| `{name}` | {', '.join(f'`{one}`' for one in ours) or 'a count, or that a value follows'} |\n"
        for name, ours in NAMES.items()
    )
    return "\n".join(
        (
            HEAD,
            "## Headers of packets\n",
            ", ".join(f"`{name}`" for name in sorted(PACKET_NAMES)) + "\n",
            "## RPC-over-RDMA headers\n",
            ", ".join(f"`{name}`" for name in sorted(HEADER_FIELDS)) + "\n",
            "## Fields of calls and replies\n",
            f"{len(NAMES)} of Wireshark's names, and the names of the RFCs that `show` has for them (nfs.md has their "
            "types). "
            + " and ".join(f"`{name}`" for name in sorted(HASHES))
            + f" are compared as the CRC-32 that Wireshark shows, too, and `{STATEID_HASH}` as its CRC-16, which the "
            "info column of `packets` has. Left out are "
            + ", ".join(f"`{name}`" for name in sorted(SPANNING))
            + ", which stand for several fields at once, or for none of the message.\n",
            f"| Wireshark | here |\n| --- | --- |\n{rows}",
        )
    )


def test_the_paper_is_that_of_the_tables() -> None:
    assert PAPER.read_text() == generated()


def test_at_least_150_fields_are_mapped() -> None:
    assert len(NAMES) >= 150


if __name__ == "__main__":
    PAPER.write_text(generated())
