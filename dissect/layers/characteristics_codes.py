"""Transport characteristics of RPC-over-RDMA version 2 and the options that carry them (xcharext-02, 2 to 4).

``OPTIONS`` and ``CHARACTERISTICS`` are all there is to know about them: a new one is a row there (and, for an option,
a noun in ``rpcrdma.characteristics`` to read it into).  ``rpcrdma`` of the layers makes Scapy packets of the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..named_tuple import NamedTuple

XCHAR_RBSIZ, XCHAR_REQREMINV, XCHAR_BRS = 1, 2, 3
BKREQSUP_NONE, BKREQSUP_INLINE, BKREQSUP_GENL = 0, 1, 2
ROPT_INITXCH, ROPT_REQXCH, ROPT_RESPXCH, ROPT_UPDXCH = 1, 2, 3, 4

EXPERIMENTAL = range(4294967040, 4294967296)
"""Identifiers for experiments (xcharext-02, 6.2)."""

MAX_SHOWN = 16
"""Bytes of an unknown value that are shown."""


class CharacteristicKind(NamedTuple):
    """A row of Table 1 (xcharext-02, 3)."""

    name: str
    type: str
    """'uint32', 'bool' or 'enum'."""
    default: int | bool
    """The value in force until another one is announced."""
    section: str
    values: Mapping[int, str] = MappingProxyType({})
    """The values of an enum."""


CHARACTERISTICS = {
    XCHAR_RBSIZ: CharacteristicKind("Receive Buffer Size", "uint32", 4096, "3.1"),
    XCHAR_REQREMINV: CharacteristicKind("Requester Remote Invalidation", "bool", False, "3.2"),
    XCHAR_BRS: CharacteristicKind(
        "Backward Request Support",
        "enum",
        BKREQSUP_INLINE,
        "3.3",
        {BKREQSUP_NONE: "BKREQSUP_NONE", BKREQSUP_INLINE: "BKREQSUP_INLINE", BKREQSUP_GENL: "BKREQSUP_GENL"},
    ),
}


class Characteristic(NamedTuple):
    """An xcharval: which characteristic, and its value (xcharext-02, 2.1)."""

    which: int
    """xchv_which."""
    data: bytes
    """xchv_data, without its pad."""
    value: int | bool | None = None
    """``data`` as the type in CHARACTERISTICS; None where that is not known, or the bytes are no such value."""
    problem: str = ""
    """In which way the bytes are no value of the type, or more than that; '' for a sound or unknown one."""

    @property
    def kind(self) -> CharacteristicKind | None:
        return CHARACTERISTICS.get(self.which)

    @property
    def name(self) -> str:
        return characteristic_name(self.which)

    @property
    def experimental(self) -> bool:
        return self.which in EXPERIMENTAL

    @property
    def words(self) -> str:
        """The value as a person would write it: '8192', 'true', 'BKREQSUP_GENL', '0x0102' of an unknown one."""
        if self.value is not None:
            return value_words(self.which, self.value)
        more = f"… ({len(self.data):,} bytes)" if len(self.data) > MAX_SHOWN else ""
        return f"0x{self.data[:MAX_SHOWN].hex()}{more}"


def characteristic_name(which: int) -> str:
    kind = CHARACTERISTICS.get(which)
    if kind is not None:
        return kind.name
    return f"{'experimental' if which in EXPERIMENTAL else 'unknown'} characteristic {which}"


def value_words(which: int, value: int | bool) -> str:
    """A value of a known characteristic: '8192', 'true', 'BKREQSUP_GENL'."""
    kind = CHARACTERISTICS[which]
    if kind.type == "bool":
        return "true" if value else "false"
    return kind.values.get(value, str(value))


def interpret(which: int, data: bytes) -> Characteristic:
    """The value that ``data`` stands for: every type is one 32-bit word (RFC 4506, 4.2 to 4.4)."""
    kind = CHARACTERISTICS.get(which)
    if kind is None:
        return Characteristic(which, data)
    if len(data) < 4:
        return Characteristic(which, data, None, f"{len(data)} bytes are too few for a {kind.type}")
    value: int | bool = int.from_bytes(data[:4])
    if kind.type == "bool":
        if value > 1:
            return Characteristic(which, data, None, f"{value} is no bool")
        value = bool(value)
    elif kind.values and value not in kind.values:
        return Characteristic(which, data, None, f"{value} is none of {', '.join(kind.values.values())}")
    problem = "" if len(data) == 4 else f"{len(data)} bytes, of which a {kind.type} takes 4"
    return Characteristic(which, data, value, problem)


class OptionKind(NamedTuple):
    """A row of Table 2 (xcharext-02, 4)."""

    name: str
    title: str
    section: str
    fields: tuple[tuple[str, str], ...]
    """Name and XDR type of the fields of rdma_optinfo, in their order.

    Each type has a reader in ``rpcrdma.characteristics`` and a Scapy field in ``layers.rpcrdma``.
    """


OPTIONS = {
    ROPT_INITXCH: OptionKind(
        "ROPT_INITXCH",
        "Specify Initial Characteristics",
        "4.1",
        (("optixch_start", "xcharspec"), ("optixch_nochg", "xcharsubset")),
    ),
    ROPT_REQXCH: OptionKind(
        "ROPT_REQXCH", "Request Characteristic Modification", "4.2", (("optreqxch_want", "xcharspec"),)
    ),
    ROPT_RESPXCH: OptionKind(
        "ROPT_RESPXCH",
        "Respond to Modification Request",
        "4.3",
        (
            ("optrespxch_done", "xcharsubset"),
            ("optrespxch_rej", "xcharsubset"),
            ("optrespxch_pend", "xcharsubset"),
        ),
    ),
    ROPT_UPDXCH: OptionKind(
        "ROPT_UPDXCH",
        "Report Updated Characteristics",
        "4.4",
        (("optupdxch_now", "xcharval"), ("optupdxch_pendclr", "bool")),
    ),
}


def option_name(option: int | None) -> str:
    """rdma_opttype in words: 'ROPT_INITXCH', 'option 77'; '' where it is not there."""
    if option is None:
        return ""
    return OPTIONS[option].name if option in OPTIONS else f"option {option}"
