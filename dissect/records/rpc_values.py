"""What an RPC is about, value by value, with one name in the JSON of an RPC and in the table ``rpcs``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import coded_keys
from ..onc.hashes import handle_hash
from ..onc.shapes.rpc_summary_fields import NO_FIELDS, FlatFields
from ..text_columns import Decimal, Piece, Texts
from .schema import Record
from .table import column_of

if TYPE_CHECKING:
    from numpy.ma import MaskedArray


def _user(fields: FlatFields) -> str | None:
    if fields.uid is not None:
        return str(fields.uid)
    return f"gss:{fields.context.hex()}" if fields.context else None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


class RpcValue(NamedTuple):
    """A value."""

    name: str
    type: str
    """As of a ``TableColumn``."""
    meaning: str
    of: tuple[str, ...]
    """The names of what it is made of."""
    value: Callable[[FlatFields], Any]
    """None is: there is none."""
    number: bool = False
    """It is the integer that it is made of."""


_HANDLE, _STATEID, _CALLER = ("handle",), ("stateid",), ("client", "uid", "gid", "machine_name", "context")

RPC_VALUES: tuple[RpcValue, ...] = (
    RpcValue("file_handle", "text", "first file handle of the call, hexadecimal", _HANDLE,
           lambda fields: fields.handle and fields.handle.hex()),
    RpcValue("file_handle_hash", "int", "its CRC-32, as Wireshark shows it", _HANDLE,
           lambda fields: None if fields.handle is None else handle_hash(fields.handle)),
    RpcValue("file_name", "text", "first name of a file in the call", ("name",), lambda fields: _text(fields.name)),
    RpcValue("offset_bytes", "uint", "first offset in a file: where a READ, WRITE or its like begins", ("offset",),
           lambda fields: fields.offset, number=True),
    RpcValue("count_bytes", "uint",
           "first count or length of bytes that the call asks for or brings; 2^64 - 1 is to the end of the file",
           ("count",), lambda fields: fields.count, number=True),
    RpcValue("eof", "bool", "the reply says that the file or directory ends here", ("eof",), lambda fields: fields.eof),
    RpcValue("stateid_seqid", "int", "seqid of the first stateid, of the call or else of the reply", _STATEID,
           lambda fields: fields.stateid and int.from_bytes(fields.stateid[:4])),
    RpcValue("stateid_other", "text", "the rest of that stateid, hexadecimal", _STATEID,
           lambda fields: fields.stateid and fields.stateid[4:].hex()),
    RpcValue("slot", "int", "slot of SEQUENCE or CB_SEQUENCE", ("slot",), lambda fields: fields.slot, number=True),
    RpcValue("sequence_id", "int", "sequence ID of SEQUENCE, CB_SEQUENCE or CREATE_SESSION", ("sequence",),
           lambda fields: fields.sequence, number=True),
    RpcValue("session", "text", "session, hexadecimal", ("session",),
           lambda fields: fields.session and fields.session.hex()),
    RpcValue("client_id", "text", "client ID, of the call or else of the reply, hexadecimal", _CALLER,
           lambda fields: None if fields.client is None else f"{fields.client:016x}"),
    RpcValue("user", "text", "who calls: the user ID of AUTH_SYS, or gss: and the context handle of RPCSEC_GSS",
           _CALLER, _user),
    RpcValue("uid", "int", "user ID of an AUTH_SYS credential", _CALLER, lambda fields: fields.uid),
    RpcValue("gid", "int", "group ID of an AUTH_SYS credential", _CALLER, lambda fields: fields.gid),
    RpcValue("machine_name", "text", "machine name of an AUTH_SYS credential", _CALLER,
           lambda fields: _text(fields.machine_name)),
    RpcValue("linux_operation", "text",
             "what Linux's client calls a COMPOUND with these operations, that asks for these attributes: OPEN_NOATTR, "
             "FSINFO; none where they do not tell it",
             ("linux",), lambda fields: fields.linux),
)  # fmt: skip
"""Their values are of ``FlatFields``."""


MAX_TEXTS = 1 << 15
"""That are remembered of one kind."""


def value_column(value: RpcValue, columns: Mapping[str, NDArray[np.object_]]) -> MaskedArray:
    """A value of many RPCs; ``columns`` have the names of ``FlatFields``."""
    names = value.of
    found: dict[Any, Any] = {}
    keys = list(zip(*(columns[name].tolist() for name in names), strict=True))
    for key in set(keys):
        found[key] = value.value(NO_FIELDS._replace(**dict(zip(names, key, strict=True))))
    return column_of(value.type, [found[key] for key in keys])


class ValueTexts:
    """The values of RPCs as the inside of JSON objects, from columns; what was written once is not written again.

    Args:
        encode: gives the JSON text of a value.
    """

    def __init__(self, encode: Callable[[Any], str]) -> None:
        self._encode = encode
        self._texts: dict[tuple[str, ...], dict[Any, str]] = {one.of: {} for one in RPC_VALUES}

    def of(self, columns: Mapping[str, NDArray[np.object_]]) -> Iterator[Piece]:
        """What stands in each row of columns with the names of ``FlatFields``, each value after a comma."""
        for names, texts in self._texts.items():
            values = [one for one in RPC_VALUES if one.of == names]
            if values[0].number:
                yield from self._numbers(values[0].name, columns[names[0]])
                continue
            if len(texts) > MAX_TEXTS:
                texts.clear()
            lists = [columns[name].tolist() for name in names]
            keys: Iterable[Any] = lists[0] if len(lists) == 1 else zip(*lists, strict=True)
            distinct, which = coded_keys(keys, len(lists[0]))
            at = FlatFields._fields.index(names[0])
            before, behind = NO_FIELDS[:at], NO_FIELDS[at + 1 :]
            for key in distinct:
                if key in texts:
                    continue
                if len(names) == 1:  # The same in less time: most of these are asked for.
                    fields = FlatFields._make((*before, key, *behind))
                else:
                    fields = NO_FIELDS._replace(**dict(zip(names, key, strict=True)))
                texts[key] = "".join([f',"{one.name}":{self._encode(one.value(fields))}' for one in values])
            found = [texts[key] for key in distinct]
            yield found[0] if len(found) == 1 else Texts(found, which)

    def _numbers(self, name: str, column: NDArray[np.object_]) -> Iterator[Piece]:
        null = (column == _NONE).astype(np.bool_)
        if null.all():
            yield f',"{name}":null'
            return
        yield f',"{name}":'
        some = bool(null.any())
        yield Decimal(np.where(null, 0, column).astype(np.uint64), null=null if some else None)


_NONE = np.array(None, object)


def value_fields(fields: FlatFields) -> Record:
    """As JSON."""
    return {one.name: one.value(fields) for one in RPC_VALUES}
