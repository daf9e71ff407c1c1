from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from papers import tsdcfl_testbed
from papers.claims import Claim
from papers.kit import Data
from papers.tsdcfl import CIFAR_QUICK, MNIST_QUICK, PAPER, small_cnn
from papers.tsdcfl_fairness import (
    claims_of_fairness,
    claims_of_queues,
    claims_of_tradeoff,
    slopes,
    table_of_fairness,
    table_of_tradeoff,
)
from papers.tsdcfl_rounding import (
    claims_of_rounding,
    run_rounding,
    table_of_rounding,
)
from papers.tsdcfl_testbed import (
    ANEW,
    BED,
    PREDICTED,
    ROWS,
    Iterated,
    Predicted,
    Scheme,
    busy_s,
    planned,
    waited_for,
)
from papers.tsdcfl_times import (
    GROUPS,
    TimesStudy,
    claims_of_times,
    coded_part,
    less,
    run_times,
    table_of_times,
    times_of,
)
from papers.tsdcfl_tolerance import (
    ToleranceStudy,
    claims_of_tolerance,
    predicted_stages,
    run_tolerance,
    table_of_tolerance,
    tolerance_of,
)
from papers.tsdcfl_training import (
    SHOWN,
    claims_of_training,
    decoded,
    run_training,
    table_of_training,
    time_to_target,
)
from papers.tsdcfl_transmission import TransmissionStudy, run_transmission
from papers.tsdcfl_uploads import UploadsStudy, cycles_of

from melisma.coding import Helpers, Plan, TwoStage, choice, two_stage
from melisma.learning import data as datasets
from melisma.learning.data import Dataset
from melisma.learning.devices import placed
from melisma.learning.gradients import gradient_sum
from melisma.learning.losses import LOSSES, numbers
from melisma.learning.models import build, classes_of
from melisma.learning.parameters import Model
from melisma.learning.samples import Part
from melisma.learning.settings import Hardware, Training
from melisma.maths.arrays import Floats

STILL = replace(BED, jitter=0.0)
SHORT = replace(BED, planned=5)


#: Three workers, which are planned for in a fraction of a second.
SMALL = replace(BED, cores=(1, 2, 4), planned=5)


def made(bed: tsdcfl_testbed.Testbed, name: str, late: int) -> Scheme | Predicted:
    return planned((bed, name, late, ANEW))


def told(bed: tsdcfl_testbed.Testbed, name: str, late: int) -> Scheme:
    scheme = made(bed, name, late)
    assert isinstance(scheme, Scheme)
    return scheme


def verdicts(claims: list[Claim]) -> dict[str, str]:
    found = {claim.what: claim.verdict.value for claim in claims}
    assert len(found) == len(claims)  # no two rows say the same
    return found


# The testbed.


@pytest.mark.parametrize("late", [1, 2])
def test_so_many_straggle_in_each_iteration_slow_or_dead(late: int) -> None:
    slow, dead = (STILL.whole_s(late, 50, 0, dead) for dead in (False, True))
    fine = 28.0 / np.array(BED.cores)
    assert ((slow > 1.01 * fine).sum(axis=1) == late).all()
    assert np.allclose(
        slow[slow > 1.01 * fine], 8.0 * np.tile(fine, (50, 1))[slow > 1.01 * fine]
    )
    assert (np.isinf(dead) == (slow > 1.01 * fine)).all()


def test_a_cyclic_code_waits_for_five_of_six() -> None:
    # Each has a third of the data. Whoever straggles, a worker with 2 of 28 cores is
    # among the first five: 28 / 2 / 3.
    times = times_of((made(STILL, "CR", 1), STILL.whole_s(1, 30, 0, dead=False)))
    assert np.allclose(times[:, 0], 28.0 / 2.0 / 3.0)


def test_uncoded_training_waits_for_the_straggler() -> None:
    # Loads by speed: everybody takes 1, to the share of a partition, the straggler 8.
    scheme = made(STILL, "uncoded", 1)
    times, _, work, _ = times_of((scheme, STILL.whole_s(1, 30, 0, dead=False))).T
    assert np.allclose(times, 8.0, rtol=0.02)
    assert np.allclose(work, 1.0)


def test_coding_is_not_triggered_when_the_straggler_is_a_helper() -> None:
    every = STILL.whole_s(1, 600, 0, dead=False)
    scheme = waited_for(STILL, 1, first=4)
    coded = times_of((scheme, every))[:, 3]
    for number, whole_s in enumerate(every):
        stage = scheme.iteration(number, whole_s).code
        straggler = int(np.argmax(whole_s * BED.speeds))
        assert (coded[number] == 0) == (stage.loads[straggler] == 0)


