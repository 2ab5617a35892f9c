"""The ``rdmascope`` command: finds the subcommand, and turns every failure into one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from .terminal import EXIT_BAD_INPUT, EXIT_FAULT, EXIT_INTERRUPTED, complain

COMMANDS = {
    "info": "What a capture file is: format, interfaces, time span, drops, cut frames, what its frames hold.",
    "report": "What a capture holds: connections, procedures, latencies, payloads, the slowest RPCs.",
    "rpcs": "One line per RPC, with filters and sorting.",
    "show": "One RPC or one frame in full.",
    "packets": "One line per RDMA packet, as tshark would list it.",
    "transport": "How the transport fared: losses, retransmissions, congestion, and which RPC paid.",
    "files": "The files that were read and written, and their contents.",
    "audit": "Judge both ends by the specifications: what was broken, by whom, and where.",
    "credits": "Flow control: credits asked and granted, calls outstanding, time at the limit.",
    "rules": "What the audit judges by.",
    "explain": "One rule in full.",
    "export": "Write the RPCs as a capture of ONC RPC over TCP.",
    "probe": "Speak RPC-over-RDMA with a server: what it agrees to, how fast it is, whether it conforms.",
