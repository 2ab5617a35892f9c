"""The half of rdmascope that touches the outside: capture files, and what is written from them.

``open.py`` is the door, ``merge.py`` that for several files; ``pcap.py``, ``pcapng.py`` with ``blocks.py``, and
``erf.py`` know the formats, ``convert.py`` who knows others, ``streams.py`` and ``compression.py``
bring the bytes, ``writer.py`` writes pcapng.
"""

from .errors import CaptureError
from .read.merge import MergedCaptures, open_captures
from .read.open import CaptureFile, Follow, open_capture
from .read.pcapng import Interface
from .read.streams import Limits
from .write.writer import PcapngWriter

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
