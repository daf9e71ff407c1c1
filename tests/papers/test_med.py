from dataclasses import replace

import numpy as np
import pytest
from papers import find
from papers.claims import Claim, Verdict
from papers.kit import Data, Exhibit
from papers.med import run, table
from papers.med_clusters import ESTIMATES, Cluster, Study, trial
from papers.med_held import ABOVE_ZERO, NAMES, Held, measured, percent_less
from papers.med_stored import LEARNERS, TASKS, Axis

from melisma.learning import Late
from melisma.maths.arrays import Floats
from melisma.views.tasks import Service

STUDY = Study(points=((10, 3),), longer_s=0.0, budget=300.0, trials=2)
#: Everybody is alike, whatever their owners do.
ALIKE = replace(
    STUDY,
    late=Late.HALT,
    idle_shards_per_s=(0.5,) * 4,
    bytes_per_s=(20e6,) * 3,
    compute_spread=0.0,
    network_spread=0.0,
    noise=0.0,
)
METRICS = ("learner_satisfaction", "task_satisfaction", "fulfilment", "occupancy")


def cluster(study: Study, learners: int, tasks: int, seed: int = 0) -> Cluster:
    return Cluster(study, learners, tasks, np.random.default_rng(seed))


def served(scheme: str, some: Cluster) -> Service:
    found = some.served(scheme)
    assert found is not None
    return found


@pytest.mark.parametrize("scheme", ESTIMATES)
def test_equal_learners_take_what_the_law_says(scheme: str) -> None:
    # The model of 2.296 MB twice, then 6 shards each of 1.568 MB, all at 20 MB/s, and
    # 2 passes at 0.5 shards/s.
    found = served(scheme, cluster(ALIKE, 10, 1))
    assert found.time_s == pytest.approx(0.2296 + 6 * (0.0784 + 4.0))
    assert (found.fulfilment, found.learner_satisfaction) == (1.0, 1.0)
    assert found.occupancy == pytest.approx(1.0)


def test_without_uncertainty_all_schemes_are_one() -> None:
    certain = replace(STUDY, heat=0.01, noise=0.0)
    times = [served(scheme, cluster(certain, 6, 3, seed=1)) for scheme in ESTIMATES]
    assert times[0] == times[1] == times[2]


def test_who_is_slower_than_it_was_benchmarked_halts() -> None:
    # Benchmarked idle, each of ten takes 6 shards, to be done in 2.8 s. At a tenth of a
    # shard/s two passes take 120 s: who trains (a third, by chance) halts at 55 s.
    slow = replace(ALIKE, idle_shards_per_s=(5.6,) * 4, training_shards_per_s=0.1)
    some = cluster(replace(slow, heat=100.0), 10, 1)
    some.benchmarked = np.zeros(10, dtype=np.int64)
    found = served("mmtt", some)
    assert found.time_s == pytest.approx(55.0)
    assert 0 < 1 - found.learner_satisfaction < 1
    # It has trained on (55 − 0.2296 − 6 · 0.0784) s · 0.1 shards/s of 12 shards.
    late = 1 - (55.0 - 0.2296 - 0.4704) * 0.1 / 12
    lost = (1 - found.learner_satisfaction) * late
    assert 1 - found.fulfilment == pytest.approx(lost, abs=0.01)


@pytest.mark.parametrize("seed", range(3))
def test_mmtt_ideal_drops_nothing_but_for_noise(seed: int) -> None:
    found, _ = trial((replace(STUDY, noise=0.0), 4, 3, seed))["mmtt-ideal"]
    assert found.drop == 0.0
    assert found.task_satisfaction == 1.0


def sums(metric: str, trials: int) -> tuple[float, float]:
    """Of MED and of MMTT-Uncertain, over the same clusters of ten learners."""
    some = [cluster(STUDY, 10, 3, seed) for seed in range(trials)]
    med, mmtt = (
        sum(getattr(served(scheme, one), metric) for one in some)
        for scheme in ("med", "mmtt")
    )
    return med, mmtt


@pytest.mark.slow
def test_med_drops_less_than_mmtt_uncertain() -> None:
    med, mmtt = sums("drop", 10)
    assert med < 0.8 * mmtt


