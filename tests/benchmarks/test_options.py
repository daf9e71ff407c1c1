"""Options of many learners, and HiGHS beside them."""

import bench_options
import numpy as np
import pytest
from tests.benchmarks.printed import output, row

from melisma.schemes.csa_options import csa_options


@pytest.mark.slow
def test_bench_options_has_a_row_with_and_without_coverage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench_options.main(quick=True)
    text = output(capsys)
    assert row(text, "0.3")[0] == 5
    assert "proven" in text


def test_another_optimum_would_be_found_out() -> None:
    problem, menu = bench_options.fleet(3)
    found = csa_options(problem, menu)
    with pytest.raises(RuntimeError, match="ours is"):
        bench_options.same(found, found.bound * 1.01)
    bench_options.same(found, np.nan)
