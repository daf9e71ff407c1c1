"""Plans in which learners have options."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from tests.fleets.fleets import fleet_of, law, task_of

from melisma.algorithms.allocating import TOO_SLOW, allocate
from melisma.algorithms.averaging import share_out
from melisma.algorithms.task import Plan
from melisma.errors import InfeasibleError
from melisma.schemes import SCHEMES
from melisma.schemes.csa_options import csa_with_options
from melisma.system import Allocation, Problem
from melisma.system.options import Options
from melisma.system.promise import Promises

#: The third needs 1.2 s to exchange the model, of 1 s; by int8, a quarter of it.
LAW = law([0.004, 0.004, 0.004], [0.001] * 3, [0.05, 0.6, 1.2])
TWO = Options(
    names=("fp32", "int8"), size_bytes=np.array([4.0, 1.0]), value=np.array([1, 0.9])
)


def planned(scheme: str = "csa-options", **changes: object) -> Plan:
    promises = Promises(0.1) if changes.pop("careful", False) else None
    task = task_of(scheme, 1.0, options=TWO, **changes)
    return asyncio.run(allocate(task, fleet_of(LAW), only_able=True, promises=promises))


def test_who_is_too_slow_as_now_takes_part_by_another_option() -> None:
    plan = planned()
    assert plan.allocation.options is not None
    assert plan.allocation.options[2] == 1
    assert (plan.allocation.samples > 0).all()
    assert plan.predicted_s is not None
    assert plan.predicted_s.max() <= 1.0
    csa = asyncio.run(allocate(task_of("csa", 1.0), fleet_of(LAW), only_able=True))
    assert csa.why[2] == TOO_SLOW


def test_it_is_predicted_by_the_law_of_the_option_taken() -> None:
    plan = planned()
    d, tau, m = plan.allocation.samples, plan.allocation.steps, plan.allocation.options
    fixed_s = np.where(np.asarray(m) == 1, LAW.fixed_s / 4, LAW.fixed_s)
    assert plan.predicted_s == pytest.approx(0.004 * tau * d + 0.001 * d + fixed_s)


def test_margins_are_planned_with_for_every_option() -> None:
    plan = planned(careful=True)
    assert plan.planned_s is not None
    assert plan.planned_s.max() <= 1.0
    assert plan.predicted_s is not None
    assert (plan.predicted_s < plan.planned_s).all()
    assert plan.law is not None
    assert plan.law.fixed_s[2] == pytest.approx(0.3)


def test_orders_name_the_option() -> None:
    plan, task = planned(), task_of("csa-options", 1.0, options=TWO)
    orders = share_out(task, plan.allocation, 1)
    assert plan.allocation.options is not None
    assert [order.option for order in orders] == plan.allocation.options.tolist()


def test_a_run_goes_on_while_nobody_can_train_the_whole_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # An hour as now: a part, of everything but the second block, takes a second of it.
    far = law([0.004] * 3, [0.001] * 3, [3600.0] * 3)
    parts = replace(
        TWO,
        size_bytes=np.array([3600.0, 0.1]),
        blocks=np.array([[1.0, 1.0], [1.0, 0.0]]),
        least_coverage=0.1,
    )
    task = task_of("csa-options", 1.0, options=parts)
    plan = asyncio.run(allocate(task, fleet_of(far), 3, only_able=True))
    assert plan.allocation.options is not None
    assert (plan.allocation.options[plan.allocation.samples > 0] == 1).all()
    assert "cycle 3 is planned without coverage: block 1" in caplog.text
    with pytest.raises(InfeasibleError, match="least coverage"):
        asyncio.run(allocate(task, fleet_of(far)))


def test_where_no_option_fits_it_is_said() -> None:
    task = task_of("csa-options", 0.01, options=TWO)
    with pytest.raises(InfeasibleError):
        asyncio.run(allocate(task, fleet_of(LAW)))


def test_a_scheme_is_shown_what_learners_may_choose_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Problem] = []

    def spy(problem: Problem) -> Allocation:
        seen.append(problem)
        return csa_with_options(problem)

    monkeypatch.setitem(SCHEMES, "csa-options", spy)
    planned()
    (problem,) = seen
    assert problem.menu is not None
    each = [[0.05, 0.0125], [0.6, 0.15], [1.2, 0.3]]
    assert problem.menu.law.fixed_s == pytest.approx(np.array(each))
    assert problem.fixed_s.tolist() == [0.05, 0.6, 1.2]
