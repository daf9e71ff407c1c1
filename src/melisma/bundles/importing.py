"""Importing the modules of a bundle: the one place where its code runs.

Each bundle is a package of its own, ``bundle_`` and the beginning of its hash, which
has no place on disk and no other name in it. What its modules import by their plain
names is looked for there first. So they neither find nor replace modules of the same
name that this process has, nor those of another bundle.
"""

import builtins
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from melisma.bundles.bundle import Bundle
from melisma.errors import ConfigError


def importable(bundle: Bundle, folder: Path) -> str:
    """Return the package whose modules are those of a bundle; imports none of them.

    Only call it for a bundle that is trusted. ``folder`` is where tracebacks say that
    its files lie; nothing is read there.
    """
    root = f"bundle_{bundle.hash[:16]}"
    _FINDER.add(root, bundle, folder)
    return root


class _Finder(MetaPathFinder):
    """Finds the modules of bundles, from their bytes."""

    def __init__(self) -> None:
        self._bundles: dict[str, tuple[Bundle, Path]] = {}

    def add(self, root: str, bundle: Bundle, folder: Path) -> None:
        """Serve a bundle as the package ``root``."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        known, _ = self._bundles.setdefault(root, (bundle, folder))
        if known.hash != bundle.hash:
            raise ConfigError(f"bundles {known.hash} and {bundle.hash} look alike")

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Find a module of a bundle; None for all others."""
        root, _, inner = name.partition(".")
        if root not in self._bundles:
            return None
        bundle, folder = self._bundles[root]
        file = bundle.path(inner) if inner else ""
        if file is None:
            return None
        is_package = not file or file.endswith("/__init__.py")
        loader = _Loader(bundle, root, file, str(folder / file))
        spec = ModuleSpec(name, loader, is_package=is_package)
        if file:
            spec.origin, spec.has_location = str(folder / file), True
        return spec


_FINDER = _Finder()


class _Loader(InspectLoader):
    """Runs one file of a bundle; nothing where a folder has no file of its own."""

    def __init__(self, bundle: Bundle, root: str, file: str, shown: str) -> None:
        self._bundle, self._root, self._file, self._shown = bundle, root, file, shown

    def get_source(self, fullname: str) -> str:
        """Return the text that runs."""
        return self._bundle.text(self._file) if self._file else ""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the text; SyntaxError if it is not Python."""
        return self.source_to_code(self.get_source(fullname), self._shown)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, whose import statements look into the bundle first."""
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": self._import}
        super().exec_module(module)

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import as ``__import__`` does, the bundle's own modules by their names."""
        top = name.partition(".")[0]
        if level or top not in self._bundle.tops:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if fromlist:
            own = f"{self._root}.{name}"
            return builtins.__import__(own, globals, locals, fromlist, 0)
        import_module(f"{self._root}.{name}")
        return sys.modules[f"{self._root}.{top}"]
