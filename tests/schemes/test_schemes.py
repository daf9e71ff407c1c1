from dataclasses import replace

import numpy as np
import pytest
from tests.schemes.problems import heterogeneous, twins

from melisma.errors import ConfigError, InfeasibleError
from melisma.schemes import DECENTRALISED, SCHEMES, Scheme, find, summary

EVERY = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)


def test_a_scheme_is_found_by_its_name() -> None:
    assert find("csa") is SCHEMES["csa"]


def test_an_unknown_scheme_is_answered_with_the_nearest_and_all() -> None:
    message = r"unknown scheme 'cas': did you mean 'csa'\? Known: .*csa-strict.*sync"
    with pytest.raises(ConfigError, match=message):
        find("cas")


def test_every_scheme_says_in_a_sentence_what_it_does() -> None:
    assert all(summary(name).endswith(".") for name in SCHEMES)


def test_decentralised_schemes_are_schemes() -> None:
    assert set(SCHEMES) >= DECENTRALISED


@EVERY
def test_the_same_problem_has_the_same_answer(scheme: Scheme) -> None:
    first, second = scheme(heterogeneous(1)), scheme(heterogeneous(1))
    assert first.samples.tolist() == second.samples.tolist()
    assert first.steps.tolist() == second.steps.tolist()


@EVERY
def test_one_learner_alone_is_served(scheme: Scheme) -> None:
    problem = heterogeneous(0, learners=1)
    assert scheme(problem).samples[0] <= 3000
    assert scheme(problem).steps[0] >= 1


@EVERY
def test_counts_are_whole_numbers(scheme: Scheme) -> None:
    allocation = scheme(twins())
    assert allocation.samples.dtype == allocation.steps.dtype == np.int64


@EVERY
def test_a_deadline_nobody_meets_is_infeasible(scheme: Scheme) -> None:
    problem = replace(twins(), fixed_s=np.full(2, 3.0))
    with pytest.raises(InfeasibleError, match=r"3"):
        scheme(problem)
