"""Arrays that are given: checked, copied, frozen."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats, counts, numbers, set_numbers


def test_one_number_fills_the_shape_and_nobody_writes_to_it() -> None:
    array = numbers("cost", 2, shape=(2, 2))
    assert array.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1.0


def test_an_array_is_copied() -> None:
    given = np.ones(2)
    array = numbers("cost", given)
    given[0] = 5.0
    assert array.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("values", "limits", "said"),
    [
        ([1.0, -1.0], {}, r"cost\[1\] is -1: give finite numbers of at least 0$"),
        ([[0.0, np.nan]], {}, r"cost\[0, 1\] is nan: give finite numbers"),
        ([np.inf], {}, r"cost\[0\] is inf: give finite"),
        ([-np.inf], {"endless": True}, r"cost\[0\] is -inf: give numbers of at least"),
        ([np.nan], {"endless": True}, r"cost\[0\] is nan: give numbers of at least 0"),
        (0.0, {"above": 0.0}, r"cost is 0: give finite numbers above 0"),
        (2.0, {"least": 2.5}, r"cost is 2: give finite numbers of at least 2\.5"),
        ([1.0, -1.0], {"each": "task"}, r"cost of task 1 is -1: give"),
        ([1.0], {"shape": (2,)}, r"cost has shape \(1,\): give one number or \(2,\)"),
        ([1.0], {"shape": ()}, r"cost has shape \(1,\): give one number$"),
        (0.0, {"shape": (), "above": 0.0}, r"cost is 0: give a finite number above 0"),
        (["a"], {}, r"cost: give numbers \(could not convert"),
        ([[1.0], [1.0, 2.0]], {}, r"cost: give numbers \("),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    values: Any, limits: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        numbers("cost", values, **limits)


def test_no_end_is_a_number_where_there_may_be_none() -> None:
    assert numbers("room", [np.inf, 0.0], endless=True).tolist() == [np.inf, 0.0]


@pytest.mark.parametrize(
    ("values", "limits", "said"),
    [
        (1.5, {}, r"shards is 1\.5: give whole numbers of at least 0"),
        ([3, 0], {"least": 1}, r"shards\[1\] is 0: give whole numbers of at least"),
        ([0, 4], {"most": 3}, r"shards\[1\] is 4: give whole numbers from 0 to 3"),
        ([np.nan], {}, r"shards\[0\] is nan"),
        (2.0**60, {}, r"shards is 1\.15292e\+18: give whole numbers"),
    ],
)
def test_what_is_no_count_is_named(
    values: Any, limits: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        counts("shards", values, **limits)


def test_whole_numbers_are_counts_whatever_their_type() -> None:
    array = counts("shards", [1.0, 2.0])
    assert array.dtype == np.int64
    assert array.tolist() == [1, 2]


def test_a_field_of_a_frozen_dataclass_is_replaced_by_its_array() -> None:
    @dataclass(frozen=True, slots=True)
    class Prices:
        price: Floats

        def __post_init__(self) -> None:
            set_numbers(self, "price", shape=(3,))

    assert Prices(price=np.array(2.0)).price.tolist() == [2.0, 2.0, 2.0]
