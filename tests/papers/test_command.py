import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from papers import KEYS, find
from typer.testing import CliRunner

from melisma import cli
from melisma.cli import papers
from melisma.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(*arguments: str) -> str:
    found = CliRunner().invoke(cli.app, ["papers", *arguments])
    if found.exception:
        raise found.exception
    return found.stdout


@pytest.mark.parametrize("key", KEYS)
def test_every_paper_is_listed(key: str) -> None:
    assert f"\n {key} " in ask("list")


@pytest.mark.parametrize("key", KEYS)
def test_every_exhibit_has_a_name_and_a_picture_of_its_own(key: str) -> None:
    exhibits = find(key).exhibits
    assert find(key).key == key
    assert len({one.label for one in exhibits}) == len(exhibits)
    assert len({one.file for one in exhibits}) == len(exhibits)


def test_one_figure_is_drawn_judged_and_written(in_tmp: Path) -> None:
    told = ask("run", "csa", "--figure", "2")
    assert "does not hold" in told
    assert "Written: runs/papers/pages/csa.md" in told
    pages = in_tmp / "runs/papers/pages"
    assert (pages / "csa/fig2_staleness.png").exists()
    assert "## Figure 2" in (pages / "csa.md").read_text()
    assert list((in_tmp / "runs/papers/csa").glob("run_staleness-*.npz"))
    assert not (in_tmp / "docs").exists()


def test_the_repository_is_updated_on_purpose(in_tmp: Path) -> None:
    ask("run", "csa", "--figure", "2", "--docs")
    page = (in_tmp / "docs/papers/csa.md").read_text()
    assert "## Figure 2" in page
    assert ask("judge") == "Written: docs/papers/csa.md\n"
    assert (in_tmp / "docs/papers/csa.md").read_text() == page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "cas"), "unknown paper 'cas': did you mean 'csa'"),
        (("judge", "cas"), "unknown paper 'cas': did you mean 'csa'"),
        (
            ("run", "csa", "--figure", "9"),
            "unknown figure, table or setting of csa '9'",
        ),
    ],
)
def test_what_is_unknown_is_said(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ask(*arguments)


def test_papers_that_are_not_installed_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> Any:
        if name.startswith("melisma_papers"):
            raise ModuleNotFoundError(name, name="melisma_papers")
        return import_module(name)

    monkeypatch.setattr(papers, "import_module", missing)
    with pytest.raises(ConfigError, match="papers are not installed"):
        ask("list")


def test_every_package_is_installed() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    source = ROOT / "src"
    there = {
        ".".join(file.parent.relative_to(source).parts)
        for file in (source / "melisma").rglob("__init__.py")
    }
    assert set(told["tool"]["setuptools"]["packages"]) == there | {"melisma_papers"}


@pytest.mark.slow
def test_a_wheel_has_the_papers(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    for folder in ("src", "papers"):
        shutil.copytree(ROOT / folder, clone / folder)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, clone)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(clone)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {
        "melisma_papers/csa.py",
        "melisma/cli/__init__.py",
        "melisma/melisma.mplstyle",
    } <= {*names}
