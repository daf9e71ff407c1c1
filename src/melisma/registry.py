"""Functions that users add: under a name, or as ``module:function``.

A module of the user's own lies in the current folder, which is never put on
``sys.path``: there, files such as ``json.py`` would take the place of packages.
"""

import re
import sys
import traceback
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeVar

from melisma.errors import ConfigError, MelismaError, unknown

Function = TypeVar("Function", bound=Callable[..., Any])

#: Names go into job files, file names and addresses of pages.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
#: What the names of a bundle's modules begin with.
_BUNDLE = re.compile(r"^bundle_[0-9a-f]{16}\.")


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


class _OwnModules:
    """Finds the module of a ``module:function`` in its folder, and its neighbours.

    It is asked last, so an installed module comes first. It finds the module that was
    named and those that it imports itself, at any time; what other modules import is
    not looked for in the folder, not even a package that is not installed.
    """

    def __init__(self) -> None:
        self._named: dict[str, str] = {}  # folders, by the module being loaded
        self._folders: dict[str, str] = {}  # of modules that were found in them

    def load(self, module: str, folder: str) -> ModuleType:
        """Import a module, from ``folder`` if none of that name is installed."""
        if self not in sys.meta_path:
            sys.meta_path.append(self)
        name = module.partition(".")[0]
        self._named[name] = folder
        try:
            return import_module(module)
        finally:
            self._named.pop(name, None)

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Find a module in its folder; None for what is no user's own."""
        if path is not None:  # of a package, which says where its modules are
            return None
        folder = self._named.get(name) or self._folders.get(_importer())
        spec = PathFinder.find_spec(name, [folder]) if folder else None
        if folder and spec:
            self._folders[name] = folder
        return spec


_OWN = _OwnModules()


def _importer() -> str:
    """Return the module or package whose import statement is being executed."""
    frame: FrameType | None = sys._getframe()
    while frame and frame.f_globals.get("__name__") in _IMPORTERS:
        frame = frame.f_back
    importer = str(frame.f_globals.get("__name__", "")) if frame else ""
    return importer.partition(".")[0]


#: Modules whose frames lie between an import statement and a finder.
_IMPORTERS = {__name__, "importlib", "importlib._bootstrap", "_frozen_importlib"}


def imported(what: str, reference: str) -> Callable[..., Any]:
    """Import a function as ``module:function``, from the current folder as well.

    Installed modules come first. Raises ConfigError if there is no such module or
    function, if the module fails to be imported, or if it is no function.
    """
    if reference in _OBJECTS:
        return _OBJECTS[reference]
    module_name, _, name = reference.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise ConfigError(f"{what} {reference!r}: give a name, or module:function")
    here = str(Path.cwd())
    try:
        with own_code(what, reference):
            module = _OWN.load(module_name, here)
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


@contextmanager
def own_code(what: str, name: object) -> Iterator[None]:
    """Run code of the user's own; ConfigError with the line at which it fails.

    A module that is missing, and what this package raises on purpose, comes through.
    """
    try:
        yield
    except (MelismaError, ModuleNotFoundError):
        raise
    except Exception as error:  # the edge to code that may raise anything
        raise ConfigError(f"{what} {name!r} fails: {where_failed(error)}") from error


def where_failed(error: BaseException) -> str:
    """Return an exception in one line, with the file and line that raised it.

    >>> where_failed(KeyError("a"))
    "KeyError: 'a'"
    """
    said = " ".join(str(error).split())
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:  # which says where by itself
        return text
    return f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def _place(function: Callable[..., Any]) -> str:
    """Module and qualified name; a bundle's module has its own name (`bundles`)."""
    name = getattr(function, "__qualname__", repr(function))
    module = re.sub(_BUNDLE, "", str(getattr(function, "__module__", None)))
    return f"{module}.{name}"
