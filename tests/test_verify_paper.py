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

tshark reads the same frames, in two passes. `verify` compares, frame by frame, the headers of packets and of
RPC-over-RDMA, and which reply answers which call. It then writes all complete calls and replies as ONC RPC over TCP,
which Wireshark dissects in full, and compares them field by field, in both directions: each field must have the same
offset, the same bytes and a name that means the same. Known errors of Wireshark (in `frame_fields.py` and
`second_opinion.py`) explain some differences; any other one ends `verify` with exit status 1.

Not compared are incomplete messages, replies whose call is not in the capture (Wireshark cannot decode
their results), and what RPCSEC_GSS encrypts.
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
            + f" are also compared as the CRC-32 that Wireshark shows, and `{STATEID_HASH}` as its CRC-16, which the "
            "info column of `packets` has. Left out are "
            + ", ".join(f"`{name}`" for name in sorted(SPANNING))
            + ", which stand for several fields, or for none.\n",
            f"| Wireshark | here |\n| --- | --- |\n{rows}",
        )
    )


def test_the_paper_is_that_of_the_tables() -> None:
    assert PAPER.read_text() == generated()


def test_at_least_150_fields_are_mapped() -> None:
    assert len(NAMES) >= 150


if __name__ == "__main__":
    PAPER.write_text(generated())
