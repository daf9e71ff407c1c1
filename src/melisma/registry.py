"""Functions that users add: under a name, or as ``module:function``."""

import re
import sys
from collections.abc import Callable, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from melisma.errors import ConfigError, unknown

Function = TypeVar("Function", bound=Callable[..., Any])

#: Names go into job files, file names and addresses of pages.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def register(
    known: MutableMapping[str, Function], what: str, name: str, function: Function
) -> None:
    """Add a function to those ``known`` by name; ``what`` it is, for messages.

    One of the same module and qualified name is replaced: a notebook's cell may run
    twice. Raises ConfigError if another function has the name, or it is no name.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name of a {what}: give letters, digits, '-', '_' and '.'"
        )
    if name in known and _place(known[name]) != _place(function):
        raise ConfigError(
            f"{what} {name!r} is {_place(known[name])} already: give "
            f"{_place(function)} another name"
        )
    known[name] = function


#: Functions of this process that a job was given as objects, by how it refers to them.
_OBJECTS: dict[str, Callable[..., Any]] = {}


def reference(function: Callable[..., Any]) -> str:
    """Return ``module:function`` for a function, by which this process finds it again.

    >>> reference(max)
    'builtins:max'
    """
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None) or type(function).__module__
    found = f"{module}:{name}"
    while _OBJECTS.get(found, function) is not function:
        found += "'"  # another of the same name, as in a cell that ran twice
    _OBJECTS[found] = function
    return found


def check_importable(what: str, given: str) -> None:
    """Raise ConfigError if only this process can find ``module:function``."""
    module, _, name = given.partition(":")
    if given in _OBJECTS and (module == "__main__" or not name.isidentifier()):
        raise ConfigError(
            f"{what} {given!r} is defined in the script itself, where no other process "
            "finds it: put it into a module of its own"
        )


def imported(what: str, reference: str) -> Callable[..., Any]:
    """Import a function as ``module:function``, from the current folder as well.

    Raises ConfigError if there is no such module or function, if the module imports one
    that is missing, or if it is no function. What else the module raises while it is
    imported comes through.
    """
    if reference in _OBJECTS:
        return _OBJECTS[reference]
    module_name, _, name = reference.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise ConfigError(f"{what} {reference!r}: give a name, or module:function")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` has it
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        importer = ""
        if not f"{module_name}.".startswith(f"{error.name}."):
            importer = f"{module_name} imports {error.name!r}, and "
        raise ConfigError(
            f"{what} {reference!r}: {importer}there is no module {error.name!r}, "
            f"neither in {here} nor installed"
        ) from error
    if not hasattr(module, name):
        own = [
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", None) == module_name
        ]
        raise unknown(f"function of {module_name}", name, own)
    function = getattr(module, name)
    if not callable(function):
        kind = type(function).__name__
        raise ConfigError(f"{what} {reference!r} is of type {kind}: give a function")
    found: Callable[..., Any] = function
    return found


def _place(function: Callable[..., Any]) -> str:
    """Module and qualified name."""
    name = getattr(function, "__qualname__", repr(function))
    return f"{getattr(function, '__module__', None)}.{name}"
