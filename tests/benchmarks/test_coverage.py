"""No benchmark is without a test that runs it."""

from pathlib import Path

import pytest
from tests.benchmarks.printed import BENCHMARKS

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(f.stem for f in BENCHMARKS.glob("bench_*.py")))
def test_every_benchmark_has_a_test_that_runs_it(name: str) -> None:
    file = HERE / f"test_{name.removeprefix('bench_')}.py"
    assert file.exists(), f"{name}.py rots unless {file.name} runs it at a tiny size"
    source = file.read_text()
    assert f"{name}.main(" in source or f'"{name}.py"' in source
