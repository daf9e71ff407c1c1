"""Who is left out of a cycle on purpose, and what is said of it."""

import asyncio

import numpy as np
import pytest
from tests.fleets.fleets import fleet_of, law, ran, task_of

from melisma.algorithms.allocating import (
    FEW,
    HINDRANCE,
    MANY,
    TOO_SLOW,
    allocate,
)
from melisma.algorithms.association import Association, Terms
from melisma.algorithms.task import Plan
from melisma.errors import ConfigError, InfeasibleError
from melisma.fleets.simulated import SimulatedLearners
from melisma.jobs.families import family_of
from melisma.jobs.schema import Job
from melisma.maths.arrays import Floats
from melisma.runs.records import Allocated
from melisma.schemes.multitask import solve
from melisma.system.law import Mode
from melisma.system.multitask import MultiTaskProblem, Solved
from melisma.system.promise import Promises
from melisma.views.ledger import learner_cycles

FOUR = law([0.01, 0.02, 0.03, 0.05], [0.002] * 4, [0.1] * 4)
#: The last needs 0.9 of a second to exchange the model, and 0.09 s for a sample.
HINDERED = law([0.001, 0.001, 0.09], [0.001] * 3, [0.0, 0.0, 0.9])


def planned(crew: SimulatedLearners, scheme: str = "csa", **changes: object) -> Plan:
    return asyncio.run(allocate(task_of(scheme, 1.0, **changes), crew))


def test_of_learners_that_bid_those_take_part_who_take_most() -> None:
    plan = planned(fleet_of(FOUR), "dab", learners_at_most=2, steps=1)
    assert (plan.allocation.samples > 0).tolist() == [True, True, False, False]


@pytest.mark.parametrize("scheme", ["coded", "fog"])
def test_other_families_refuse_to_choose(scheme: str) -> None:
    job = Job(
        scheme=scheme,
        learners_at_most=2,
        mode=Mode.FEDERATED if scheme == "fog" else Mode.PARALLEL,
    )
    with pytest.raises(ConfigError, match="learners_at_most"):
        family_of(job).checked(job)


@pytest.mark.parametrize("scheme", ["csa", "sync", "eta"])
def test_no_more_take_part_than_may(scheme: str) -> None:
    plan = planned(fleet_of(FOUR), scheme, learners_at_most=2)
    assert (plan.allocation.samples > 0).tolist() == [True, True, False, False]
    assert plan.allocation.samples.sum() == 40
    assert list(plan.why) == ["", "", MANY, MANY]


def test_who_would_hold_the_others_back_is_left_out() -> None:
    plan = planned(fleet_of(HINDERED))
    assert plan.allocation.samples[2] == 0
    assert plan.allocation.steps[:2].min() > 10
    assert list(plan.why) == ["", "", HINDRANCE]


def test_data_that_lies_on_a_learner_is_not_left_out_unasked() -> None:
    own = [np.arange(0, 15), np.arange(15, 30), np.arange(30, 40)]
    slow = law([0.001, 0.001, 0.005], [0.0] * 3, [0.0, 0.0, 0.9])
    crew = fleet_of(slow, own_rows=own)
    plan = planned(crew, federated=True)
    assert plan.allocation.samples.tolist() == [15, 15, 10]
    # Of all their data, or of as much as is asked for: never more than two.
    for samples in (None, 30):
        two = planned(crew, federated=True, learners_at_most=2, samples=samples)
        assert two.allocation.samples.tolist() == [15, 15, 0]
        assert list(two.why) == ["", "", MANY]


def test_samples_that_do_not_fit_into_so_few_are_an_error() -> None:
    with pytest.raises(InfeasibleError, match="do not fit into 1 of 4 learners"):
        planned(fleet_of(law([0.05] * 4, [0.0] * 4, [0.1] * 4)), learners_at_most=1)


def test_where_lateness_is_limited_so_few_get_what_fits() -> None:
    crew = fleet_of(law([0.05] * 4, [0.0] * 4, [0.1] * 4))
    task = task_of("csa", 1.0, learners_at_most=1)
    plan = asyncio.run(allocate(task, crew, promises=Promises(0.1)))
    assert (plan.allocation.samples > 0).sum() == 1
    assert 5 < plan.allocation.samples.sum() < 18


def test_as_printed_other_schemes_take_everybody() -> None:
    plan = planned(fleet_of(HINDERED), "sync")
    assert (plan.allocation.samples > 0).all()
    assert list(plan.why) == ["", "", ""]


def test_too_few_samples_for_all_are_no_error() -> None:
    plan = planned(fleet_of(FOUR), samples=10, least=4)
    assert sorted(plan.why) == ["", "", FEW, FEW]
    assert (plan.allocation.samples >= 4).sum() == 2
    assert plan.allocation.samples.sum() == 10


def test_who_cannot_is_told_apart_from_who_is_not_needed() -> None:
    crew = fleet_of(law([0.01, 0.02, 2.0], [0.002] * 3, [0.1] * 3))
    task = task_of("csa", 1.0, learners_at_most=1)
    plan = asyncio.run(allocate(task, crew, only_able=True))
    assert list(plan.why) == ["", MANY, TOO_SLOW]


def test_records_and_tables_say_why() -> None:
    task = task_of("csa", 1.0, learners_at_most=3)
    _, records = ran(task, fleet_of(FOUR))
    last = [r for r in records if isinstance(r, Allocated) and not r.samples]
    assert {(r.learner, r.why) for r in last} == {("learner-3", MANY)}
    outcomes = {row.outcome for row in learner_cycles(records)}
    assert outcomes == {"counted", f"sits out: {MANY}"}


def test_less_than_one_learner_is_refused() -> None:
    with pytest.raises(ConfigError, match="learners_at_most is 0"):
        Job(learners_at_most=0)


def test_who_is_too_dear_for_a_budget_is_left_out() -> None:
    """Two shards by the cheap one cost 2; one by each would cost 101."""
    terms = Terms(
        names=["t"],
        shards=np.array([2]),
        deadline_s=np.array([100.0]),
        budget=10.0,
    )

    def known() -> tuple[Floats, Floats]:
        return np.ones((1, 2)), np.zeros((1, 2))

    def solved(problem: MultiTaskProblem, *_: object) -> Solved:
        return solve(problem)

    association = Association(terms, np.array([1.0, 100.0]), known, solved)
    association.admit(0)
    assert association.members(0).tolist() == [0]
    dear = Association(terms, np.array([20.0, 100.0]), known, solved)
    with pytest.raises(InfeasibleError, match="budget"):
        dear.admit(0)
