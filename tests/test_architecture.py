"""Imports point one way, and torch, Ray and Flower stay in their rooms."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "melisma"

#: A room imports from its own line and the lines above it.
LINES = [
    {"lazy"},
    {"deprecation"},
    {"errors"},
    {"units"},
    {"registry"},
    {"bundles"},
    {"cgroups"},
    {"provenance"},
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
    {"browser"},
    {"launch"},
    {"doctor"},
    {"comparison"},
    {"ray"},
    {"flower"},
    {"cli"},
    {"__main__"},
]
EVERYBODY = {"__version__"}
#: Packages that one room alone imports.
OWN = {"torch": "learning", "ray": "ray", "flwr": "flower"}
#: Imports that close a circle between rooms, left out until they are gone.


def line_of(room: str) -> int:
    return next(i for i, line in enumerate(LINES) if room in line)


@cache
def nodes(text: str) -> list[ast.AST]:
    """Everything that a module's text is made of, parsed once for all tests."""
    return list(ast.walk(ast.parse(text)))


def imports(source: Path, package: Path) -> Iterator[str]:
    """Dotted names that a module imports, whichever way it writes them."""
    here = ["melisma", *source.relative_to(package).with_suffix("").parts]
    for node in nodes(source.read_text("utf-8")):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


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


def module_graph(package: Path) -> dict[str, set[str]]:
    """Return what each module imports of the others, wherever in its file."""
    sources = {
        ".".join(["melisma", *path.relative_to(package).with_suffix("").parts]): path
        for path in package.rglob("*.py")
    }
    sources = {name.removesuffix(".__init__"): sources[name] for name in sources}
    sources.pop("melisma", None)  # its names are everybody's

    def module_of(name: str) -> str:
        """Return the module that defines a dotted name; "" for other packages."""
        while name and name not in sources:
            name = name.rpartition(".")[0]
        return name

    return {
        name: {module_of(imported) for imported in imports(source, package)} - {""}
        for name, source in sources.items()
    }


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Return a circle of a graph, its first node also last; [] if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_room_has_its_line() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}
    assert rooms - {"__init__", "__pycache__"} <= set().union(*LINES)


def test_rooms_import_only_from_below() -> None:
    assert violations(PACKAGE) == []


def test_modules_import_in_no_circle_even_for_their_types() -> None:
    assert circle(module_graph(PACKAGE)) == []


def test_rooms_import_in_no_circle() -> None:
    rooms: dict[str, set[str]] = {}
    for module, imported in module_graph(PACKAGE).items():
        room = module.split(".")[1]
        rooms.setdefault(room, set()).update(name.split(".")[1] for name in imported)
        rooms[room].discard(room)
    assert circle(rooms) == []


@pytest.mark.parametrize(
    "line",
    [
        "from melisma.rpc.b import f",
        "from melisma.rpc import b",
        "from . import b",
        "import melisma.rpc.b",
        "if TYPE_CHECKING:\n    from melisma.rpc.b import f",
        "def g():\n    from melisma.rpc.b import f",
    ],
)
def test_a_planted_circle_is_found(tmp_path: Path, line: str) -> None:
    room = tmp_path / "rpc"
    room.mkdir()
    (room / "__init__.py").write_text("from melisma.rpc.a import g")
    (room / "a.py").write_text(line)
    (room / "b.py").write_text("")
    assert circle(module_graph(tmp_path)) == []
    (room / "b.py").write_text("from melisma.rpc import a")
    assert set(circle(module_graph(tmp_path))) == {"melisma.rpc.a", "melisma.rpc.b"}


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


def test_no_module_is_longer_than_400_lines() -> None:
    lengths = {
        str(source.relative_to(PACKAGE)): len(source.read_text("utf-8").splitlines())
        for pattern in ("*.py", "*.js")
        for source in PACKAGE.rglob(pattern)
    }
    assert {name: n for name, n in lengths.items() if n > 400} == {}


def calls(name: str) -> set[str]:
    """Return the modules that call something of a name."""
    return {
        str(source.relative_to(PACKAGE))
        for source in PACKAGE.rglob("*.py")
        for node in nodes(source.read_text("utf-8"))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) == name
    }


def test_what_learners_train_by_is_made_of_a_job_in_one_place() -> None:
    assert calls("TrainingTable") <= {"jobs/building.py", "jobs/schema.py"}
    assert calls("training_of") == {"jobs/building.py", "cli/learner.py"}


def test_a_run_folder_has_one_writer() -> None:
    writers = [n for n in module_graph(PACKAGE) if re.search(OPENS, source_of(n))]
    assert writers == ["melisma.runs.store"]


#: What opens the records to write them.
OPENS = r"RECORDS\)\.open\(\"[aw]"


def source_of(module: str) -> str:
    path = PACKAGE.joinpath(*module.split(".")[1:])
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return file.read_text("utf-8")


def test_families_are_told_apart_by_their_table_alone() -> None:
    """No module but the table's asks what a scheme's name begins with."""
    prefixes = {"coded", "fog", "async", "coded:", "fog:", "async:"}
    found = {
        str(source.relative_to(PACKAGE))
        for source in PACKAGE.rglob("*.py")
        for node in nodes(source.read_text("utf-8"))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Constant) and side.value in prefixes
    }
    assert found == set()
