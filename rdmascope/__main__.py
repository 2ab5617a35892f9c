"""``python -m rdmascope``, and the script ``rdmascope``: the command."""

import os
import signal
from typing import NoReturn


def interrupted(number: int, _: object) -> NoReturn:
    """Ctrl-C until a command is loaded: an exception in the middle of an import may be lost there."""
    try:
        os.write(2, b"rdmascope: interrupted\n")
    finally:
        os._exit(128 + number)


def end_of_start_up() -> None:
    """From here on Ctrl-C raises KeyboardInterrupt, as Python has it; nothing where the handler is not ours."""
    if signal.getsignal(signal.SIGINT) is interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def program() -> None:
    """Run it; Ctrl-C ends it in order while it is still loaded, too."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)
    from rdmascope.cli.main import program as loaded

    loaded(end_of_start_up)


if __name__ == "__main__":
    program()
