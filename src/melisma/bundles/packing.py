"""Packing a job's own modules: those it names, and those that these import.

Imports are found in the source by `ast`; no module is imported for it. One's own is
what lies in the folders given. What is installed, or of the standard library, is on a
device by other ways and never packed.
"""

import ast
import importlib
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

from melisma.bundles.bundle import MOST_BYTES, MOST_FILES, Bundle
from melisma.errors import ConfigError, DataError

#: Folders that hold installed packages, wherever they lie.
_INSTALLED = {"site-packages", "dist-packages"}


def pack(references: Iterable[str], folders: Sequence[Path]) -> Bundle:
    """Pack the modules of some ``module:function`` that lie in ``folders``.

    ConfigError if none does, if one does not exist or is no source, or if they are too
    many or too large.
    """
    importlib.invalidate_caches()
    modules = _Modules(folders)
    named = [reference.partition(":")[0] for reference in references]
    for module in named:
        if modules.found(module) is None:
            raise ConfigError(
                f"there is no module {module!r}, neither in {Path.cwd()} nor installed"
            )
    files: dict[str, bytes] = {}
    pending, seen = list(named), set[str]()
    while pending:
        module = pending.pop()
        if module in seen:
            continue
        seen.add(module)
        pending += _prefixes(module)
        found = modules.own(module)
        if found is None or found.file is None:
            continue
        is_package = found.folders is not None
        content, tree = _source(Path(found.file), module)
        ending = "/__init__.py" if is_package else ".py"
        files[module.replace(".", "/") + ending] = content
        _check_limits(files)
        for name in _imported(tree, module, is_package):
            pending += _prefixes(name)
    if not files:
        raise ConfigError(
            f"there is nothing to bundle: the job names no module of its own in "
            f"{' or '.join(map(str, folders))}; leave --bundle out"
        )
    try:
        return Bundle.of(files)
    except DataError as error:
        raise ConfigError(f"the modules cannot be bundled: {error}") from error


class _Found(NamedTuple):
    """Where a module is."""

    file: str | None  #: None for a folder of modules, and for what is in no file
    folders: list[str] | None  #: in which a package has its modules

    @classmethod
    def of(cls, spec: ModuleSpec | None) -> "_Found | None":
        if spec is None:
            return None
        folders = spec.submodule_search_locations
        return cls(
            spec.origin if spec.has_location else None,
            None if folders is None else list(folders),
        )


class _Modules:
    """Finds modules as the job does, without importing them."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._found: dict[str, _Found | None] = {}

    def found(self, module: str) -> _Found | None:
        """Return where a module is; None if there is none."""
        if module not in self._found:
            self._found[module] = self._look_for(module)
        return self._found[module]

    def own(self, module: str) -> _Found | None:
        """Return where a module is if that is one of the folders, else None."""
        top = module.partition(".")[0]
        found = self.found(module)
        if found is None or top in sys.stdlib_module_names or top == "melisma":
            return None
        places = [found.file] if found.file else found.folders or []
        return found if any(map(self._is_own, places)) else None

    def _look_for(self, module: str) -> _Found | None:
        parent, _, name = module.rpartition(".")
        if not parent:
            return _top(name)
        package = self.found(parent)
        if package is None or package.folders is None:
            return None
        return _Found.of(PathFinder.find_spec(name, package.folders))

    def _is_own(self, place: str) -> bool:
        path = Path(place).resolve()
        if _INSTALLED & set(path.parts):
            return False
        return any(path.is_relative_to(folder) for folder in self._folders)


def _top(module: str) -> _Found | None:
    """Find a module that lies in no package; installed ones come first."""
    for finder in sys.meta_path:
        if spec := finder.find_spec(module, None):
            return _Found.of(spec)
    return _Found.of(PathFinder.find_spec(module, [str(Path.cwd())]))


def _source(path: Path, module: str) -> tuple[bytes, ast.Module]:
    """Read and parse a file; ConfigError if it is not Python source in UTF-8."""
    if path.suffix != ".py":
        raise ConfigError(
            f"module {module!r} is {path}: a bundle has .py files alone, so install it "
            "on the devices"
        )
    try:
        content = path.read_bytes()
        encoding, _ = tokenize.detect_encoding(BytesIO(content).readline)
        tree = ast.parse(content, str(path))
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError(f"{path} cannot be bundled: {error}") from error
    if encoding not in ("utf-8", "utf-8-sig"):
        raise ConfigError(f"{path} is written in {encoding}: save it as UTF-8")
    return content, tree


def _check_limits(files: dict[str, bytes]) -> None:
    """Raise ConfigError as soon as there is too much: it may be a whole library."""
    size_bytes = sum(map(len, files.values()))
    if len(files) > MOST_FILES or size_bytes > MOST_BYTES:
        raise ConfigError(
            f"the job's own modules are over {MOST_FILES} files or {MOST_BYTES:,} "
            "bytes: install the larger part on the devices"
        )


def _prefixes(module: str) -> Iterator[str]:
    """Yield a dotted name and its packages, which run before it; none for no name."""
    while all(part.isidentifier() for part in module.split(".")):
        yield module
        module = module.rpartition(".")[0]


def _imported(tree: ast.Module, module: str, is_package: bool) -> Iterator[str]:
    """Yield the dotted names that a module imports, wherever in its file."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")
                above = above[: len(above) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield base
            # What is no module is none that can be found.
            yield from (f"{base}.{alias.name}" for alias in node.names)
