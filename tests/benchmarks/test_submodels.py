"""What parts of models cost, and a race with slow devices."""

import bench_submodels
import pytest
from tests.benchmarks.printed import run

from melisma.learning.settings import Late


@pytest.mark.slow
def test_bench_submodels_prints_both_tables() -> None:
    text = run("bench_submodels.py", "--quick")
    assert "width 0.5" in text
    for arm in bench_submodels.ARMS:
        assert arm in text


def test_the_slow_can_do_half_the_width_in_time_and_no_more() -> None:
    # By the law, without training: 4,000 images on 16 devices, 250 each.
    from melisma.jobs.averaging import learners_of
    from melisma.learning.settings import HERE

    seconds = {}
    for submodel in (None, bench_submodels.HALF):
        job = bench_submodels.job(Late.DROP, submodel, seed=0, quick=False)
        _, crew = learners_of(job, HERE)
        assert crew.own_samples is not None
        times = crew.true_law().seconds(crew.own_samples, [1] * 16)
        seconds[submodel] = times
        assert max(times[:4]) < 3
    assert min(seconds[None][4:]) > 3
    assert max(seconds[bench_submodels.HALF][4:]) < 3


def test_accuracy_at_a_time_is_that_of_the_last_cycle_before() -> None:
    seen = [(3.0, 0.2), (6.0, 0.5), (9.0, 0.4)]
    assert [bench_submodels.at(seen, t) for t in (1, 3, 8.9, 99)] == pytest.approx(
        [0.0, 0.2, 0.5, 0.4]
    )