@pytest.mark.slow
def test_med_takes_less_time_than_mmtt_uncertain() -> None:
    med, mmtt = sums("time_s", 40)
    assert med < 0.95 * mmtt


def test_a_run_has_every_trial_and_is_the_same_again() -> None:
    study = replace(STUDY, points=((4, 1), (5, 1)))
    first, second = run(study), run(study)
    assert first["learners"].tolist() == [4.0, 5.0]
    for scheme in NAMES:
        assert first[f"{scheme}/time"].shape == (2, 2)
        fulfilled, dropped = first[f"{scheme}/fulfilment"], first[f"{scheme}/drop"]
        np.testing.assert_allclose(fulfilled + dropped, 100.0)
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])


def stored(axis: Axis, trials: int = 5) -> Data:
    """What the author stored, as though it were ours."""
    rng = np.random.default_rng(0)
    data: Data = {
        "learners": np.array([4.0, 6.0, 8.0, 10.0]),
        "tasks": np.array([1.0, 2.0, 3.0, 4.0]),
    }
    for scheme in NAMES:
        data[f"{scheme}/in_vain"] = np.zeros((4, trials))
        for metric in ("time", "drop", *METRICS):
            noise = 1e-3 * rng.standard_normal((4, trials))
            noise -= noise.mean(axis=1, keepdims=True)
            data[f"{scheme}/{metric}"] = axis.stored(metric, scheme)[:, None] + noise
    return data


def axis_of(exhibit: Exhibit[Study]) -> Axis:
    return TASKS if exhibit.quick.longer_s else LEARNERS


@pytest.mark.parametrize(
    "exhibit",
    [one for one in find("med").exhibits if one.name[-1] in "0123456789"],
    ids=lambda one: one.name,
)
def test_the_stored_results_bear_out_what_was_stored(exhibit: Exhibit[Study]) -> None:
    claims = exhibit.claims(stored(axis_of(exhibit)))
    rows = [one for one in claims if "by the stored results" in one.what]
    assert rows
    assert {one.verdict for one in rows} == {Verdict.HOLDS}


def claim_of(name: str, start: str) -> Claim:
    (exhibit,) = find("med").named(name)
    claims = exhibit.claims(stored(axis_of(exhibit)))
    return next(one for one in claims if one.what.startswith(start))


@pytest.mark.parametrize(
    ("name", "start", "value"),
    [
        # 1 − 19.4/21.5, 1 − 13.2/19.4, 90.3 − 81.6, 1 − 0.78/2.33, 82.6 − 80.0,
        # 1 − 37.0/42.7, 94.4 − 92.1, 1 − 1.67/3.70.
        ("4.1", "MED's time below MMTT-Uncertain's, at best", 9.767),
        ("4.1", "MMTT-Ideal's time below MED's, at most", 31.959),
        ("4.2", "Learners in time: MED above MMTT-Uncertain, at best", 8.7),
        ("4.4", "MED's drop rate below MMTT-Uncertain's, at best", 66.524),
        ("4.5", "MED above MMTT-Uncertain, at best", 2.6),
        ("4.6", "MED's time below MMTT-Uncertain's, at best", 13.349),
        ("4.7", "Learners in time: MED above MMTT-Uncertain, at best", 2.3),
        ("4.9", "MED's drop rate below MMTT-Uncertain's, at best", 54.865),
        # 1 − 65.2/76.8: the printed 15 % are relative.
        ("4.10", "MED below MMTT-Ideal, at most", 15.104),
    ],
)
def test_a_claim_s_number_is_that_of_the_means(
    name: str, start: str, value: float
) -> None:
    assert claim_of(name, start).ours.value == pytest.approx(value, abs=2e-3)


