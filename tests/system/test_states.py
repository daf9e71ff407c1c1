import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.system.law import DelayLaw
from melisma.system.states import States, heated


def two() -> States:
    """Two learners of two states, one task of two passes over shards of 10 samples."""
    law = DelayLaw(
        step_s=np.array([[0.05, 0.1], [0.025, 0.025]]),
        sample_s=np.array([[0.3, 0.6], [0.06, 0.12]]),
        fixed_s=np.array([[10.0, 20.0], [2.0, 4.0]]),
    )
    return States.of([law], [[0.75, 0.25], [0.5, 0.5]], shard=[10], steps=[2])


def test_delays_follow_from_the_law() -> None:
    states = two()
    # 10·(0.3 + 2·0.05) = 4, 10·(0.6 + 2·0.1) = 8; 0.6 + 0.5 = 1.1, 1.2 + 0.5 = 1.7
    assert states.shard_s[0].ravel() == pytest.approx([4.0, 8.0, 1.1, 1.7])
    assert states.fixed_s[0].tolist() == [[10.0, 20.0], [2.0, 4.0]]


def test_the_mean_is_over_the_states() -> None:
    shard_s, fixed_s = two().expected()
    assert shard_s[0] == pytest.approx([0.75 * 4 + 0.25 * 8, 1.4])
    assert fixed_s[0] == pytest.approx([12.5, 3.0])


def test_in_a_state_a_learner_is_as_fast_as_in_that_state() -> None:
    shard_s, fixed_s = two().at(np.array([1, 0]))
    assert shard_s[0] == pytest.approx([8.0, 1.1])
    assert fixed_s[0].tolist() == [20.0, 2.0]


def test_states_are_drawn_as_often_as_they_are_likely() -> None:
    states, rng = two(), np.random.default_rng(0)
    drawn = np.array([states.draw(rng) for _ in range(4000)])
    # Of 4,000 draws at 1/4 and 1/2: standard deviations of 0.007 and 0.008.
    assert drawn.mean(axis=0) == pytest.approx([0.25, 0.5], abs=0.03)


def test_heat_spreads_the_states() -> None:
    cold, warm, hot = (heated([0], 3, heat)[0, 0] for heat in (0.001, 0.5, 1e6))
    assert cold == 1.0
    assert warm == pytest.approx(0.78699, abs=1e-5)
    assert hot == pytest.approx(1 / 3, abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probability": [[0.5, 0.6], [0.5, 0.5]]}, "sum to 1"),
        ({"probability": [[1.5, -0.5], [0.5, 0.5]]}, "at least 0"),
        ({"shard_s": np.ones((1, 3, 2))}, "shape"),
        ({"fixed_s": np.full((1, 2, 2), np.nan)}, "fixed_s of task 0 is nan"),
    ],
)
def test_what_cannot_be_is_named(changes: dict[str, object], message: str) -> None:
    states = two()
    fields = {n: getattr(states, n) for n in ("probability", "shard_s", "fixed_s")}
    with pytest.raises(ConfigError, match=message):
        States(**(fields | changes))


def test_no_heat_is_named() -> None:
    with pytest.raises(ConfigError, match="a heat of 0"):
        heated([0], 3, 0.0)
