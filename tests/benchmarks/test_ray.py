"""A cycle is timed on our own connections and on Ray."""

import pytest
from tests.benchmarks.printed import row, run


@pytest.mark.alone
@pytest.mark.slow
def test_bench_ray_times_both_ways() -> None:
    text = run("bench_ray.py", "--learners", 1, "--cycles", 2, "--models", "TwoNN")
    for way in ("own connections", "Ray"):
        _, fetch_ms, hand_over_ms, cycle_ms = row(text, "TwoNN", way)
        assert min(fetch_ms, hand_over_ms, cycle_ms) > 0
