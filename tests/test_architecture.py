"""Imports point one way, and torch, Ray and Flower stay in their rooms."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "melisma"

#: A room imports from its own line and the lines above it.
LINES = [
    {"errors"},
    {"units"},
    {"registry"},
    {"maths"},
    {"system"},
    {"schemes"},
    {"coding"},
    {"transmission"},
    {"fog"},
    {"learning"},
    {"runs"},
    {"rpc"},
    {"fleets"},
    {"learner"},
    {"algorithms"},
    {"testbed"},
    {"jobs"},
    {"views"},
    {"launch"},
    {"comparison"},
    {"ray"},
    {"flower"},
    {"cli"},
    {"__main__"},
]
EVERYBODY = {"__version__"}
#: Packages that one room alone imports.
OWN = {"torch": "learning", "ray": "ray", "flwr": "flower"}


def line_of(room: str) -> int:
    return next(i for i, line in enumerate(LINES) if room in line)


def imports(source: Path, package: Path) -> Iterator[str]:
    """Dotted names that a module imports, whichever way it writes them."""
    here = ["melisma", *source.relative_to(package).with_suffix("").parts]
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "melisma":
                yield from (f"melisma.{alias.name}" for alias in node.names)
            else:
                yield module


def violations(package: Path) -> list[str]:
    found = []
    for source in sorted(package.rglob("*.py")):
        room = source.relative_to(package).with_suffix("").parts[0]
        if room == "__init__":
            continue
        for name in imports(source, package):
            top, *rest = name.split(".")
            if OWN.get(top, room) != room:
                found.append(f"{room} imports {top}")
            if top != "melisma" or not rest or rest[0] in EVERYBODY:
                continue
            if line_of(rest[0]) > line_of(room):
                found.append(f"{room} imports {rest[0]}")
    return found


def test_every_room_has_its_line() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}
    assert rooms - {"__init__", "__pycache__"} <= set().union(*LINES)


def test_rooms_import_only_from_below() -> None:
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("maths/a.py", "import melisma.fleets.protocols", "maths imports fleets"),
        (
            "system/a.py",
            "from melisma.schemes import SCHEMES",
            "system imports schemes",
        ),
        ("learning/a.py", "from melisma import cli", "learning imports cli"),
        ("schemes/a.py", "from ..learning import data", "schemes imports learning"),
        ("maths/a.py", "def f():\n    import melisma.cli", "maths imports cli"),
        ("fleets/a.py", "from torch import nn", "fleets imports torch"),
        ("comparison/a.py", "import ray", "comparison imports ray"),
        ("jobs/a.py", "from flwr.app import Message", "jobs imports flwr"),
    ],
)
def test_a_planted_violation_is_found(
    tmp_path: Path, file: str, line: str, found: str
) -> None:
    source = tmp_path / file
    source.parent.mkdir(exist_ok=True)
    source.write_text(line)
    assert violations(tmp_path) == [found]
