"""Files in the current folder that are named like packages are never imported."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = str(Path(sys.executable).with_name("melisma"))
OWN = """
from melisma.schemes import SCHEMES
from neighbour import NAME

def mine(problem):
    return SCHEMES[NAME](problem)
"""
NETS = """
import neighbour
from torch import nn

def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
"""
JOB = """
name = "own"
scheme = "own_schemes:mine"
model = "own_nets:small"
cycles = 1
"""
LEARNERS = """
[[learners]]
name = "a"
rate = "4000 samples/s"
bandwidth = "8 MB/s"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules of one's own, and some that leave a mark if imported."""
    for name in ("torch", "numpy", "json", "socket", "pickle", "selectors"):
        mark = str(tmp_path / f"{name}.mark")
        (tmp_path / f"{name}.py").write_text(f"open({mark!r}, 'w').close()\n")
    (tmp_path / "own_schemes.py").write_text(OWN)
    (tmp_path / "own_nets.py").write_text(NETS)
    (tmp_path / "neighbour.py").write_text("NAME = 'csa'\n")
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path


def assert_unshadowed(folder: Path, *command: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300.0,  # guards against hanging
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.glob("*.mark")) == []


@pytest.mark.parametrize("melisma", [(SCRIPT,), (sys.executable, "-m", "melisma")])
def test_help_imports_nothing_of_the_current_folder(
    folder: Path, melisma: tuple[str, ...]
) -> None:
    assert_unshadowed(folder, *melisma, "--help")


@pytest.mark.slow
def test_a_simulation_imports_what_its_job_names_and_nothing_else(
    folder: Path,
) -> None:
    assert_unshadowed(folder, SCRIPT, "simulate", "job.toml")


@pytest.mark.slow
def test_processes_of_a_comparison_import_nothing_else(folder: Path) -> None:
    flags = ("--schemes", "own_schemes:mine", "--seeds", "2", "--processes", "2")
    assert_unshadowed(folder, SCRIPT, "compare", "job.toml", *flags)


@pytest.mark.slow
def test_local_learners_import_nothing_else(folder: Path) -> None:
    with (folder / "job.toml").open("a") as job:
        job.write(f"samples = 200\nshard = 50\ndeadline = '3 s'\n{LEARNERS}")
    assert_unshadowed(folder, SCRIPT, "run", "job.toml")
