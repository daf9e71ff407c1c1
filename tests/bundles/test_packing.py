"""Packing a job's own modules: what they import too, and nothing that is installed."""

import sys
from pathlib import Path

import pytest

from melisma.bundles.bundle import MOST_BYTES, MOST_FILES
from melisma.bundles.packing import pack
from melisma.errors import ConfigError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which no import finds by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    return tmp_path


def written(folder: Path, **sources: str) -> None:
    """Write modules, by dotted names with ``__`` for each dot; a package ends in it."""
    for name, text in sources.items():
        path = folder / name.replace("__", "/")
        path = path / "__init__.py" if name.endswith("__") else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def packed(folder: Path, *references: str) -> list[str]:
    return list(pack(references, [folder]).files)


def test_a_module_comes_with_those_that_it_imports_anywhere(folder: Path) -> None:
    written(
        folder,
        alone="",
        mine="import numpy\ndef f():\n    from theirs import x\n",
        theirs="import json, deep\nx = 1\n",
        deep="",
    )
    assert packed(folder, "mine:f") == ["deep.py", "mine.py", "theirs.py"]
    assert pack(["mine:f"], [folder]).files["deep.py"] == b""


def test_packages_come_with_what_runs_before_their_modules(folder: Path) -> None:
    written(
        folder,
        kit__="from . import early\nfrom .sub.leaf import y\n",
        kit__early="from .. import nothing\n",
        kit__other="",
        kit__sub__leaf="from ..twice import z\ny = 1\n",
        kit__twice="from kit import early\nz = 1\n",
        kit__named="import kit.last as last\n",
        kit__last="",
    )
    assert packed(folder, "kit.named:f") == [
        "kit/__init__.py",
        "kit/early.py",
        "kit/last.py",
        "kit/named.py",
        "kit/sub/leaf.py",
        "kit/twice.py",
    ]


def test_modules_may_import_each_other(folder: Path) -> None:
    written(folder, ring_a="import ring_b\n", ring_b="import ring_a\n")
    assert packed(folder, "ring_a:f", "ring_b:g") == ["ring_a.py", "ring_b.py"]


def test_what_is_installed_stays_out_though_it_lies_here(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = folder / ".venv" / "lib" / "site-packages"
    written(installed, a_library="")
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
    written(folder, mine="import a_library, json, torch, melisma\n", json="")
    assert packed(folder, "mine:f") == ["mine.py"]
    with pytest.raises(ConfigError, match="nothing to bundle"):
        packed(folder, "a_library:f")


def test_what_lies_in_another_folder_stays_out(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    written(elsewhere, far="")
    sys.path.append(str(elsewhere))
    written(folder, mine="import far\n")
    assert packed(folder, "mine:f") == ["mine.py"]
    assert list(pack(["mine:f"], [folder, elsewhere]).files) == ["far.py", "mine.py"]


def test_no_module_runs_when_it_is_packed(folder: Path) -> None:
    written(folder, mine="import theirs\n1 / 0\n", theirs="1 / 0\n")
    assert packed(folder, "mine:f") == ["mine.py", "theirs.py"]


def test_the_hash_is_that_of_names_and_contents(folder: Path) -> None:
    written(folder, mine="x = 1\n")
    first = pack(["mine:f"], [folder]).hash
    assert pack(["mine:f"], [folder]).hash == first
    written(folder, mine="x = 2\n")
    assert pack(["mine:f"], [folder]).hash != first
    written(folder, mine2="x = 1\n")
    assert pack(["mine2:f"], [folder]).hash != first


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"def f(:\n", r"cannot be bundled: .*line 1"),
        ("# coding: latin-1\nx = 'é'\n".encode("latin-1"), "save it as UTF-8"),
        (b"x = '\xff'\n", "cannot be bundled: "),
        (b"x = 1\0\n", "cannot be bundled: "),
    ],
)
def test_what_is_no_source_in_utf8_is_one_line(
    folder: Path, content: bytes, said: str
) -> None:
    (folder / "mine.py").write_bytes(content)
    with pytest.raises(ConfigError, match=said) as raised:
        packed(folder, "mine:f")
    assert "\n" not in str(raised.value)


def test_compiled_modules_are_not_packed(folder: Path) -> None:
    from importlib.machinery import EXTENSION_SUFFIXES

    written(folder, mine="import fast_part\n")
    (folder / f"fast_part{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"'fast_part' is .*install it on the dev"):
        packed(folder, "mine:f")


def test_a_whole_library_is_too_much(folder: Path) -> None:
    many = {f"part_{n}": "" for n in range(MOST_FILES)}
    written(folder, mine=f"import {', '.join(many)}\n", **many)
    with pytest.raises(ConfigError, match=f"over {MOST_FILES} files"):
        packed(folder, "mine:f")
    written(folder, mine="#" * MOST_BYTES + "\n")
    with pytest.raises(ConfigError, match=r"1,048,576 bytes: install the larger part"):
        packed(folder, "mine:f")


def test_a_module_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match="there is no module 'no_such'"):
        packed(folder, "no_such:f")
    with pytest.raises(ConfigError, match="names no module of its own"):
        packed(folder)
