"""Every record type that ``--json`` prints, with all its fields: the source of the reference in ``docs``."""

from __future__ import annotations

from .field_types import RecordType
from .fields_audit import TYPES as AUDIT
from .fields_batch import TYPES as BATCH
from .fields_comparison import TYPES as COMPARISON
from .fields_connection import TYPES as CONNECTION
from .fields_diagnosis import TYPES as DIAGNOSIS
from .fields_kernel import TYPES as KERNEL
from .fields_probe import TYPES as PROBE
from .fields_questions import TYPES as QUESTIONS
from .fields_report import TYPES as REPORT
from .fields_rpc import TYPES as RPC
from .fields_state import TYPES as STATE

RECORD_TYPES: dict[str, RecordType] = {
    **RPC, **CONNECTION, **REPORT, **QUESTIONS, **DIAGNOSIS, **STATE, **KERNEL, **COMPARISON, **AUDIT, **PROBE,
    **BATCH,
}  # fmt: skip
"""In the order of the reference."""
