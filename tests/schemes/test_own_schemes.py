"""Schemes from outside the package: registered, imported, checked."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.schemes.problems import twins

from melisma.errors import ConfigError, InfeasibleError
from melisma.schemes import DECENTRALISED, SCHEMES, find, scheme, summary
from melisma.schemes.checked import checked
from melisma.system import Allocation, Problem
from melisma.system.menu import Menu


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = dict(SCHEMES)
    yield
    SCHEMES.clear()
    SCHEMES.update(before)


def fastest(problem: Problem) -> Allocation:
    """All samples for the fastest learner."""
    d = np.where(problem.step_s == problem.step_s.min(), problem.samples, 0)
    return Allocation(samples=d, steps=problem.steps_within(d))


def test_a_registered_scheme_is_found_and_listed_like_any_other() -> None:
    assert scheme("fastest")(fastest) is fastest
    problem = replace(twins(1.05), step_s=np.array([1e-3, 2e-3]))
    # 100 samples take 0.1 s to receive and τ·0.1 s to train, of 1.05 s: τ = 9.
    allocation = find("fastest")(problem)
    assert allocation.samples.tolist() == [100, 0]
    assert allocation.steps.tolist() == [9, 0]
    assert "fastest" in SCHEMES
    assert summary("fastest") == "All samples for the fastest learner."


def test_a_scheme_may_be_registered_again_and_no_other_by_its_name() -> None:
    scheme("fastest")(fastest)
    scheme("fastest")(fastest)
    with pytest.raises(ConfigError, match=r"'csa' is melisma\.schemes\.csa\.csa alre"):
        scheme("csa")(fastest)


@pytest.mark.parametrize("name", ["coded", "fog", "async"])
def test_names_of_other_ways_to_train_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' is another way to train"):
        scheme(name)(fastest)


def test_a_scheme_without_its_name_is_no_decorator() -> None:
    with pytest.raises(TypeError, match=r'write @scheme\("name"\)'):
        scheme(fastest)  # type: ignore[arg-type]


def test_a_scheme_is_imported_from_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "lying_here.py").write_text(
        "from melisma.schemes import SCHEMES\n"
        "def mine(problem):\n"
        '    """Like CSA."""\n'
        "    return SCHEMES['csa'](problem)\n"
        "def wrong(problem):\n"
        "    return None\n"
    )
    allocation = find("lying_here:mine")(twins())
    assert allocation.samples.tolist() == [50, 50]
    assert summary("lying_here:mine") == "Like CSA."
    with pytest.raises(
        ConfigError, match="scheme 'lying_here:wrong': NoneType returned"
    ):
        find("lying_here:wrong")(twins())
    with pytest.raises(ConfigError, match="did you mean 'mine'"):
        find("lying_here:mien")


@pytest.mark.parametrize(
    ("samples", "steps", "said"),
    [
        ([50], [1], r"samples has shape \(1,\): give one number or \(2,\)"),
        ([50, 50], ["a", "b"], r"steps: give numbers \(could not convert"),
        ([50.5, 49.5], [1, 1], r"samples of learner 0 is 50\.5: give whole numbers"),
        ([50, float("nan")], [1, 1], "samples of learner 1 is nan"),
        ([110, -10], [1, 1], "samples of learner 1 is -10: give whole numbers"),
        ([50, 50], [1, 1e300], r"steps of learner 1 is 1e\+300: give whole numbers"),
        ([90, 3], [1, 1], "learner 1 is given 3 samples: give none, or 5 to 90"),
        ([91, 9], [1, 1], "learner 0 is given 91 samples: give none, or 5 to 90"),
        ([60, 60], 1, "120 of 100 samples are handed out: hand out 1 to 100, or"),
        ([0, 0], 0, "0 of 100 samples are handed out"),
    ],
)
def test_an_answer_that_cannot_be_carried_out_is_named(
    samples: Any, steps: Any, said: str
) -> None:
    answer = Allocation(samples=samples, steps=steps)
    mine = checked("mine", lambda problem: answer)
    with pytest.raises(ConfigError, match=f"scheme 'mine': {said}"):
        mine(replace(twins(), least=5, most=90))


def test_whole_numbers_of_any_type_are_taken_and_samples_may_be_left_out() -> None:
    answer = Allocation(samples=[50.0, 0.0], steps=3)  # type: ignore[arg-type]
    allocation = checked("mine", lambda problem: answer)(twins())
    assert allocation.samples.dtype == allocation.steps.dtype == np.int64
    assert allocation.samples.tolist() == [50, 0]
    assert allocation.steps.tolist() == [3, 0]


def chooses(problem: Problem) -> Allocation:
    """Two options: the first learner takes the one, and the second the other."""
    return replace(SCHEMES["csa"](problem), options=np.arange(problem.learners))


def test_a_scheme_may_choose_from_a_menu() -> None:
    problem = twins()
    allowed = np.array([[True, True], [True, False]])
    menu = Menu.of([problem, problem.slowed(compute=0.5)], [1.0, 0.9])
    offered = replace(problem, menu=menu)
    found = checked("chooses", chooses)(offered).options
    assert found is not None
    assert found.tolist() == [0, 1]
    limited = replace(problem, menu=replace(menu, allowed=allowed))
    with pytest.raises(ConfigError, match="learner 1 may not take option 1"):
        checked("chooses", chooses)(limited)
    with pytest.raises(ConfigError, match=r"options of learner 1 is 1: .* from 0 to 0"):
        checked("chooses", chooses)(problem)


@pytest.mark.parametrize("name", sorted({*SCHEMES} - DECENTRALISED))
def test_our_own_schemes_would_pass(name: str) -> None:
    problem = twins()
    allocation = checked(name, SCHEMES[name])(problem)
    assert allocation.samples.tolist() == SCHEMES[name](problem).samples.tolist()


def test_what_a_scheme_raises_comes_through() -> None:
    def none_fits(problem: Problem) -> Allocation:
        raise InfeasibleError("too late")

    with pytest.raises(InfeasibleError, match=r"^too late$"):
        checked("mine", none_fits)(twins())
