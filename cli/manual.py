"""The manual page, from the help texts of all commands: ``rdmascope --man``."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc

import click

from .terminal import EXIT_STATUS

SECTION = "1"
UNWRAPPED = "\b"
"""click's mark for a paragraph whose lines stay as they are."""


def manual(group: click.Group, context: click.Context) -> str:
    """The manual page of the group and its commands, for man(1), in the macros of man(7)."""
    name = context.command_path
    lines = [f'.TH {name.upper()} {SECTION} "" "" "{name}"', ".SH NAME"]
    title, _, rest = cleandoc(group.help or "").partition("\n\n")
    lines += [
        f"{name} \\- {_escape(title)}",
        ".SH SYNOPSIS",
        f".B {name}",
        "[OPTIONS] COMMAND [ARGS]...",
        ".SH DESCRIPTION",
    ]
    lines += _paragraphs(rest)
    lines += [".SH OPTIONS", *_options(group, context)]
    for command_name in group.list_commands(context):
        command = group.get_command(context, command_name)
        if command is None:
            continue
        below = click.Context(command, info_name=command_name, parent=context)
        lines += [
            f".SH {_escape(f'{name} {command_name}').upper()}",
            f".B {name} {command_name}",
            _escape(" ".join(command.collect_usage_pieces(below))),
            ".PP",
        ]
        lines += _paragraphs(cleandoc(command.help or ""))
        lines += _options(command, below)
    lines.append(".SH EXIT STATUS")
    for status, meaning in EXIT_STATUS.items():
        lines += [".TP", f"\\fB{status}\\fR", _escape(meaning)]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        if lines and lines[0].strip() == UNWRAPPED:
            yield from (".PP", ".nf", *map(_escape, lines[1:]), ".fi")
        else:
            yield from (".PP", *(_escape(line.strip()) for line in lines))


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            names, meaning = record
            yield from (".TP", f"\\fB{_escape(names)}\\fR", _escape(" ".join(meaning.split())))


def _escape(text: str) -> str:
    """Backslashes, hyphens, everything beyond ASCII, and what begins a line as a request would."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(character if character.isascii() else f"\\[u{ord(character):04X}]" for character in text)
    return f"\\&{text}" if text.startswith((".", "'")) else text
