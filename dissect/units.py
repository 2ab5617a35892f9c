"""Numbers for people: times, sizes, counts."""

from __future__ import annotations

import re

LONG = ((172_800, 86_400, "d"), (7_200, 3_600, "h"), (120, 60, "min"))
"""Seconds from which on a duration is given in a longer unit, the seconds of that unit, and its name."""
TIMES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes: '500M' and '500MB' are 500,000,000, '1.5GiB' is 1.5 * 2**30.  Raises ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"{text!r} is no size such as 500M, 500MiB or 2G")
    unit: int = (1024 if match[3] else 1000) ** " KMGT".index(match[2].upper() or " ")
    return round(float(match[1]) * unit)


def duration(nanoseconds: float) -> str:
    """Three significant figures and a unit: '0', '812 ns', '42.4 ms', '3.25 h'."""
    for least, unit, name in LONG:
        if abs(nanoseconds) >= least * 1_000_000_000:
            return f"{_figures(nanoseconds / unit / 1e9)} {name}"
    for unit, name in TIMES:
        if abs(nanoseconds) >= unit * 0.9995:
            return f"{_figures(nanoseconds / unit)} {name}"
    return f"{nanoseconds:.0f} ns" if nanoseconds else "0"


def at_least(nanoseconds: float, is_bound: bool) -> str:
    """A duration; '>46.2 s' where it is a lower bound."""
    return f"{'>' if is_bound else ''}{duration(nanoseconds)}"


def bound(nanoseconds: int) -> str:
    """A round duration without its zeros: '5 ms'."""
    for unit, name in TIMES:
        if nanoseconds >= unit:
            return f"{nanoseconds / unit:,g} {name}"
    return f"{nanoseconds} ns" if nanoseconds else "0"


def size(count: float) -> str:
    """Three significant figures and a unit: '512 B', '1.02 MiB'."""
    for unit, name in SIZES:
        if abs(count) >= unit * 0.9765:
            return f"{_figures(count / unit)} {name}"
    return f"{count:.0f} B"


def count(number: float) -> str:
    return f"{number:,.0f}"


def plural(number: int, noun: str, several: str = "") -> str:
    """'1 call', '2 calls'."""
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def share(part: float, whole: float) -> str:
    """A percentage without decimals: '42%'; '99.9%' where it is nearly all, for '100%' is all."""
    if 0.995 * whole <= part < whole:
        return f"{1000 * part / whole // 1 / 10:.1f}%"
    return f"{100 * part / whole:.0f}%" if whole else "-"


def percent(part: float) -> str:
    """A part of 1 as a percentage: '42%', '0.3%'."""
    return share(part, 1) if part >= 0.0995 or not part else f"{100 * part:.2g}%"


def seconds(nanoseconds: int) -> str:
    """Plain seconds to the microsecond, exact: '-1.000250'."""
    sign = "-" if nanoseconds < 0 else ""
    whole, rest = divmod(abs(nanoseconds), 1_000_000_000)
    return f"{sign}{whole}.{rest // 1000:06d}"


YEAR = 365 * 86_400
"""Seconds; a clock that has not come so far counts from the start of a host, as those of traces do."""


def moment(nanoseconds: int, digits: int = 6) -> str:
    """Nanoseconds since the Unix epoch as a date and time in UTC, with so many digits behind the second."""
    whole, rest = divmod(nanoseconds, 1_000_000_000)
    if abs(nanoseconds) >= 1 << 63:
        return f"{whole}.{rest:09d} s"
    if 0 < whole < YEAR:
        return f"{whole}.{rest // 10 ** (9 - digits):0{digits}d} s on a clock without a date"
    import numpy as np  # Only here: what shows no moment, as --help, starts without it.

    return f"{str(np.datetime64(whole, 's')).replace('T', ' ')}.{rest // 10 ** (9 - digits):0{digits}d} UTC"


def _figures(number: float) -> str:
    magnitude = abs(number)
    if magnitude >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if magnitude >= 9.995 else f"{number:.2f}"


def dropped_words(dropped: int, frames: int, traced: str = "") -> list[str]:
    """What a capture that lost frames has to say first: one line, none where it lost none.

    ``traced``: it is a trace of this host's kernel, and they are events.
    """
    if not dropped:
        return []
    part = share(dropped, frames + dropped)
    if traced:
        lost = f"{plural(dropped, 'event')} ({part})"
        return [f"the trace of the {traced}'s kernel lost {lost}: what RPCs lack may be in these"]
    return [
        f"the capture lost {plural(dropped, 'frame')} ({part}): what is missing may be these, not the network's loss"
    ]


def escaped(character: str) -> str:
    """A character written out: '\\x1b', '\\u202e'; a byte that is no UTF-8 (as surrogateescape has it): '\\xff'."""
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def with_port(address: str, port: int | None) -> str:
    """'[fd00::1]:20049'; the address alone where no port is known."""
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
