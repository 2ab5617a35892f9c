"""``python -m rdmascope``: the command."""

from rdmascope.cli.main import program

if __name__ == "__main__":
    program()
