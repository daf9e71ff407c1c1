"""Jobs limit local epochs: what learners then do, and what the run says of it."""

import asyncio
import logging
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from tests.fleets.fleets import fleet_of, law, ran, task_of

import melisma as mel
from melisma.algorithms.allocating import allocate
from melisma.algorithms.averaging import told_if_idle
from melisma.algorithms.task import Plan
from melisma.comparison.trials import simulated
from melisma.fleets.simulated import SimulatedLearners
from melisma.jobs.building import task_of as task_of_job
from melisma.jobs.schema import Job
from melisma.schemes import SCHEMES, chooses_steps
from melisma.system.problem import STEPS_LIMIT
from melisma.units import Deadline

#: 1 and 2 ms for a sample, 0.2 s for the model: forty samples once take 0.03 s.
TWO = law([0.001, 0.002], [0.0, 0.0], [0.2, 0.2])


def planned(crew: SimulatedLearners, scheme: str = "csa", **changes: object) -> Plan:
    return asyncio.run(allocate(task_of(scheme, 10.0, **changes), crew))


def test_a_job_stops_learners_at_a_hundred_unless_it_says_otherwise() -> None:
    assert task_of_job(Job()).steps_at_most == 100
    assert task_of_job(Job(epochs_at_most=7)).steps_at_most == 7


def test_what_is_given_its_epochs_has_no_limit() -> None:
    given = {name for name in SCHEMES if not chooses_steps(name)}
    assert given == {"dab", "dab-adaptive", "energy-least", "energy-most"}
    assert not any(chooses_steps(name) for name in ("fedavg", "async:fedbuff", "coded"))
    assert chooses_steps("my_schemes:fastest")
    assert task_of_job(Job(scheme="dab", steps=300)).steps_at_most == STEPS_LIMIT


@pytest.mark.parametrize("scheme", ["csa", "sync", "eta", "csa-sai", "csa-options"])
def test_learners_stop_there_and_all_samples_are_trained_on(scheme: str) -> None:
    plan = planned(fleet_of(TWO), scheme, steps_at_most=50)
    assert plan.allocation.steps.tolist() == [50, 50]
    assert plan.allocation.samples.sum() == 40


def test_the_time_that_is_left_over_is_known() -> None:
    # 27 and 13 samples: 50·27 ms + 0.2 s = 1.55 s, and 50·13·2 ms + 0.2 s = 1.5 s.
    plan = planned(fleet_of(TWO), steps_at_most=50)
    assert plan.allocation.samples.tolist() == [27, 13]
    assert plan.spare_s == pytest.approx(10 - 1.55)
    assert planned(fleet_of(TWO)).spare_s == 0.0


def test_a_run_says_once_what_to_do_about_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "melisma.orchestrator"):
        ran(replace(task_of("csa", 10.0, cycles=3), steps_at_most=50), fleet_of(TWO))
    (said,) = [r.getMessage() for r in caplog.records if "epochs" in r.getMessage()]
    assert "50 epochs that a learner may do (epochs_at_most) are done 1.55 s" in said
    assert "8.45 s shorter: give more samples, a shorter deadline" in said


def test_a_comparison_does_not_say_it_for_each_of_its_trials(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = Job(samples=45, deadline=Deadline(15.0), cycles=1, epochs_at_most=5)
    with caplog.at_level(logging.WARNING, "melisma.orchestrator"):
        assert simulated(job, lambda: None).failed == ""
    assert "epochs_at_most" not in caplog.text


def test_a_short_wait_is_not_worth_a_word() -> None:
    task = replace(task_of("csa", 1.6), steps_at_most=50)
    plan = asyncio.run(allocate(task, fleet_of(TWO)))
    assert plan.spare_s == pytest.approx(0.05)
    assert told_if_idle(task, plan) == ""


def test_of_those_who_do_all_they_may_those_with_most_data_take_part() -> None:
    # All can do their own data 2 times; without a limit the first would do it most.
    own = [np.arange(0, 5), np.arange(5, 15), np.arange(15, 40)]
    crew = fleet_of(law([0.001] * 3, [0.0] * 3, [0.2] * 3), own_rows=own)
    free = planned(crew, federated=True, learners_at_most=1)
    limited = planned(crew, federated=True, learners_at_most=1, steps_at_most=2)
    assert free.allocation.samples.tolist() == [5, 0, 0]
    assert limited.allocation.samples.tolist() == [0, 0, 25]


def test_few_samples_and_a_long_deadline_end_early() -> None:
    job = Job(samples=45, deadline=Deadline(15.0), cycles=2, epochs_at_most=20)
    run = mel.simulate(job, runs=None)
    assert run.history.time_s[-1] < 1.0  # of 30 s
    assert msgspec.structs.replace(job, epochs_at_most=21) != job
