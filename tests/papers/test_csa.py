"""CSA's claims: what the paper prints of Fig. 2, and how Fig. 3 is counted."""

import asyncio

import numpy as np
import pytest
from matplotlib.figure import Figure
from papers import csa
from papers.claims import Verdict
from papers.kit import Data

from melisma.algorithms.allocating import allocate
from melisma.launch.simulate import build
from melisma.schemes import SCHEMES
from melisma.system import cell


@pytest.fixture(scope="module")
def staleness() -> Data:
    return csa.run_staleness(csa.StalenessStudy())


@pytest.mark.paper
@pytest.mark.parametrize(
    ("what", "verdict", "ours"),
    [
        ("HA's largest staleness, K = 20, T = 7.5 s", "holds", 1.0),
        ("HA's mean staleness, K = 20, T = 7.5 s", "holds", 96 / 190),
        ("HU's largest staleness, K = 20, T = 7.5 s", "holds", 4.0),
        # 10 fast and 10 slow learners 4 steps apart: 100 of 190 pairs.
        ("HU's mean staleness, K = 20, T = 7.5 s", "does not hold", 400 / 190),
        ("HA's largest staleness, K = 18, T = 7.5 s", "holds", 0.0),
        ("HA's largest staleness, K = 14, T = 15 s", "does not hold", 1.0),
        # The relaxed program lets learners idle, and has no staleness nearly anywhere.
        ("HA-NUM's largest staleness, K = 14, T = 15 s", "holds", 0.0),
        ("Largest staleness of HA-SAI against that of HA-NUM", "does not hold", 1.0),
    ],
)
def test_what_is_printed_of_staleness(
    staleness: Data, what: str, verdict: str, ours: float
) -> None:
    claims = {claim.what: claim for claim in csa.claims_of_staleness(staleness)}
    assert claims[what].verdict == Verdict(verdict)
    assert claims[what].ours.value == pytest.approx(ours)


def test_who_cannot_be_allocated_is_not_a_number(staleness: Data) -> None:
    # At 7.5 s five or six learners cannot all do a step, which suggest-and-improve
    # asks for.
    assert np.isnan(staleness["csa-sai/7.5/max"]).tolist() == [True] * 2 + [False] * 14


def test_the_job_of_figure_3_is_the_cell_of_figure_2() -> None:
    study = csa.LearningStudy(dataset="mnist-5k", samples=4_000)
    law = asyncio.run(build(csa.job_of(study, 15, "csa", 0.1, 32, 0)).built.crew.law())
    expected = cell(15, 15.0)
    np.testing.assert_allclose(law.step_s, expected.step_s)
    np.testing.assert_allclose(law.sample_s, expected.sample_s)
    np.testing.assert_allclose(law.fixed_s, expected.fixed_s)


@pytest.mark.parametrize("scheme", csa.SCHEMES_SHOWN)
def test_a_sample_that_stands_for_fifteen_leaves_the_steps_alike(scheme: str) -> None:
    study = csa.LearningStudy(dataset="mnist-5k", samples=4_000, stands_for=15)
    simulation = build(csa.job_of(study, 20, scheme, 0.1, 32, 0))
    plan = asyncio.run(allocate(simulation.built.task, simulation.built.crew))
    full = SCHEMES[scheme](cell(20, 15.0)).steps
    # Fewer samples are a coarser measure: a learner may be a step off.
    assert abs(plan.allocation.steps - full).max() <= 1
    assert plan.allocation.steps.sum() == pytest.approx(full.sum(), rel=0.02)


def test_updates_are_counted_from_one_and_one_beyond_the_last() -> None:
    accuracy = np.array([[0.96, 0.9, 0.99], [0.1, 0.95, 0.2], [0.1, 0.2, 0.3]])
    assert csa.updates(accuracy, 0.95).tolist() == [1.0, 2.0, 4.0]
    # Half of the way from the first to the second.
    assert csa.updates(accuracy[1:2], 0.525).tolist() == pytest.approx([1.5])


def test_what_csa_can_gain_on_sync_is_what_its_reason_says() -> None:
    steps, epochs = [], []
    for K in (10, 15, 20):
        problem = cell(K, 15.0)
        ours, theirs = SCHEMES["csa"](problem), SCHEMES["sync"](problem)
        steps.append(ours.steps.sum() / theirs.steps.sum() - 1)
        work = [float(a.steps @ a.samples) for a in (ours, theirs)]
        epochs.append(work[0] / work[1] - 1)
    told = "{:.0%}, {:.0%} and {:.0%}".format(*steps).replace("%", "")
    assert f"does {told} % more steps than sync" in csa.GAINED
    told = "{:.1f}, {:.1f} and {:.1f} %".format(*(100 * one for one in epochs))
    assert f"{told} more epochs of a sample" in csa.GAINED


def learned(better: float) -> Data:
    """Three seeds in which csa is ahead of the others by some cycles' worth."""
    cycles = np.arange(12)
    rng = np.random.default_rng(0)
    data: Data = {
        "learners": np.array([10.0, 15.0, 20.0]),
        "settings": np.array([[0.1, 32.0]]),
        "targets": np.array([0.95, 0.97]),
    }
    for scheme in csa.SCHEMES_SHOWN:
        ahead = better if scheme == "csa" else 0.0
        curve = 1 - 0.2 * np.exp(-(cycles + ahead) / 4)
        for K in (10, 15, 20):
            noise = 0.001 * rng.standard_normal((1, 3, 12))
            data[f"{scheme}/{K}"] = curve + noise
    return data


@pytest.mark.parametrize(
    ("better", "verdict"), [(4.0, "holds"), (-1.0, "does not hold")]
)
def test_a_gain_is_judged_by_what_was_learned(better: float, verdict: str) -> None:
    claims = {c.what: c for c in csa.claims_of_learning(learned(better))}
    gain = claims["K = 10: updates that csa saves on sync to 95 %"]
    assert gain.verdict == Verdict(verdict)


def test_the_table_has_a_row_for_each_setting_and_number_of_learners() -> None:
    table = csa.table_of_learning(learned(2.0))
    assert len(table) == 1 + 3 + 3
    assert {len(row) for row in table} == {8}
    # Printed are 4 and 8 updates to 95 % with 10 learners, and none of equal shares.
    assert table[1] == ["printed", "10", "4", "8", "", "", "", ""]


def test_the_figure_of_learning_has_a_panel_for_each_number_of_learners() -> None:
    drawing = Figure()
    csa.draw_learning(drawing, learned(2.0))
    assert [ax.get_title(loc="left") or ax.get_title() for ax in drawing.axes] == [
        "K = 10",
        "K = 15",
        "K = 20",
    ]
    crosses = [line for line in drawing.axes[1].lines if line.get_marker() == "X"]
    places = [np.ravel([x.get_xdata(), x.get_ydata()]).tolist() for x in crosses]
    assert sorted(map(tuple, places)) == [
        (3.0, 0.95),
        (4.0, 0.95),
        (4.0, 0.95),
        (8.0, 0.97),
        (10.0, 0.97),
        (10.0, 0.97),
    ]
