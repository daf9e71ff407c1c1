from typing import Any

import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.system import Allocation, DelayLaw
from melisma.system.menu import Menu


def law(learners: int = 2, options: int = 3) -> DelayLaw:
    ones = np.ones((learners, options))
    return DelayLaw(step_s=ones * [1.0, 0.5, 0.25], sample_s=ones, fixed_s=ones)


def test_one_value_for_each_option_is_that_of_all_learners() -> None:
    menu = Menu(law=law(), value=np.array([1.0, 0.5, 0.2]))
    assert menu.value.tolist() == [[1.0, 0.5, 0.2]] * 2
    assert menu.may.all()
    assert (menu.learners, menu.options) == (2, 3)


def test_what_a_plan_is_worth_and_covers() -> None:
    blocks = np.array([[1.0, 1.0], [1.0, 0.5], [1.0, 0.0]])
    menu = Menu(law=law(), value=np.array([1.0, 0.5, 0.2]), blocks=blocks)
    plan = Allocation(samples=np.array([30, 10]), steps=np.array([2, 3]))
    options = np.array([1, 2])
    # 0.5·2·30 + 0.2·3·10 = 36; the second block has half of 30 samples in 40.
    assert menu.worth(plan.samples, plan.steps, options) == pytest.approx(36.0)
    assert menu.coverage(plan.samples, options).tolist() == [1.0, 0.375]
    assert menu.law_of(options).step_s.tolist() == [0.5, 0.25]


def test_the_menu_of_some_learners() -> None:
    value = np.array([[1.0, 0.5, 0.2], [1.0, 0.6, 0.3]])
    some = Menu(law=law(), value=value).only(np.array([False, True]))
    assert some.value.tolist() == [[1.0, 0.6, 0.3]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"law": law().only(np.array([0])).at(np.array([0]), np.array([1]))}, "shape"),
        ({"value": np.array([1.0, 0.0, 1.0])}, r"value\[1\] is 0: .* above 0"),
        ({"value": np.ones(4)}, r"value has shape \(4,\): give one number or \(3,\)"),
        (
            {"allowed": np.ones((2, 2), dtype=bool)},
            r"allowed is bool of shape \(2, 2\)",
        ),
        ({"allowed": np.array([[True] * 3, [False] * 3])}, "learner 1 may take no"),
        ({"blocks": np.ones((2, 2))}, "a row for each of 3 options"),
        ({"blocks": np.full((3, 2), 2.0)}, "a share of 2 of a block: give 0 to 1"),
        ({"blocks": np.eye(3)}, "option 0 trains 0 of block 1: as now means the whole"),
    ],
)
def test_what_is_no_menu_is_said(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Menu(**{"law": law(), "value": np.ones(3), **wrong})
