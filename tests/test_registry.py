"""Functions of users: registered, or imported from where they lie."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from melisma.errors import ConfigError
from melisma.registry import imported, register


def one() -> int:
    return 1


def other() -> int:
    return 2


def test_a_function_is_known_by_its_name() -> None:
    known: dict[str, Callable[[], int]] = {}
    register(known, "number", "one", one)
    assert known["one"]() == 1


def test_a_cell_that_runs_again_replaces_its_function() -> None:
    known: dict[str, Callable[[], int]] = {}
    for number in (1, 2):

        def mine(number: int = number) -> int:
            return number

        register(known, "number", "mine", mine)
    assert known["mine"]() == 2


def test_a_taken_name_says_whose_it_is() -> None:
    known: dict[str, Callable[[], int]] = {"one": one}
    message = r"number 'one' is .*test_registry\.one already: give .*\.other another"
    with pytest.raises(ConfigError, match=message):
        register(known, "number", "one", other)
    assert known["one"] is one


@pytest.mark.parametrize("name", ["", "a b", "a:b", "../a", "a/b", 3])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no name of a number: give letters"):
        register({}, "number", name, one)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which no import finds by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def test_a_function_is_imported_from_the_current_folder(folder: Path) -> None:
    (folder / "my_numbers.py").write_text("def seven():\n    return 7\n")
    assert imported("number", "my_numbers:seven")() == 7


def test_a_package_may_hold_it(folder: Path) -> None:
    (folder / "sevens").mkdir()
    (folder / "sevens" / "numbers.py").write_text("def seven():\n    return 7\n")
    assert imported("number", "sevens.numbers:seven")() == 7


def test_an_installed_module_comes_before_one_of_the_current_folder(
    folder: Path,
) -> None:
    (folder / "json.py").write_text("def dumps():\n    return 7\n")
    assert imported("number", "json:dumps") is json.dumps
    assert str(folder) not in sys.path


def test_a_module_imports_its_neighbours_at_once_or_when_it_is_called(
    folder: Path,
) -> None:
    (folder / "sixes.py").write_text("SIX = 6\n")
    (folder / "ones.py").write_text("from more_ones import ONE\n")
    (folder / "more_ones.py").write_text("ONE = 1\n")
    (folder / "summed.py").write_text(
        "from sixes import SIX\n"
        "def seven():\n"
        "    from ones import ONE\n"
        "    return SIX + ONE\n"
    )
    assert imported("number", "summed:seven")() == 7


def test_other_modules_do_not_see_the_current_folder(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    installed = tmp_path_factory.mktemp("installed")
    (installed / "optional_user.py").write_text(
        "try:\n    import not_installed\nexcept ImportError:\n    found = False\n"
        "else:\n    found = True\n"
    )
    sys.path.append(str(installed))
    (folder / "not_installed.py").write_text("")
    (folder / "asks.py").write_text(
        "import optional_user\ndef found():\n    return optional_user.found\n"
    )
    assert imported("answer", "asks:found")() is False
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("not_installed")


@pytest.mark.parametrize("reference", ["seven", ":seven", "my_numbers:", "my-n:seven"])
def test_a_reference_has_a_module_and_a_function(reference: str) -> None:
    with pytest.raises(ConfigError, match="give a name, or module:function"):
        imported("number", reference)


def test_a_module_that_is_not_there_is_named(folder: Path) -> None:
    message = rf"number 'no_such:seven': there is no module 'no_such', .*{folder.name}"
    with pytest.raises(ConfigError, match=message):
        imported("number", "no_such:seven")


def test_a_module_that_lacks_another_says_so_itself(folder: Path) -> None:
    (folder / "lacking.py").write_text("import no_such_library\n")
    with pytest.raises(ConfigError, match="lacking imports 'no_such_library'"):
        imported("number", "lacking:seven")


def test_a_function_that_is_not_there_is_answered_with_the_nearest(
    folder: Path,
) -> None:
    (folder / "near.py").write_text("from math import sqrt\ndef seven():\n    pass\n")
    message = r"unknown function of near 'sevn': did you mean 'seven'\? Known: seven$"
    with pytest.raises(ConfigError, match=message):
        imported("number", "near:sevn")


def test_what_cannot_be_called_is_named(folder: Path) -> None:
    (folder / "constant.py").write_text("SEVEN = 7\n")
    with pytest.raises(ConfigError, match=r"'constant:SEVEN' is of type int: give a f"):
        imported("number", "constant:SEVEN")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def f(:\n",
            r"number 'broken:seven' fails: SyntaxError: .*broken\.py, line 1",
        ),
        (
            "\nraise RuntimeError('no\\nfile')\n",
            r"number 'broken:seven' fails: RuntimeError: no file \(broken\.py, ",
        ),
    ],
)
def test_a_module_that_fails_is_told_with_its_line(
    folder: Path, text: str, message: str
) -> None:
    (folder / "broken.py").write_text(text)
    with pytest.raises(ConfigError, match=message):
        imported("number", "broken:seven")
