"""The half of rdmascope that touches the outside: capture files, and what is written from them.

``open.py`` is the door; ``pcap.py`` and ``pcapng.py`` know the formats, ``streams.py`` and ``compression.py``
bring the bytes, ``writer.py`` writes pcapng.
"""

from .errors import CaptureError
from .open import Capture, open_capture
from .pcapng import Interface
from .streams import Limits
from .writer import PcapngWriter

__all__ = ["Capture", "CaptureError", "Interface", "Limits", "PcapngWriter", "open_capture"]
