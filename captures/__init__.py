"""The half of rdmascope that touches the outside: capture files, and what is written from them.

``read/`` opens captures (``open.py`` one, ``merge.py`` several), ``live/`` takes them from the network; ``session/`` is
a pass over one, ``parallel/`` by several processes, ``fleet/`` over many.  ``tables/`` keeps and asks, ``write/`` and
``extract/`` write, ``wireshark/`` asks Wireshark, and ``peer/`` speaks the protocol itself.  ``library.py`` is what
``import rdmascope`` gives.
"""

from .errors import CaptureError
from .read.merge import MergedCaptures, open_captures
from .read.open import CaptureFile, Follow, open_capture
from .read.pcapng import Interface
from .read.streams import Limits
from .write.pcapng_writer import PcapngWriter

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
