from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schemes.problems import heterogeneous, twins

from melisma.errors import ConfigError, InfeasibleError
from melisma.schemes.dab import dab, dab_adaptive, safely, shards
from melisma.system import learner_s


@pytest.mark.paper
def test_a_published_log_line() -> None:
    # (15 − 2·6.15592/9.24965) / (1/25.0834 + 1/9.24965) = 92.37
    answer = shards(
        deadline_s=15.0,
        shards_per_s=25.0834,
        bytes_per_s=9.24965,
        shard_bytes=1.0,
        model_bytes=6.15592,
        passes=1,
    )
    assert answer.tolist() == [92]


@pytest.mark.parametrize("second", [1.0, 0.1, 1.1, 1 / 3, 2.2])
def test_an_exact_bound_is_one_too_many(second: float) -> None:
    # 2·10 + a·(1 + 2·1) < 50 in any unit of time: a < 10.
    answer = shards(
        deadline_s=50 * second,
        shards_per_s=1 / second,
        bytes_per_s=1 / second,
        shard_bytes=1.0,
        model_bytes=10.0,
        passes=2,
    )
    assert answer.tolist() == [9]


@given(
    c=st.floats(0.01, 1e4),
    b=st.floats(0.01, 1e9),
    model=st.floats(0, 1e7),
    shard=st.floats(0, 1e7),
    deadline_s=st.floats(0.1, 1e4),
    passes=st.integers(1, 10),
)
def test_one_shard_more_would_be_late(
    c: float, b: float, model: float, shard: float, deadline_s: float, passes: int
) -> None:
    [a] = shards(
        deadline_s=deadline_s,
        shards_per_s=c,
        bytes_per_s=b,
        shard_bytes=shard,
        model_bytes=model,
        passes=passes,
    ).tolist()

    def seconds(a: int) -> float:
        return (2 * model + shard * a) / b + passes * a / c

    assert a == 0 or seconds(a) < deadline_s
    assert seconds(a + 1) >= deadline_s * (1 - 1e-11)


def test_twins_each_take_what_they_can() -> None:
    # d·(1 + 5·1) ms < 1 s: 166, but there are 100 samples.
    assert dab(replace(twins(), samples=1000)).samples.tolist() == [166, 166]
    assert dab(twins()).samples.tolist() == [100, 100]
    assert dab(twins()).steps.tolist() == [5, 5]


@pytest.mark.parametrize("seed", range(5))
def test_everyone_is_back_before_the_deadline(seed: int) -> None:
    problem = heterogeneous(seed, most=3300)
    allocation = dab(problem)
    more = np.minimum(allocation.samples + 1, 3300)
    assert (learner_s(problem, allocation) < problem.deadline_s).all()
    late = problem.seconds(more, 5) >= problem.deadline_s
    assert (late | (allocation.samples == 3300)).all()


def test_a_learner_decides_alone() -> None:
    problem = heterogeneous(0)
    others = replace(problem, step_s=np.r_[problem.step_s[0], problem.step_s[1:] * 3])
    assert dab(problem).samples[0] == dab(others).samples[0]
    assert (dab(problem).samples[1:] > dab(others).samples[1:]).all()


def test_a_learner_below_its_least_sits_out() -> None:
    # 166 and, at 4 ms a step, ⌈1000/21⌉ − 1 = 47 samples.
    problem = replace(twins(), step_s=np.array([1e-3, 4e-3]), least=50)
    allocation = dab(problem)
    assert allocation.samples.tolist() == [100, 0]
    assert allocation.steps.tolist() == [5, 0]


def test_nobody_in_time_is_infeasible() -> None:
    message = r"nobody finishes 5 steps .* before 0\.005 s; learner 0 .* 0\.006 s"
    with pytest.raises(InfeasibleError, match=message):
        dab(twins(deadline_s=0.005))


@pytest.mark.parametrize(
    ("deadline_s", "passes"), [(0.0, 1), (float("nan"), 1), (9.0, 0)]
)
def test_bad_input_is_named(deadline_s: float, passes: int) -> None:
    with pytest.raises(ConfigError, match=rf"{deadline_s} s for {passes} passes"):
        shards(
            deadline_s=deadline_s,
            shards_per_s=1.0,
            bytes_per_s=1.0,
            shard_bytes=1.0,
            model_bytes=1.0,
            passes=passes,
        )


def test_the_adaptive_one_takes_times_20_percent_longer_and_ends_before() -> None:
    problem = heterogeneous(3)
    bold, careful = dab(problem), dab_adaptive(problem)
    end_s = safely(problem.deadline_s)
    assert end_s == pytest.approx(0.97 * problem.deadline_s)
    busy = careful.samples > 0
    seconds = 1.2 * learner_s(problem, careful)
    assert (seconds[busy] <= end_s).all()
    one_more = replace(careful, samples=careful.samples + busy)
    limited = careful.samples >= problem.high
    assert (1.2 * learner_s(problem, one_more) >= end_s)[busy & ~limited].all()
    assert careful.samples.sum() < bold.samples.sum()


@pytest.mark.parametrize(
    ("deadline_s", "end_s"), [(10.0, 9.7), (1.0, 0.95), (0.06, 0.03)]
)
def test_a_margin_is_a_share_of_the_deadline_or_50_ms(
    deadline_s: float, end_s: float
) -> None:
    assert safely(deadline_s) == pytest.approx(end_s)
