"""What the process ends with, for all commands."""

from __future__ import annotations

EXIT_FOUND = 1
EXIT_BAD_INPUT = 2
EXIT_NOTHING_JUDGED = 3
EXIT_INTERNAL = 70
EXIT_SIGNAL = 128
"""To which the number of the signal is added."""
EXIT_INTERRUPTED = 130
EXIT_CLOSED = 141

EXIT_STATUS = {
    0: "All is well.",
    EXIT_FOUND: "The answer is no: the audit found violations at or above --fail-on, diagnose something wrong, report a"
    " service level of --slo that was not kept, verify a difference that it cannot explain, live the finding it waited"
    " for, probe a failed check or no answer, synth calls that were not answered.",
    EXIT_BAD_INPUT: "Wrong options, a file that cannot be read or written or is damaged, or a filter that can match"
    " nothing. What could be decoded was printed.",
    EXIT_NOTHING_JUDGED: "The audit had nothing to judge, or report cannot tell whether a service level of --slo was"
    " kept: there were no such calls, or too few whose latency is known.",
    EXIT_INTERNAL: "An error of this program, which its message asks to report.",
    EXIT_INTERRUPTED: "Ctrl-C. While a file is being read, the first Ctrl-C stops reading and the status is 2.",
    EXIT_CLOSED: "The reader of the output closed it.",
    143: "SIGTERM; 129 is SIGHUP.  live and probe end as they do by Ctrl-C.",
}
"""Status and meaning: the source of the manual page and of ``docs/stable.md``."""
