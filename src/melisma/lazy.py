"""Names that a package offers, each imported when it is first used."""

from importlib import import_module
from typing import Any


def offer(package: dict[str, Any], **homes: str) -> None:
    """Import the names of a package's ``__all__`` as they are asked for.

    ``package`` is its ``globals()``. ``homes`` are names by the module that defines
    them, ``__`` for a dot: ``offer(globals(), data="Dataset", views__run="Run open")``.
    Names without a home are modules of the package.
    """
    own, offered = package["__name__"], package["__all__"]
    home = {
        name: f"{own}.{module.replace('__', '.')}"
        for module, names in homes.items()
        for name in names.split()
    }

    def find(name: str) -> Any:
        if name not in offered:
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        if name not in home:
            return import_module(f"{own}.{name}")
        package[name] = getattr(import_module(home[name]), name)
        return package[name]

    package["__getattr__"] = find
    package["__dir__"] = lambda: sorted(
        {*offered, *(name for name in package if name.startswith("__"))}
    )
