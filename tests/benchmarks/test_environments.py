"""Peers that are not there are named in one line; `make bench` knows all there are."""

import re
from pathlib import Path

import pytest
from peers.environments import lack_of, python_of

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
#: Need root or a GPU, or install everything anew.
BY_HAND = {
    "first_minute",
    *("gpu", "med_testbed", "owners", "promises_testbed", "testbed"),
    "wire_testbed",
}


def test_a_package_that_is_not_installed_is_named_by_its_package() -> None:
    lack = lack_of({"json": "json", "no_such_module": "no-such-package"})
    assert lack.startswith("no-such-package is not installed (`make .venv-bench/ready`")


def test_nothing_lacks_where_all_is_installed() -> None:
    assert lack_of({"json": "json"}) == ""


def test_an_environment_that_is_not_set_up_says_how_to(tmp_path: Path) -> None:
    (tmp_path / ".venv-slow").mkdir()  # half an installation is none
    with pytest.raises(FileNotFoundError, match=r"`make \.venv-slow/ready`"):
        python_of("slow", tmp_path)


def test_an_environment_that_is_set_up_has_a_python(tmp_path: Path) -> None:
    (tmp_path / ".venv-quick").mkdir()
    (tmp_path / ".venv-quick" / "ready").touch()
    assert python_of("quick", tmp_path) == tmp_path / ".venv-quick/bin/python"


def test_make_bench_sets_up_every_environment() -> None:
    for file in (ROOT / "benchmarks" / "peers").glob("*.txt"):
        assert f"$(MAKE) --no-print-directory .venv-{file.stem}/ready" in MAKEFILE


def test_make_bench_runs_every_benchmark_that_needs_neither_root_nor_gpu() -> None:
    (names,) = re.findall(r"^BENCHES := (.*)$", MAKEFILE, flags=re.MULTILINE)
    files = (ROOT / "benchmarks").glob("bench_*.py")
    assert {*names.split(), *BY_HAND} == {f.stem.removeprefix("bench_") for f in files}
