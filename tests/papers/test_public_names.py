"""Papers and examples use public names alone.

Public is what ``melisma`` lists in its ``__all__``, and what a room, a package or a
module right below it, lists in its own; of a room that is one file, all it defines.
"""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import melisma

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "melisma"
ROOMS = {
    path.stem
    for path in PACKAGE.iterdir()
    if path.suffix in ("", ".py") and not path.name.startswith("__")
}
EXTRAS = {"ray", "flower"}  # may not be installed


def offered(module: str) -> set[str]:
    """Return the public names of ``melisma`` or of a room."""
    here = import_module(module)
    if module == "melisma":
        return {*melisma.__all__, *ROOMS}
    if hasattr(here, "__all__"):
        return set(here.__all__)
    if hasattr(here, "__path__"):
        return set()
    return {
        name
        for name, value in vars(here).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
        if getattr(value, "__module__", module) == module
    }


def imported(tree: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Module, name ("" for the module itself) and own name of what is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, "", alias.asname or alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                yield node.module or "", alias.name, alias.asname or alias.name


def violations(source: str) -> list[str]:
    """Return the names of melisma that a file uses and that are not public."""
    tree, found, packages = ast.parse(source), [], {}
    for module, name, own in imported(tree):
        top, *rooms = module.split(".")
        if top != "melisma":
            continue
        if len(rooms) > 1 or (rooms and not name):
            found.append(f"{module}.{name}".rstrip("."))
        elif name and name not in offered(module):
            found.append(f"{module}.{name}")
        elif not name:
            packages[own] = module
        elif module == "melisma" and name in ROOMS - set(melisma.__all__):
            packages[own] = f"{module}.{name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            package = packages.get(node.value.id)
            if package and node.attr not in offered(package):
                found.append(f"{package}.{node.attr}")
    return found


FILES = [*ROOT.glob("papers/*.py"), *ROOT.glob("examples/**/*.py")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_public_names_are_used(file: Path) -> None:
    assert violations(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "from melisma.algorithms.association import Terms",
            ["melisma.algorithms.association.Terms"],
        ),
        ("import melisma.learning.settings", ["melisma.learning.settings"]),
        ("from melisma.learning import settings", ["melisma.learning.settings"]),
        ("from melisma.learning import _names", ["melisma.learning._names"]),
        ("from melisma import nothing", ["melisma.nothing"]),
        ("from melisma.errors import difflib", ["melisma.errors.difflib"]),
        ("from melisma import fog\nfog.dual", ["melisma.fog.dual"]),
        ("import melisma as mel\nmel._HOME", ["melisma._HOME"]),
        ("def f():\n    from melisma.fog.lp import x", ["melisma.fog.lp.x"]),
        ("import melisma as mel\nmel.simulate(mel.Job())", []),
        ("from melisma import rpc\nrpc.serve()", []),
        ("from melisma.errors import unknown", []),
    ],
)
def test_a_planted_violation_is_found(line: str, found: list[str]) -> None:
    assert violations(line) == found


@pytest.mark.parametrize("room", sorted(ROOMS - EXTRAS))
def test_what_a_room_offers_is_there_and_listed(room: str) -> None:
    here = import_module(f"melisma.{room}")
    names = offered(here.__name__)
    assert {name for name in names if not hasattr(here, name)} == set()
    assert names <= set(dir(here))


def test_a_room_has_no_other_names() -> None:
    with pytest.raises(
        AttributeError, match=r"'melisma\.learning' has no .* 'nothing'"
    ):
        import_module("melisma.learning").nothing  # noqa: B018