def test_busy_time_and_work_of_two_stages() -> None:
    # Loads 2, 2, 4 of 8; the third is 4 times slower. At 1.2 the others, done since 1,
    # take two partitions each of the four that are left, until 2.2. So they compute
    # 2, and the third for 2.2 of its 8.
    stage = two_stage(workers=3, stragglers=1, speeds=[1, 1, 2], partitions=8)
    plan = Plan(scheme=stage, t_comp_s=1.2, expected_s=np.nan)
    done = Scheme([plan]).iteration(0, np.array([4.0, 4.0, 8.0]))
    assert done.outcome.duration_s == pytest.approx(2.2)
    assert np.allclose(busy_s(done), [2.0, 2.0, 2.2])
    assert coded_part(done) == 0.5
    _, share, work, _ = times_of((Scheme([plan]), np.array([[4.0, 4.0, 8.0]])))[0]
    assert share == pytest.approx(6.2 / 6.6)
    assert work == pytest.approx(2 / 4 + 2 / 4 + 2.2 / 8)


def test_the_dead_are_not_busy() -> None:
    done = told(STILL, "FR", 1).iteration(0, STILL.whole_s(1, 1, 0, dead=True)[0])
    assert (busy_s(done)[np.isinf(done.whole_s)] == 0).all()


def test_a_saving_is_that_of_total_times() -> None:
    ours = np.tile([1.0, 3.0], GROUPS)
    assert less(ours, np.tile([4.0, 4.0], GROUPS)).value == pytest.approx(50.0)


# What is predicted.


@pytest.fixture
def few_futures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "SCENARIOS", 4)


def plans(scheme: Predicted, times: Floats) -> list[tuple[list[int], Any, float]]:
    """Loads of stage one, speeds that it goes by and T_comp of each iteration."""
    found = []
    for done in scheme.course(times):
        assert isinstance(done.code, TwoStage)
        speeds = done.code.speeds.tolist()
        found.append((done.code.loads.tolist(), speeds, done.t_comp_s))
    return found


@pytest.mark.usefixtures("few_futures")
@pytest.mark.parametrize("helpers", ["ring", "finished"])
def test_who_straggles_later_does_not_change_what_is_planned_before(
    helpers: Helpers,
) -> None:
    scheme = Predicted(workers=3, helpers=helpers, anew=2)
    times = SMALL.whole_s(1, 8, 0, dead=False)
    others = times.copy()
    others[4:] = np.roll(others[4:], 1, axis=1)  # others are fast, others straggle
    ours, theirs = plans(scheme, times), plans(scheme, others)
    assert ours[3] != ours[4]  # a new plan, made before what it is for is seen
    assert ours[:6] == theirs[:6]
    assert ours[6:] != theirs[6:]


def test_what_is_predicted_is_told_neither_speeds_nor_stragglers() -> None:
    turned = replace(SMALL, cores=SMALL.cores[::-1], slower=3.0, jitter=0.2)
    for name, (_, helpers, s_told) in PREDICTED.items():
        scheme = made(SMALL, name, 1)
        assert (scheme == made(turned, name, 2)) is not s_told
        assert scheme == Predicted(
            workers=3, helpers=helpers, anew=ANEW, stragglers=1 if s_told else None
        )
        assert isinstance(scheme, Predicted)
        for bed in (SMALL, turned):  # who is slow is not known to begin with
            (first,) = scheme.course(bed.whole_s(1, 1, 0, dead=False))
            assert np.ptp(first.code.loads) <= 1


@pytest.mark.usefixtures("few_futures")
@pytest.mark.parametrize("cores", [(1, 2, 4), (4, 2, 1)])
def test_speeds_are_learned_from_answers(cores: tuple[int, ...]) -> None:
    bed = replace(SMALL, cores=cores)
    scheme = Predicted(workers=3, helpers="finished", anew=5)
    loads, *_ = plans(scheme, bed.whole_s(0, 12, 0, dead=False))[-1]
    assert np.allclose(np.array(loads) / sum(loads), bed.speeds, atol=0.05)


@pytest.mark.usefixtures("few_futures")
def test_who_straggled_all_along_is_given_little_to_start_with() -> None:
    times = SMALL.whole_s(0, 40, 0, dead=False)
    times[10:, 2] *= 8.0
    scheme = Predicted(workers=3, helpers="finished", anew=5)
    before, after = (plans(scheme, times)[n][0][2] for n in (9, -1))
    assert after < before / 3


@pytest.mark.usefixtures("few_futures")
def test_a_course_begins_with_an_empty_history() -> None:
    scheme = Predicted(workers=3, helpers="ring", anew=3)
    times = SMALL.whole_s(1, 8, 0, dead=False)
    assert plans(scheme, times) == plans(scheme, times)


