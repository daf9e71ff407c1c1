from itertools import pairwise

import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.system import CSA_WORKLOAD, Channel, DelayLaw, Mode, Workload, cell, clocks

LAW = DelayLaw(
    step_s=np.array([[1.0, 3.0], [2.0, 2.0]]),
    sample_s=np.array([[0.0, 1.0], [1.0, 5.0]]),
    fixed_s=np.array([[2.0, 4.0], [0.0, 8.0]]),
)


def test_time_is_steps_times_samples_plus_transfers() -> None:
    # 2·3·5 + 1·5 + 4 = 39; without samples nothing is sent.
    law = DelayLaw(step_s=np.full(2, 2.0), sample_s=np.ones(2), fixed_s=np.full(2, 4.0))
    assert law.seconds([5, 0], [3, 3]).tolist() == [39.0, 0.0]


def test_coefficients_from_benchmarked_rates() -> None:
    # 4 shards a second trained, 10 bytes a second: 1/4, 20/10 and 2·30/10 s.
    law = DelayLaw.from_rates(
        samples_per_s=[4.0], bytes_per_s=[10.0], sample_bytes=20.0, model_bytes=30.0
    )
    assert [*law.step_s, *law.sample_s, *law.fixed_s] == [0.25, 2.0, 6.0]


def test_federated_learners_receive_no_data() -> None:
    rates = DelayLaw.from_rates(
        samples_per_s=[4.0],
        bytes_per_s=[10.0],
        sample_bytes=20.0,
        model_bytes=30.0,
        mode=Mode.FEDERATED,
    )
    channel = cell(2, 15.0, mode=Mode.FEDERATED)
    assert [*rates.sample_s, *rates.fixed_s] == [0.0, 6.0]
    assert channel.sample_s.tolist() == [0.0, 0.0]
    assert (channel.fixed_s == cell(2, 15.0).fixed_s).all()


def test_a_model_that_grows_with_its_data_is_sent_back_too() -> None:
    # (100 + 2·7)/10 s a sample: the data, and the model's share of it both ways.
    workload = Workload(
        sample_bits=100, model_bits=5, cycles_per_sample=1, model_bits_per_sample=7
    )
    law = DelayLaw.from_channel(workload, clock_hz=1.0, rate_bps=10.0)
    assert law.sample_s == pytest.approx(11.4)


def test_expected_over_states() -> None:
    # Learner 0: 3/4·1 + 1/4·3 = 1.5; learner 1 in state 1 for certain.
    law = LAW.expected([[0.75, 0.25], [0.0, 1.0]])
    assert law.step_s.tolist() == [1.5, 2.0]
    assert law.sample_s.tolist() == [0.25, 5.0]
    assert law.fixed_s.tolist() == [2.5, 8.0]


@pytest.mark.parametrize("probability", [[0.5, 0.6], [1.5, -0.5]])
def test_probabilities_must_be_probabilities(probability: list[float]) -> None:
    with pytest.raises(ConfigError, match="must be at least 0 and sum to 1"):
        LAW.expected(probability)


def test_shards_cost_their_size_in_samples() -> None:
    law = DelayLaw(step_s=np.ones(1), sample_s=np.full(1, 2.0), fixed_s=np.ones(1))
    assert law.per_shard(500).seconds([2], [3]) == law.seconds([1000], [3])


@pytest.mark.paper
def test_coefficients_of_table_1() -> None:
    law = cell(2, 15.0)
    assert Channel().rate_bps(50.0) == pytest.approx(198.4e6, rel=1e-3)
    assert law.step_s == pytest.approx([468.2e-6, 1605.3e-6], rel=1e-4)
    assert law.sample_s == pytest.approx(31.6e-6, rel=1e-3)
    assert law.fixed_s == pytest.approx(90.5e-3, rel=1e-3)


@pytest.mark.paper
def test_the_other_reading_of_the_attenuation() -> None:
    rate_bps = Channel(slope_db=21.0).rate_bps(50.0)
    assert rate_bps == pytest.approx(145.1e6, rel=1e-3)


@pytest.mark.paper
def test_the_workload_is_the_papers_network() -> None:
    layers = [784, 300, 124, 60, 10]
    weights = sum(a * b for a, b in pairwise(layers))
    assert CSA_WORKLOAD.model_bits == 32 * weights
    assert CSA_WORKLOAD.cycles_per_sample == 4 * (weights + sum(layers[1:]))


def test_the_larger_half_of_an_odd_cell_is_fast() -> None:
    assert (clocks(5) == 2.4e9).sum() == 3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_a_time_that_is_none_is_named(bad: float) -> None:
    with pytest.raises(ConfigError, match=rf"sample_s of learner 1 is {bad:g}: give"):
        DelayLaw(step_s=np.ones(2), sample_s=np.array([0.0, bad]), fixed_s=np.ones(2))


def test_a_step_must_take_time() -> None:
    with pytest.raises(ConfigError, match=r"step_s of learner 0 is 0: .* above 0"):
        DelayLaw(step_s=np.zeros(1), sample_s=np.zeros(1), fixed_s=np.zeros(1))


@pytest.mark.parametrize("bad", [np.nan, 0.0, np.inf])
def test_a_rate_that_is_none_is_named(bad: float) -> None:
    with pytest.raises(ConfigError, match=rf"rate_bps of learner 1 is {bad:g}"):
        DelayLaw.from_channel(CSA_WORKLOAD, clock_hz=1e9, rate_bps=[1e6, bad])


def test_coefficients_of_other_lengths_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"shapes \(2,\), \(3,\) and \(2,\)"):
        DelayLaw(step_s=np.ones(2), sample_s=np.ones(3), fixed_s=np.ones(2))


def test_a_benchmark_finds_the_mean_of_its_shards() -> None:
    rng = np.random.default_rng(3)
    found = LAW.measured(shards=20, noise=0.3, rng=np.random.default_rng(3))
    # By hand: of training first, then of transfers; shard by shard.
    compute, network = (
        np.mean([np.exp(0.3 * rng.standard_normal((2, 2))) for _ in range(20)], axis=0)
        for _ in range(2)
    )
    np.testing.assert_allclose(found.step_s, LAW.step_s * compute)
    np.testing.assert_allclose(found.sample_s, LAW.sample_s * network)
    np.testing.assert_allclose(found.fixed_s, LAW.fixed_s * network)


def test_more_shards_make_a_better_benchmark() -> None:
    law = DelayLaw(step_s=np.ones(4000), sample_s=np.ones(4000), fixed_s=np.ones(4000))
    rng = np.random.default_rng(0)
    few, many = (
        law.measured(shards=n, noise=0.2, rng=rng).step_s.std() for n in (2, 20)
    )
    assert few / many == pytest.approx(np.sqrt(10), rel=0.1)
    exact = law.measured(shards=3, noise=0.0, rng=rng)
    assert (exact.step_s == 1).all()
    assert (exact.fixed_s == 1).all()


def test_a_slowed_law_has_its_factors_and_its_overhead() -> None:
    slowed = LAW.slowed(compute=2.0, network=3.0, overhead_s=0.5)
    np.testing.assert_array_equal(slowed.step_s, 2 * LAW.step_s)
    np.testing.assert_array_equal(slowed.sample_s, 3 * LAW.sample_s)
    np.testing.assert_array_equal(slowed.fixed_s, 3 * LAW.fixed_s + 0.5)
