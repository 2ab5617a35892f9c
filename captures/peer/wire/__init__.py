"""An in-memory wire: what RDMA devices would send for the verbs that two endpoints ask for, frame by frame.

``Rocev2Link`` and ``IwarpLink`` are connections of one network each; both write to a ``Tape``, in the order in which
one capture point between the two hosts would see it.  ``Dialogue`` is the driver of two endpoints: it carries out
what they want on a link, keeps their memory, and answers calls with an application.  Nothing here reads a clock: the
tape starts at a given time and goes on with each frame, by a generator of random numbers that is seeded.

Frames are built with the Scapy layers, checksums included: ICRC, CRC32C, TCP and IP.
"""

from .network import EPOCH, IwarpLink, Path, Rocev2Link, Tape, TapedFrame
from .script import Dialogue

__all__ = ["EPOCH", "Dialogue", "IwarpLink", "Path", "Rocev2Link", "Tape", "TapedFrame"]
