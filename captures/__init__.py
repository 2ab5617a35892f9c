"""The half of rdmascope that touches the outside: capture files, and what is written from them.

``open.py`` is the door, ``merge.py`` that for several files; ``pcap.py``, ``pcapng.py`` with ``blocks.py``, and
``erf.py`` know the formats, ``convert.py`` who knows others, ``streams.py`` and ``compression.py``
bring the bytes, ``writer.py`` writes pcapng.
"""

from .errors import CaptureError
from .formats.pcapng import Interface
from .formats.streams import Limits
from .formats.writer import PcapngWriter
from .merge import MergedCaptures, open_captures
from .open import CaptureFile, Follow, open_capture

__all__ = [
    "CaptureError",
    "CaptureFile",
    "Follow",
    "Interface",
    "Limits",
    "MergedCaptures",
    "PcapngWriter",
    "open_capture",
    "open_captures",
]
