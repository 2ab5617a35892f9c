"""``python -m rdmascope``: the command."""

from rdmascope.cli.main import main

if __name__ == "__main__":
    main(prog_name="rdmascope")
