"""Text that is safe for a terminal, a page or a log: nothing in it acts, and it is ASCII where it must be.

Everything from the wire, and names of files, go through ``harmless`` before they are shown.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from typing import Any, TextIO

from rdmascope.dissect.units import escaped

_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and line feed, DEL, C1
    "\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\u206a-\u206f\ufeff\ufff9-\ufffb"  # directions, joiners, invisible
    "\u2028\u2029"  # ends of lines that are no line feed
    "\ud800-\udfff"  # bytes of a file name that are no UTF-8
    "\U000e0000-\U000e007f]"  # tags
)
"""Characters that a terminal obeys, that hide, or that cannot be encoded."""

DRAWING = {
    **dict.fromkeys("─━═╌┄", "-"),
    **dict.fromkeys("│┃║┤├┆⋮", "|"),
    **dict.fromkeys("┌┐└┘╭╮╯╰┬┴┼╴╶╷╵", "+"),
    **dict.fromkeys("█▉▊▋▌▍▎▏", "#"),
    **dict(zip("░▒▓", ".+%", strict=True)),
    **dict(zip("▁▂▃▄▅▆▇", "._-=+*%", strict=True)),
    **dict.fromkeys("▶→", ">"),
    **dict.fromkeys("◀←", "<"),
    "↑": "^",
    "↓": "v",
    "…": "~",
    "·": ".",
    "•": "*",
    "≥": ">",
    "≤": "<",
    "×": "x",
    "µ": "u",
    "μ": "u",
    "–": "-",
    "—": "-",
    "‐": "-",
    "−": "-",
    "\u00a0": " ",
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("“”", '"'),
}
"""What stands for a character where there is only ASCII: one for one, so that columns stay aligned."""

PLAIN = "rdmascope_plain"
"""An encoding: ASCII, with ``DRAWING`` for the rest."""


def harmless(text: str) -> str:
    """The text with what acts written out: '\\x1b', '\\u202e'.  A byte of a file name is '\\xff'."""
    return _ACTING.sub(lambda match: escaped(match[0]), text)


def harmless_line(text: str) -> str:
    """``harmless`` text that also stays on one line."""
    if text.isprintable():  # What acts is not, and to look for it takes longer.
        return text
    return harmless(text).replace("\n", "\\n").replace("\t", "\\t")


def json_escaped(text: str, ascii_only: bool = False) -> str:
    """JSON text with the same characters as escapes of JSON; ``ascii_only``: with all but ASCII as such."""
    known = text if ascii_only else text.replace("µ", "")  # Of durations: to look at each character takes longer.
    if known.isascii() and "\x7f" not in text:  # What else acts JSON itself has as escapes.
        return text
    if ascii_only:
        return re.sub(r"[^\x00-\x7e]", lambda match: _json_escape(match[0]), text)
    if text.isprintable():  # What acts is not, and to look for it takes longer.
        return text
    return _ACTING.sub(lambda match: _json_escape(match[0]), text)


def _json_escape(character: str) -> str:
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def plain(text: str) -> str:
    """The text in ASCII."""
    return "".join(
        character if character.isascii() else DRAWING.get(character) or _nearest(character) for character in text
    )


def _nearest(character: str) -> str:
    """'e' for 'é', else the escape."""
    base = unicodedata.normalize("NFKD", character)[:1]
    return base if base.isascii() and base.isprintable() and base else escaped(character)


def is_unicode(stream: TextIO) -> bool:
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "").startswith("utf")


def take_any_text(stream: Any) -> None:
    """Let a stream whose encoding is not UTF take any text, in ASCII; never raise for one."""
    if not is_unicode(stream) and hasattr(stream, "reconfigure"):
        stream.reconfigure(encoding=PLAIN)


def _encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
    return plain(text).encode("ascii"), len(text)


class _Encoder(codecs.IncrementalEncoder):
    def encode(self, text: str, final: bool = False) -> bytes:
        return plain(text).encode("ascii")


def _find(name: str) -> codecs.CodecInfo | None:
    if name != PLAIN:
        return None
    latin = codecs.lookup("latin-1")
    return codecs.CodecInfo(
        _encode, latin.decode, latin.streamreader, latin.streamwriter, _Encoder, latin.incrementaldecoder, PLAIN
    )


codecs.register(_find)
