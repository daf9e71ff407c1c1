import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.system import DelayLaw
from melisma.system.options import AS_NOW, Options

LAW = DelayLaw(
    step_s=np.array([0.1, 0.2]),
    sample_s=np.array([0.01, 0.02]),
    fixed_s=np.array([2.5, 8.5]),
)
TWO = Options(
    names=("fp32", "int8"),
    size_bytes=np.array([8e6, 2e6]),
    value=np.array([1.0, 0.9]),
    overhead_s=0.5,
)


def test_an_option_shortens_what_travels_and_nothing_else() -> None:
    # 2 s and 8 s on the wire, a quarter of it by int8, and half a second besides.
    found = TWO.law(LAW, np.array([1, 0]))
    assert found.fixed_s.tolist() == [1.0, 8.5]
    assert found.step_s.tolist() == LAW.step_s.tolist()
    assert found.sample_s.tolist() == LAW.sample_s.tolist()
    assert TWO.saved_bytes(1) == 6_000_000


def test_option_0_is_the_law_itself() -> None:
    rng = np.random.default_rng(0)
    law = DelayLaw(
        step_s=rng.random(50) + 0.1, sample_s=rng.random(50), fixed_s=rng.random(50)
    )
    menu = TWO.menu(law, lambda law: law)
    assert menu is not None
    assert menu.law.fixed_s[:, 0].tolist() == law.fixed_s.tolist()
    assert TWO.law(law, None) is law


def test_a_menu_is_of_laws_as_they_are_planned_with() -> None:
    menu = TWO.menu(LAW, lambda law: law.slowed(network=2.0))
    assert menu is not None
    assert menu.law.fixed_s.tolist() == [[5.0, 2.0], [17.0, 5.0]]
    assert menu.value.tolist() == [[1.0, 0.9]] * 2


def test_a_part_of_the_model_takes_less_to_train() -> None:
    half = Options(
        names=("whole", "half"),
        size_bytes=np.array([4.0, 1.0]),
        value=np.array([1.0, 0.4]),
        compute=np.array([1.0, 0.25]),
    )
    found = half.law(LAW, np.array([1, 1]))
    assert found.step_s.tolist() == [0.025, 0.05]


def test_where_there_is_no_choice_there_is_no_menu() -> None:
    assert AS_NOW.menu(LAW, lambda law: law) is None


def test_what_is_no_option_is_said() -> None:
    with pytest.raises(ConfigError, match="no options: give one"):
        Options(names=(), size_bytes=np.ones(0), value=np.ones(0))
    with pytest.raises(ConfigError, match="value of option 1 is 0"):
        Options(names=("a", "b"), size_bytes=np.ones(2), value=np.array([1.0, 0.0]))
    with pytest.raises(ConfigError, match="size_bytes has shape"):
        Options(names=("a", "b"), size_bytes=np.ones(3), value=np.ones(2))
