"""Functions of plug-ins.  One that raises is named, once, and then left out: the rest goes on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pkgutil import iter_modules
from types import GeneratorType
from typing import Any

_loading = [""]
"""The plug-in whose functions are being registered; '': they are ours."""


def complain(words: str) -> None:
    """What is told of a plug-in that fails; the command line puts its own in place of ``report``."""
    warnings.warn(words, RuntimeWarning, stacklevel=2)


report: list[Callable[[str], None]] = [complain]
"""The last one is called."""


@contextmanager
def registering(plugin: str) -> Iterator[None]:
    """What is registered meanwhile is of this plug-in."""
    _loading.append(plugin)
    try:
        yield
    finally:
        _loading.pop()


def import_all(package: str) -> None:
    """All modules of a package, which register what they have."""
    for module in iter_modules(import_module(package).__path__):
        import_module(f"{package}.{module.name}")


def escaped(text: str) -> str:
    """In a page of Markdown, of what is registered."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def origin() -> str:
    """The plug-in that is being registered, '' where none is."""
    return _loading[-1]


def guarded(function: Callable[..., Any], nothing: Any = None) -> Callable[..., Any]:
    """The function; one of a plug-in gives ``nothing`` from the first time on that it raises."""
    plugin = origin()
    if not plugin:
        return function
    failed: list[Exception] = []

    @wraps(function)
    def guard(*given: Any) -> Any:
        if failed:
            return nothing
        try:
            result = function(*given)
            return list(result) if isinstance(result, GeneratorType) else result
        except Exception as error:
            failed.append(error)
            report[-1](failure(plugin, function.__name__, error))
            return nothing

    return guard


def failure(plugin: str, where: str, error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"plug-in {plugin}: {where}: {type(error).__name__}: {words}; left out, the rest goes on"
