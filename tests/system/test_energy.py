"""What a cycle spends: the law, its coefficients, and how far a battery goes."""

import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.system import DelayLaw, EnergyLaw, PowerProfile, Problem, Spending


def law() -> EnergyLaw:
    return EnergyLaw(
        step_j=np.array([2.0, 3.0]),
        sample_j=np.array([1.0, 0.0]),
        fixed_j=np.array([10.0, 0.0]),
    )


def profile(**others: float) -> PowerProfile:
    given = dict.fromkeys(PowerProfile.__dataclass_fields__, 0.0) | others
    each = {name: np.full(2, value) for name, value in given.items()}
    return PowerProfile(**each)


DELAYS = DelayLaw(
    step_s=np.array([0.5, 0.25]),
    sample_s=np.array([0.1, 0.2]),
    fixed_s=np.array([2.0, 4.0]),
)


def test_joules_by_hand() -> None:
    # 2·3·4 + 1·4 + 10 and 3·3·2; who has no samples spends nothing.
    assert law().joules([4, 2], 3).tolist() == [38.0, 18.0]
    assert law().joules([0, 2], [0, 3]).tolist() == [0.0, 18.0]


def test_watts_times_seconds() -> None:
    energy = profile(computing_w=4.0, sending_w=2.0, waking_j=1.0).energy(DELAYS)
    assert energy.step_j.tolist() == [2.0, 1.0]
    assert energy.sample_j.tolist() == [0.2, 0.4]
    assert energy.fixed_j.tolist() == [5.0, 9.0]


def test_predicted_is_what_a_cycle_that_takes_as_long_spends() -> None:
    power = profile(computing_w=4.0, sending_w=2.0, waking_j=1.0)
    # 10 samples, 3 steps of the first: 15 s of computing, 1 + 2 s on the link.
    spent_j = power.spent_j(0, computing_s=15.0, sending_s=3.0)
    assert spent_j == pytest.approx(power.energy(DELAYS).joules([10, 0], 3)[0])


def test_a_sensor_is_believed_within_reason() -> None:
    power = profile(computing_w=4.0, sending_w=2.0)
    assert power.spent_j(0, 1.0, 3.0) == 10.0
    assert power.spent_j(0, 1.0, 3.0, sensed_j=7.0) == 7.0
    assert power.spent_j(0, 1.0, 3.0, sensed_j=1e9) == 100.0


def test_money_is_paid_for_joules_seconds_and_bytes() -> None:
    power = profile(
        computing_w=4.0,
        sending_w=2.0,
        joule_price=0.5,
        second_price=3.0,
        byte_price=0.1,
    )
    money = power.money(DELAYS, sample_bytes=20.0, model_bytes=100.0)
    assert money.step_j.tolist() == [1.0 + 1.5, 0.5 + 0.75]
    # 0.5·2 W·0.1 s + 3·0.1 s + 0.1·20 bytes
    assert money.sample_j[0] == pytest.approx(0.1 + 0.3 + 2.0)
    # 0.5·2 W·2 s + 3·2 s + both ways 0.1·100 bytes
    assert money.fixed_j[0] == pytest.approx(2.0 + 6.0 + 20.0)


def test_carbon_is_of_joules() -> None:
    power = profile(computing_w=4.0, sending_w=2.0, carbon_g=0.25)
    assert power.carbon(DELAYS).step_j.tolist() == [0.5, 0.25]


@pytest.mark.parametrize("seed", range(100))
def test_a_battery_lasts_for_what_fits_and_not_for_one_more(seed: int) -> None:
    rng = np.random.default_rng(seed)
    energy = EnergyLaw(
        step_j=rng.uniform(0, 2, 50) * (rng.random(50) < 0.9),
        sample_j=rng.uniform(0, 2, 50) * (rng.random(50) < 0.5),
        fixed_j=rng.uniform(0, 9, 50) * (rng.random(50) < 0.5),
    )
    steps, most = int(rng.integers(1, 9)), rng.integers(0, 40, 50)
    # Some batteries hold just what a number of samples takes, as rounding has it.
    battery_j = energy.joules(rng.integers(0, 30, 50), steps)
    d = energy.samples_within(battery_j, steps, most)
    assert (energy.joules(d, steps) <= battery_j).all()
    more = d < most
    assert (energy.joules(d + 1, steps) > battery_j)[more].all()
    assert (d <= most).all()


def test_shards_and_some_learners_have_the_same_law() -> None:
    assert law().per_shard(5).joules([2, 3], 4) == pytest.approx(
        law().joules([10, 15], 4)
    )
    spending = Spending(cost=law(), battery_j=np.array([1.0, np.inf]), budget=3.0)
    one = spending.only(np.array([False, True]))
    assert (one.learners, one.budget) == (1, 3.0)
    assert np.isinf(one.battery_j).all()


def test_a_problem_of_some_learners_keeps_what_they_spend() -> None:
    problem = Problem.of(
        DELAYS, samples=3, deadline_s=9.0, steps=4, spending=Spending(cost=law())
    )
    some = problem.of_some(np.array([False, True]))
    assert some.spending is not None
    assert some.spending.cost.step_j.tolist() == [3.0]
    assert some.steps == 4


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="step_j of learner 1 is -1"):
        EnergyLaw(step_j=[1, -1], sample_j=[0, 0], fixed_j=[0, 0])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="shapes"):
        EnergyLaw(step_j=[1, 1], sample_j=[0], fixed_j=[0, 0])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="budget of nan"):
        Spending(cost=law(), budget=np.nan)
    with pytest.raises(ConfigError, match="battery_j of learner 0 is -1"):
        Spending(cost=law(), battery_j=np.array([-1.0, 2.0]))
    with pytest.raises(ConfigError, match="spending of 2 learners, and times of 1"):
        Problem.of(
            DELAYS.only(np.array([0])),
            samples=1,
            deadline_s=1.0,
            spending=Spending(cost=law()),
        )
