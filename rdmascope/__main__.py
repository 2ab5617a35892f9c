"""``python -m rdmascope``, and the script ``rdmascope``: the command."""

import os
import signal


def program() -> None:
    """Run it; Ctrl-C ends it in order while it is still loaded, too."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, lambda number, _: os._exit(128 + number))
    from rdmascope.cli.main import program as loaded

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    loaded()


if __name__ == "__main__":
    program()