@pytest.mark.parametrize(
    ("name", "start", "verdict"),
    [
        # By the author's own results: 9.8 % is nearly 11, 67 % more than 41, and 2.6
        # and 2.3 points less than 4.3 and 4; MED is below MMTT-Uncertain with 4 and 6
        # learners.
        ("4.1", "MED's time below MMTT-Uncertain's, at best", Verdict.HOLDS),
        ("4.1", "MMTT-Ideal's time below MED's, at most", Verdict.HOLDS),
        ("4.4", "MED's drop rate below MMTT-Uncertain's, at best", Verdict.WEAKER),
        ("4.5", "MED above MMTT-Uncertain, at best", Verdict.WEAKER),
        ("4.5", "MED above MMTT-Uncertain, at least", Verdict.FAILS),
        ("4.7", "Learners in time: MED above MMTT-Uncertain, at best", Verdict.WEAKER),
    ],
)
def test_claims_by_the_author_s_own_results(
    name: str, start: str, verdict: Verdict
) -> None:
    assert claim_of(name, start).verdict == verdict


def test_a_table_shows_ours_and_what_was_stored() -> None:
    rows = table(LEARNERS, ("time",), stored(LEARNERS))
    assert rows[0] == ["learners", "4", "6", "8", "10"]
    assert rows[2][:2] == ["MED, cycle (s)", "25.6 ± 0.0 (stored: 25.6)"]
    assert len(rows) == 1 + 3 + 3


def test_the_interval_of_a_ratio_covers_it() -> None:
    # Means 3 and 4, noise shared in part: 25 % less.
    rng = np.random.default_rng(0)

    def covered() -> bool:
        shared: Floats = rng.standard_normal(40)
        ours = 3.0 + shared + 0.5 * rng.standard_normal(40)
        theirs = 4.0 + shared + 0.5 * rng.standard_normal(40)
        found = percent_less(ours, theirs)
        return found.low <= 25.0 <= found.high

    # Of 1,000, 950 ± 7 (σ) are expected.
    assert 925 <= sum(covered() for _ in range(1000)) <= 975


def test_what_is_less_than_nothing_has_no_number() -> None:
    assert np.isnan(percent_less(np.zeros(3), np.zeros(3)).value)


def test_points_where_nothing_varies_are_not_picked() -> None:
    data = stored(TASKS)
    data["med/drop"][0] = 0.0  # 100 % less, whatever the chance
    held = Held(TASKS, "drop", data)
    claim = held.up_to("MED", 32.0, held.less("med", "mmtt"), "")
    assert claim.unit == "% at 2 tasks"


def test_no_change_is_no_rise() -> None:
    assert ABOVE_ZERO.verdict(measured(np.zeros(3))) == Verdict.FAILS


def test_benchmarks_leave_states_and_noise_as_they_were() -> None:
    told, measured_ = (
        cluster(replace(STUDY, benchmark_shards=shards), 10, 3) for shards in (0, 20)
    )
    assert (told.seed, told.benchmarked.tolist()) == (
        measured_.seed,
        measured_.benchmarked.tolist(),
    )
    for true, law in zip(measured_.laws, measured_.known, strict=True):
        off = law.step_s / true.step_s - 1
        # The mean of 20 shards, each 4 % off.
        assert 0 < np.abs(off).max() < 4 * 0.04 / np.sqrt(20)
    np.testing.assert_array_equal(told.laws[0].step_s, measured_.laws[0].step_s)


def test_who_looks_at_the_clock_every_ten_batches_is_done_after_the_deadline() -> None:
    # As above. A batch of 32 takes 0.64 s at 0.1 shards/s; 0.5852 s after the start,
    # the model and its data being there, training begins, and its 86th batch ends after
    # 55 s. The next look is after the 91st; then the model is sent in 0.1148 s.
    slow = replace(ALIKE, idle_shards_per_s=(5.6,) * 4, training_shards_per_s=0.1)
    some = cluster(replace(slow, heat=100.0, late=Late.OVERRUN), 10, 1)
    some.benchmarked = np.zeros(10, dtype=np.int64)
    assert served("mmtt", some).time_s == pytest.approx(0.5852 + 91 * 0.64 + 0.1148)


def test_an_overhead_is_planned_for_and_passes() -> None:
    found = served("med", cluster(replace(ALIKE, overhead_s=2.0), 10, 1))
    assert found.time_s == pytest.approx(2.0 + 0.2296 + 6 * (0.0784 + 4.0))
    assert found.fulfilment == 1.0