@pytest.mark.usefixtures("few_futures")
def test_plans_are_made_seldom() -> None:
    scheme = Predicted(workers=3, helpers="finished", anew=8)
    course = scheme.course(SMALL.whole_s(1, 40, 0, dead=False))
    codes = [id(code) for code in [done.code for done in course]]
    began = [n for n in range(1, 40) if codes[n] != codes[n - 1]]
    gaps = np.diff(began).tolist()
    assert gaps == [min(number, 8) for number in began[:-1]]


@pytest.mark.usefixtures("few_futures")
def test_an_iteration_that_never_ends_is_given_up() -> None:
    times = SMALL.whole_s(0, 9, 0, dead=False)
    times[[0, 6]] = np.inf
    scheme = Predicted(workers=3, helpers="ring", anew=80)
    ended = [np.isfinite(done.outcome.duration_s) for done in scheme.course(times)]
    assert ended == [n not in (0, 6) for n in range(9)]


@pytest.mark.slow
@pytest.mark.usefixtures("few_futures")
def test_every_scheme_has_a_time_and_every_claim_a_number() -> None:
    data = run_times(TimesStudy(testbed=SHORT, iterations=GROUPS))
    found = verdicts(claims_of_times(data))
    ours = "Iteration time of ours, told, below heterogeneity-aware coding's"
    assert found[f"{ours}, one straggler"] == "holds"
    assert "Iteration time of TSDCFL, predicted, below CR's, two stragglers" in found
    rows = table_of_times(data)
    assert len(rows) == len(ROWS) + 2
    assert rows[2][:3] == ["uncoded, loads by speed", rows[2][1], "never"]


# Lemma 2.


@pytest.mark.slow
def test_stage_two_bears_two_stragglers_with_two_helpers_and_not_with_one() -> None:
    study = ToleranceStudy(partitions=14)
    decoded, worst, least, most, patterns = tolerance_of((study, 4, 2))
    # 15 sets start; 4, 6, 4, 1 subsets of 3, 2, 1, 0 finished leave 3, 4, 5, 6 rows.
    assert patterns == 15 * (4 * 3 + 6 * 6 + 4 * 10 + 1 * 15)
    assert decoded == 1.0
    assert worst < 1e-9
    assert least == most == 1.0
    assert tolerance_of((study, 5, 2))[0] < 1.0


@pytest.mark.usefixtures("few_futures")
def test_predicted_plans_are_tried_with_as_many_missing_as_straggle() -> None:
    study = ToleranceStudy(testbed=SMALL, late=(1, 2), partitions=7, iterations=12)
    stages = predicted_stages(study, 1)
    assert stages
    assert all(stage.helpers == "ring" and stage.workers == 3 for stage in stages)
    data = run_tolerance(study)
    # One who starts may be late: it and two helpers; or two may: both, or one of them.
    each = {1: 3, 2: 3 + 2 * 2}
    starting = [int((stage.loads > 0).sum()) for stage in stages]
    assert data["predicted/patterns"][0] == sum(each[first] for first in starting)
    assert data["predicted/decoded"][0] == 1.0
    assert [row[0] for row in table_of_tolerance(data)[-2:]] == ["predicted"] * 2
    found = verdicts(claims_of_tolerance(data))
    assert (
        "Patterns of as many missing as straggle, decoded by predicted plans" in found
    )


# Training.


def ready() -> tuple[Dataset, Model]:
    return placed(datasets.load("mnist-5k"), build("TwoNN", 0), numbers, Hardware())


@pytest.mark.parametrize("name", ["CR", "FR", "TSDCFL, told, M₁ = 4", "ours, told"])
def test_decoded_gradients_are_the_plain_ones(name: str) -> None:
    data, model = ready()
    scheme = told(SHORT, name, 2)
    rows = np.random.default_rng(0).permutation(4000)[:768]
    plain, _ = gradient_sum(model, Part(data.train, rows), LOSSES["cross-entropy"])
    for number, whole_s in enumerate(BED.whole_s(2, 6, 0, dead=True)):
        done = scheme.iteration(number, whole_s)
        ours = decoded(model, data, rows, done)
        assert np.linalg.norm(ours - plain) < 1e-4 * np.linalg.norm(plain)


@pytest.mark.usefixtures("few_futures")
def test_decoded_gradients_of_predicted_plans_are_the_plain_ones() -> None:
    data, model = ready()
    rows = np.random.default_rng(0).permutation(4000)[:768]
    plain, _ = gradient_sum(model, Part(data.train, rows), LOSSES["cross-entropy"])
    scheme = Predicted(workers=3, helpers="ring", anew=ANEW)
    *_, done = scheme.course(SMALL.whole_s(1, 6, 0, dead=False))
    assert isinstance(done.code, TwoStage)
    assert done.code.helpers == "ring"
    ours = decoded(model, data, rows, done)
    assert np.linalg.norm(ours - plain) < 1e-4 * np.linalg.norm(plain)


