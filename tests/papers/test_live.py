"""Races on a few devices: the jobs, and how they are counted."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from papers import csa_testbed, live, med_testbed, tsdcfl_live
from papers.claims import Verdict, at_most
from papers.kit import Data, in_order

from melisma.jobs import Known
from melisma.learning import Late

SCHEMES = ("csa", "eta")


def raced() -> Data:
    """Two trials: csa has the target after 2 s and 4 s, eta after 4 s and never."""
    rise = [[0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]]
    late = [[0.0, 0.0, 1.0, 1.0], [0.0, 0.1, 0.2, 0.3]]
    data: Data = {"target": np.array([1.0])}
    for scheme, accuracy in zip(SCHEMES, (rise, late), strict=True):
        data |= {
            f"{scheme}/accuracy": np.array(accuracy),
            f"{scheme}/time_s": np.tile([1.0, 2.0, 4.0, 8.0], (2, 1)),
            f"{scheme}/cycle_s": np.tile([1.0, 1.0, 2.0, 4.0], (2, 1)),
            f"{scheme}/predicted_s": np.array([[1.0, 1.1], [0.8, np.nan]]),
            f"{scheme}/measured_s": np.array([[1.0, 1.0], [1.0, np.nan]]),
        }
    return data


def test_who_never_has_the_target_counts_until_its_end() -> None:
    assert live.seconds_to_target(raced(), "csa").tolist() == [2.0, 4.0]
    assert live.seconds_to_target(raced(), "eta").tolist() == [4.0, 8.0]


def test_times_are_off_by_the_median_of_each_trial() -> None:
    assert live.off_percent(raced(), "csa") == pytest.approx([5.0, 20.0])


def test_what_is_saved_is_compared_trial_by_trial() -> None:
    ours, theirs = np.array([1.0, 3.0]), np.array([2.0, 4.0])
    claim = live.saved("", ours, theirs, at_most(40.0), "")
    assert claim.ours.value == pytest.approx((50 + 25) / 2)


def test_a_scheme_whose_times_are_not_predicted_has_no_row_of_them() -> None:
    data = raced()
    data["eta/predicted_s"] = np.zeros((2, 0))
    rows = live.foreseen({"csa": "HA", "eta": "HU"}, data)
    assert [row.what.split(":")[0] for row in rows] == ["HA"]
    table = live.table_of_race({"csa": "HA", "eta": "HU"}, data)
    assert [row[-1] for row in table[1:]] == ["12.5 ± 95.3", ""]


def test_the_picture_has_a_line_for_each_scheme() -> None:
    drawing = Figure()
    names = {name: csa_testbed.NAMES[name] for name in SCHEMES}
    live.draw_race(names, csa_testbed.LOOKS, drawing, raced())
    learned, _ = drawing.axes
    assert len(learned.lines) == 2 + 1  # and the target


def test_a_small_race_of_csa_has_all_its_numbers() -> None:
    study = replace(csa_testbed.QUICK, cycles=2, trials=2, schemes=("csa", "sync"))
    data = csa_testbed.run_csa_live(study, in_order)
    assert data["csa/accuracy"].shape == (2, 2)
    assert (live.off_percent(data, "sync") < 20.0).all()
    # The first cycle begins at 0.
    assert data["csa/time_s"][:, 0] == pytest.approx(data["csa/cycle_s"][:, 0])


def test_jobs_are_what_their_pages_say() -> None:
    csa = csa_testbed.job_of(csa_testbed.FULL, "csa", 0)
    assert csa.late == Late.WAIT
    med = med_testbed.job_of(med_testbed.FULL, "med", 0)
    assert (med.benchmark.known, med.late) == (Known.MEASURED, Late.OVERRUN)
    assert len(med.tasks) == 3
    paper = tsdcfl_live.job_of(tsdcfl_live.FULL, "TSDCFL", 0)
    assert (paper.code, paper.helpers, paper.stragglers) == ("two-stage", "ring", None)
    assert paper.straggling.number == 1


@pytest.mark.slow
def test_codes_learn_the_same_in_unlike_times() -> None:
    study = replace(tsdcfl_live.QUICK, trials=3, cycles=12)
    rows = tsdcfl_live.claims_of_codes_live(tsdcfl_live.run_codes_live(study))
    alike = rows[-1]
    assert alike.what.startswith("Accuracy")
    assert alike.verdict == Verdict.HOLDS
