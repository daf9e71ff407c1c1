from dataclasses import replace

import numpy as np
import pytest
from tests.schemes.problems import heterogeneous, twins

from melisma.errors import ConfigError, InfeasibleError
from melisma.schemes.csa import csa
from melisma.schemes.csa_testbed import csa_testbed
from melisma.system import DelayLaw, Problem, cycle_s, learner_s, truancy


def nanos(deadline_s: float) -> Problem:
    """Four Jetson Nanos that train 1.39 and fetch 4 shards a second; 120 shards."""
    law = DelayLaw.from_rates(
        samples_per_s=np.full(4, 1.39),
        bytes_per_s=np.full(4, 4.0),
        sample_bytes=1.0,
        model_bytes=6.16,
    )
    return Problem.of(law, samples=120, deadline_s=deadline_s)


def test_shares_follow_training_plus_download_rate() -> None:
    # c + b = 1000 + 1000 and 500 + 1000 a second: 4/7 and 3/7 of 70.
    # τ = (1040 − 40)/40 = 25 and (1040 − 30)/60 = 16.8, rounded: the second is late.
    problem = replace(twins(1.04), step_s=np.array([1e-3, 2e-3]), samples=70)
    allocation = csa_testbed(problem)
    assert allocation.samples.tolist() == [40, 30]
    assert allocation.steps.tolist() == [25, 17]


@pytest.mark.paper
def test_120_shards_overrun_21_s_on_four_nanos() -> None:
    # 30 shards each: (12.32 + 30)/4 + 30/1.39 = 32.2 s, though one step is all it asks.
    problem = nanos(21.0)
    allocation = csa_testbed(problem)
    assert allocation.samples.tolist() == [30, 30, 30, 30]
    assert allocation.steps.tolist() == [1, 1, 1, 1]
    seconds = learner_s(problem, allocation)
    assert cycle_s(seconds) == pytest.approx(32.2, abs=0.05)
    assert truancy(seconds, 21.0) > 0.5


@pytest.mark.paper
def test_exact_csa_says_that_120_shards_do_not_fit_there() -> None:
    # ⌊(21 − 3.08)/(1/1.39 + 1/4)⌋ = 18 each.
    with pytest.raises(
        InfeasibleError, match=r"120 samples do not fit in 21 s.* 72 do"
    ):
        csa(nanos(21.0))


@pytest.mark.parametrize("seed", range(5))
def test_all_samples_are_handed_out_with_at_least_one_step(seed: int) -> None:
    problem = heterogeneous(seed, most=3500)
    allocation = csa_testbed(problem)
    assert allocation.samples.sum() == problem.samples
    assert (allocation.samples <= 3500).all()
    assert allocation.steps.min() >= 1


def test_free_downloads_have_no_rate() -> None:
    with pytest.raises(ConfigError, match=r"learner 0 receives samples in 0 s"):
        csa_testbed(replace(twins(), sample_s=np.zeros(2)))
