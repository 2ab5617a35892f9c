"""What plug-ins are made of: rules, detectors, programs, file formats and exporters, each a function with a decorator.

``rdmascope --plugin FILE.py`` loads a file; an entry point of the group ``rdmascope.rules``, ``.detectors``,
``.programs``, ``.formats`` or ``.exporters`` a module of an installed package; ``load_plugins`` does both in a program.
"""

from __future__ import annotations

from rdmascope.captures.plugins import load_plugins as load_plugins
from rdmascope.captures.read.open import file_format as file_format
from rdmascope.captures.write.export import exporter as exporter
from rdmascope.dissect.audit.events import (
    ConnectionSetup as ConnectionSetup,
    RdmaOperation as RdmaOperation,
    SentMessage as SentMessage,
)
from rdmascope.dissect.audit.rule import (
    PASSED as PASSED,
    Judgement as Judgement,
    Level as Level,
    rule as rule,
    undecidable as undecidable,
    violation as violation,
)
from rdmascope.dissect.audit.transaction import Transaction as Transaction
from rdmascope.dissect.diagnosis.facts import (
    Cause as Cause,
    Facts as Facts,
    Limits as Limits,
    Severity as Severity,
    detector as detector,
)
from rdmascope.dissect.onc.shapes.registry import program as program
from rdmascope.dissect.onc.shapes.types import ProcedureShape as ProcedureShape