def test_a_gradient_that_lacks_an_answer_is_another() -> None:
    data, model = ready()
    done = told(SHORT, "FR", 1).iteration(0, BED.whole_s(1, 1, 0, dead=True)[0])
    weights = done.outcome.weights.copy()
    weights[np.flatnonzero(weights)[0]] = 0.0
    lacking = Iterated(done.code, replace(done.outcome, weights=weights), done.whole_s)
    rows = np.arange(768)
    whole = decoded(model, data, rows, done)
    assert np.linalg.norm(decoded(model, data, rows, lacking) - whole) > 0.01


def test_the_target_is_reached_between_two_evaluations() -> None:
    data: Data = {
        "target": np.array([0.5, 0.9, 0.2]),
        "accuracy": np.array([[0.4, 0.6], [0.4, 0.6], [0.4, 0.6]]),
        "1/CR/clock": np.array([[3.0, 10.0], [2.0, 4.0], [2.0, 4.0]]),
    }
    found = time_to_target(data, 1, "CR")
    # Half of the way from 0.4 at 3 to 0.6 at 10.
    np.testing.assert_allclose(found[:2], [6.5, np.nan])


@pytest.mark.slow
@pytest.mark.usefixtures("few_futures")
def test_all_schemes_learn_alike_and_the_told_is_faster_than_cyclic() -> None:
    study = replace(
        MNIST_QUICK,
        dataset="mnist-5k",
        testbed=SHORT,
        iterations=20,
        every=2,
        seeds=2,
        rate=0.05,
    )
    data = run_training(study)
    assert max(data[f"{late}/CR/apart"].max() for late in (1, 2)) > 0  # really decoded
    found = verdicts(claims_of_training(data))
    (same,) = [verdict for what, verdict in found.items() if what.startswith("Model")]
    assert same == "holds"
    for late in (1, 2):
        ours, theirs = (data[f"{late}/{name}/clock"] for name in ("TSDCFL, told", "CR"))
        assert (ours[:, -1] < theirs[:, -1]).all()
    assert data["loss"][:, -1].max() < data["loss"][:, 0].min()
    assert len(table_of_training(data)) == 1 + 2 * len(SHOWN)


def test_rounding_drives_models_apart_in_float32_and_not_in_float64() -> None:
    study = replace(CIFAR_QUICK, dataset="mnist-5k", model="FogMLP", seeds=2)
    data = run_rounding(replace(study, iterations=5))
    assert (data["float32"] > 1e-9).all()
    assert (data["float64"] < 1e-13).all()
    assert [claim.verdict.value for claim in claims_of_rounding(data)] == ["holds"] * 2
    assert len(table_of_rounding(data)) == 3


def test_the_small_network_tells_ten_classes_of_colour_images_apart() -> None:
    few = {"x": torch.zeros(2, 3, 32, 32)}
    assert classes_of(small_cnn(), few, Training()) == 10


# Transmission.


def test_every_claim_of_fair_transmission_has_a_number() -> None:
    study = TransmissionStudy(
        weights=(1.0, 20.0, 30.0, 200.0), slots=400, settled=200, drawn=100, seeds=2
    )
    data = run_transmission(study)
    found = verdicts(claims_of_queues(data) + claims_of_fairness(data))
    assert found["Throughput of P4 to P7 as printed, of greedy's"] == "does not hold"
    assert found["Least charge of any battery"] == "holds"
    assert len(claims_of_tradeoff(data)) == 7
    assert len(table_of_tradeoff(data)) == 1 + len(study.weights)
    assert table_of_fairness(data)[-1][1] == "0.00"


def test_the_slope_of_a_power_is_its_exponent() -> None:
    V = np.array([20.0, 100.0, 300.0])
    values = np.column_stack([3.0 / V, 5.0 * V**2])
    assert np.allclose(slopes(V, values), [-1.0, 2.0])


def test_with_a_channel_each_uploads_wait_for_nobody() -> None:
    study = UploadsStudy(cycles=20)
    rng, ends = np.random.default_rng(3), []
    for _ in range(study.cycles):
        rate = np.linspace(12e6, 2e6, 10) * rng.uniform(0.25, 1.0, 10)
        ends.append(np.sort(rng.uniform(0.0, 2.0, 10) + 8e6 / rate)[7])
    assert cycles_of((study, "a channel each", 3))[0] == pytest.approx(np.mean(ends))


def test_exhibits_that_share_a_run_share_a_study() -> None:
    shared = [one for one in PAPER.exhibits if one.run is run_transmission]
    assert len(shared) == 3
    assert len({(one.quick, one.full) for one in shared}) == 1


def test_the_testbed_is_the_papers() -> None:
    assert BED.cores == (2, 2, 4, 4, 8, 8)
    assert np.allclose(BED.speeds.sum(), 1.0)
