"""Seams are narrow: nothing forges a request, no method is there only to raise."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "melisma"
#: The adapters that may ask which call they answer.
ADAPTERS = {
    "learner/service.py",
    "fleets/attendance.py",
    "fleets/live_fog.py",
    "fleets/live_air.py",
    "fleets/served.py",
}


def trees(*rooms: str) -> Iterator[tuple[str, ast.Module]]:
    for room in rooms or ("",):
        for source in sorted((PACKAGE / room).rglob("*.py")):
            name = source.relative_to(PACKAGE).as_posix()
            yield name, ast.parse(source.read_text(encoding="utf-8"))


def mentions(tree: ast.AST, name: str) -> bool:
    return any(
        (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
        or (isinstance(node, ast.alias) and node.name.split(".")[-1] == name)
        for node in ast.walk(tree)
    )


def only_raising(tree: ast.AST) -> list[str]:
    """Methods whose body is one raise, but for a docstring."""
    return [
        f"{kind.name}.{method.name}"
        for kind in ast.walk(tree)
        if isinstance(kind, ast.ClassDef)
        for method in kind.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        if _only_raises(method.body)
    ]


def _only_raises(body: list[ast.stmt]) -> bool:
    rest = [statement for statement in body if not isinstance(statement, ast.Expr)]
    return len(rest) == 1 and isinstance(rest[0], ast.Raise)


@pytest.mark.slow
def test_nothing_outside_rpc_forges_the_current_request() -> None:
    found = [name for name, tree in trees() if mentions(tree, "current_request")]
    assert found
    assert all(name.startswith("rpc/") for name in found)


@pytest.mark.parametrize("room", ["learner", "fleets", "ray", "flower"])
def test_only_adapters_ask_for_the_current_request(room: str) -> None:
    found = {
        name
        for name, tree in trees(room)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "current"
        if isinstance(node.value, ast.Name) and node.value.id == "rpc"
    }
    assert found <= ADAPTERS


@pytest.mark.parametrize("room", ["learner", "fleets", "ray", "flower"])
def test_no_method_only_raises(room: str) -> None:
    found = {name: only_raising(tree) for name, tree in trees(room)}
    assert {name: methods for name, methods in found.items() if methods} == {}


@pytest.mark.parametrize("room", ["learner", "fleets", "ray", "flower"])
def test_nothing_imitates_by_any_attribute(room: str) -> None:
    assert [name for name, tree in trees(room) if "__getattr__" in ast.dump(tree)] == []


def test_a_planted_method_that_only_raises_is_found() -> None:
    planted = """
class Crew:
    async def bids(self):
        '''Cannot bid.'''
        raise ConfigError("no")
    def law(self):
        if self.known:
            return self.known
        raise ConfigError("no")
"""
    assert only_raising(ast.parse(planted)) == ["Crew.bids"]
