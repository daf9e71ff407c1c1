"""The league: jobs that run, times that are right, and tables that show them."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from papers.kit import NO_LIMIT, in_order
from papers.peers import PAPER
from papers.peers_entrants import ENTRANTS, Point, balanced_s
from papers.peers_options import PAIR, claims_of_options, table_of_options
from papers.peers_runs import (
    TUNING_FROM,
    Entry,
    Ran,
    _Clocks,
    _score,
    _tuned,
    _watched,
    raced,
    reached_s,
    run_league,
)
from papers.peers_schemes import bcrs, bcrs_twice
from papers.peers_settings import EMBEDDED, SETTINGS, LeagueStudy, Race
from papers.peers_views import (
    NOT_REACHED,
    best_of,
    claims_of_league,
    draw_league,
    names_in,
    summary,
    table_of_league,
    times_s,
)

from melisma.algorithms.allocating import allocate
from melisma.jobs import Job, LearnersTable
from melisma.jobs.families import family_of
from melisma.jobs.options import wire_of
from melisma.jobs.wire_table import WireTable
from melisma.launch import build
from melisma.learning.parameters import parameters_of, trained
from melisma.runs import records
from melisma.system import DelayLaw, Mode, Problem
from melisma.system.menu import Menu
from melisma.units import BytesPerSecond, SamplesPerSecond

STUDIES = {one.name: one for one in PAPER.exhibits}
PAIRS = STUDIES.pop("options").full.races  #: of two entrants alone
RACES = {name: one.full for name, one in STUDIES.items()} | {
    f"{race.setting}, options": race for race in PAIRS
}


def small(name: str, **changes: Any) -> LeagueStudy:
    study: LeagueStudy = STUDIES[name].quick
    return replace(study, **changes)


@pytest.mark.parametrize("name", RACES)
def test_every_entrant_has_a_job_that_is_accepted(name: str) -> None:
    full = RACES[name]
    study = replace(full, dataset=EMBEDDED, learners=min(full.learners, 100))
    race = SETTINGS[study.setting](study, 3)
    assert race.job.epochs_at_most == NO_LIMIT
    assert len(race.whole_s) == study.learners == len(race.job.learners)
    assert (race.whole_s > race.fixed_s).all()
    for entrant in study.entrants:
        for point in ENTRANTS[entrant].points(study):
            job = ENTRANTS[entrant].enter(race, study, point)
            assert job.training.rate == point.rate
            family_of(job).checked(job)


@pytest.mark.parametrize("name", STUDIES)
def test_ours_have_no_more_points_to_choose_from_than_theirs(name: str) -> None:
    study = STUDIES[name].full
    points = {n: len(set(ENTRANTS[n].points(study))) for n in study.entrants}
    theirs = [number for n, number in points.items() if not ENTRANTS[n].ours]
    assert max(points.values()) == max(theirs) == 12


@pytest.mark.parametrize("name", STUDIES)
def test_learners_take_as_long_as_a_setting_says(name: str) -> None:
    full = STUDIES[name].full
    study = replace(full, dataset=EMBEDDED, learners=min(full.learners, 100))
    race = SETTINGS[study.setting](study, 3)
    job = ENTRANTS["FedAvg"].enter(race, study, Point(0, 0, 0.05))
    built = build(job).built
    plan = asyncio.run(allocate(built.task, built.crew, 1))
    assert plan.predicted_s is not None
    taking_part = plan.allocation.samples > 0
    whole_s, fixed_s = race.whole_s[taking_part], race.fixed_s[taking_part]
    # Shards and batches are whole, and the testbed's model is left out: both matter
    # most where there is little data.
    apart = plan.predicted_s[taking_part] / whole_s - 1
    assert abs(np.median(apart)) < 0.3
    law = asyncio.run(built.crew.law()).only(taking_part)
    sent = plan.allocation.samples[taking_part] * job.shard
    wire_s = law.fixed_s + law.sample_s * sent
    np.testing.assert_allclose(wire_s, fixed_s, rtol=0.1, atol=0.2)


def test_the_balanced_time_is_when_all_work_is_done() -> None:
    rng = np.random.default_rng(0)
    for times in rng.uniform(0.1, 4.0, 50):
        fixed_s = rng.uniform(0.0, 3.0, 9)
        train_s = rng.lognormal(1.0, 1.0, 9)
        time_s = balanced_s(Race(Job(), fixed_s + train_s, fixed_s), times)
        done = sum(
            max(0.0, time_s - f) / t for f, t in zip(fixed_s, train_s, strict=True)
        )
        assert done == pytest.approx(9.0 * times)


def test_clocks_add_up_what_learners_do() -> None:
    clocks = _Clocks(200.0, sends_samples=True)

    def see(kind: type[records.LearnerEvent], at_s: float, **facts: Any) -> None:
        clocks.see(kind(task="t", cycle=1, time_s=at_s, learner="a", **facts))

    see(records.Allocated, 1.0, samples=7, steps=1, predicted_s=1.0)
    see(records.Downloaded, 2.0)
    see(records.Trained, 5.0, samples=7, batches=1, loss=0.1)
    see(records.Uploaded, 6.0)
    see(records.Dropped, 6.0, reason="too old")  # which it was busy for once
    see(records.Allocated, 8.0, samples=3, steps=1, predicted_s=1.0)
    see(records.Dropped, 10.0, reason="late")
    assert (clocks.device_s, clocks.busy_s) == (3.0, 7.0)
    assert (clocks.transfers, clocks.samples) == (2, 10)
    order = {"samples": 3, "steps": 1, "predicted_s": 1.0}
    see(records.Allocated, 11.0, **order, option="int8", saved_bytes=150)
    see(records.Downloaded, 12.0)
    assert clocks.transfers == 2.25  # 50 bytes of 200 go both ways


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"scheme": "async:fedbuff"}])
def test_bytes_are_those_that_codecs_send(changes: dict[str, Any]) -> None:
    group = LearnersTable(
        name="x", count=3, rate=SamplesPerSecond(1e4), bandwidth=BytesPerSecond(1e6)
    )
    study, wire = small("testbed"), WireTable(down="int8", up="top-k 1 %")
    job = Job(mode=Mode.FEDERATED, cycles=2, learners=(group,), wire=wire, **changes)
    model = build(job).built.task.model
    sizes = wire_of(job).size_bytes(parameters_of(model), trained(model))
    sent = _watched(job, study, to_target=False).sent_bytes
    assert sent == pytest.approx(6 * sum(sizes))  # of three learners, twice


def test_updates_of_bcrs_travel_as_long_as_the_slowest_made_small() -> None:
    # Seconds of three options: the slowest needs 8 at least, and others may take 8.
    laws = [
        DelayLaw(step_s=np.ones(3), sample_s=np.zeros(3), fixed_s=np.array(fixed_s))
        for fixed_s in ([8.0, 20.0, 40.0], [4.0, 10.0, 20.0], [1.6, 4.0, 8.0])
    ]
    problem = Problem.of(laws[0], samples=12, deadline_s=1e6, most=np.array([5, 4, 3]))
    offered = replace(problem, menu=Menu.of(laws, [1.0, 1.0, 1.0]))
    for steps, rule in ((1, bcrs), (2, bcrs_twice)):
        found = rule(offered)
        assert found.options is not None
        assert found.options.tolist() == [0, 2, 2]
        assert found.samples.tolist() == [5, 4, 3]
        assert found.steps.tolist() == [steps] * 3


@pytest.mark.parametrize(
    ("accuracy", "found"),
    [
        ([0.4, 0.6], 2.0),
        ([0.6, 0.4], 1.0),
        ([0.1, 0.2], math.inf),
        ([0.4, 0.41, 0.6], math.inf),  # after the horizon
    ],
)
def test_the_target_is_reached_between_two_evaluations(
    accuracy: list[float], found: float
) -> None:
    study = small("testbed", target=0.5, horizon_s=9.0)
    times = [1.0, 3.0, 20.0][: len(accuracy)]
    assert reached_s(Ran(times, accuracy, 0.0, 0.0, 0.0), study) == found


@pytest.mark.slow
def test_a_race_is_tuned_on_other_seeds_and_shown_soonest_first() -> None:
    study = small("testbed", rates=(0.01, 0.1), horizon_s=2.0, target=0.6, learners=6)
    data = run_league(study)
    assert names_in(data) == ["FedAvg", "FedBuff", "csa"]
    assert {float(data[f"{n}/tuned"][2]) for n in names_in(data)} <= {0.01, 0.1}
    rows = table_of_league(data)[1:]
    means = [times_s(data, row[0].strip("*")).mean() for row in rows]
    assert means == sorted(means)
    assert best_of(data, ours=True) == "csa"
    for name in names_in(data):
        assert 0 <= data[f"{name}/idle"].min() <= data[f"{name}/idle"].max() < 1
        assert (data[f"{name}/sent_bytes"] > 0).all()
        assert data[f"{name}/curve"].shape[0] == study.seeds


@pytest.mark.slow
def test_tuning_chooses_what_runs_to_the_end_would() -> None:
    study = small(
        "testbed",
        entrants=("FedAvg", "csa"),
        rates=(0.01, 0.2),
        horizon_s=1.0,
        target=0.5,
        learners=6,
    )

    def whole_s(name: str, point: Point) -> float:
        tries = [
            raced(Entry(study, name, point, TUNING_FROM + seed, to_target=False))
            for seed in range(study.tuning)
        ]
        return sum(reached_s(ran, study) for ran in tries)

    for name, chosen in _tuned(study, in_order).items():
        points = ENTRANTS[name].points(study)
        assert whole_s(name, chosen) == min(whole_s(name, point) for point in points)


def test_what_comes_after_the_horizon_is_no_better_than_what_comes_before() -> None:
    study = small("testbed", target=0.5, horizon_s=9.0)

    def score(times: list[float], accuracy: list[float]) -> float:
        return _score(Ran(times, accuracy, 0.0, 0.0, 0.0), study)

    before, after = score([8.0, 9.5], [0.4, 0.6]), score([8.9, 9.5], [0.4, 0.9])
    never, nothing = score([8.0], [0.4]), score([], [])
    assert before < 9.0 == after < never < nothing


def test_a_run_of_tuning_ends_at_the_target_and_one_that_counts_has_gradients() -> None:
    study = small("ringleader", learners=10, horizon_s=40.0, target=0.3)
    entry = Entry(study, "csa", Point(0, 0, 0.1), 0, to_target=True)
    short, whole = raced(entry), raced(replace(entry, to_target=False))
    assert reached_s(short, study) == reached_s(whole, study) < study.horizon_s
    assert len(short.accuracy) < len(whole.accuracy)
    assert short.accuracy == whole.accuracy[: len(short.accuracy)]
    assert short.accuracy[-1] >= study.target > max(short.accuracy[:-1], default=0.0)
    assert len(whole.gradient) == len(whole.accuracy)
    assert min(whole.gradient) > 0


@pytest.mark.slow
def test_a_race_by_gradients_shows_them_beside_accuracy() -> None:
    study = small("ringleader", learners=6, horizon_s=8.0, entrants=("FedAvg", "csa"))
    data = run_league(study)
    heading, *rows = table_of_league(data)
    assert heading[-1] == "‖∇f‖² at the end"
    ends = {row[0].strip("*"): row[-1].split()[0] for row in rows}
    for name in study.entrants:
        end = data[f"{name}/gradient"][:, -1]
        assert ends[name] == f"{end.mean():,.3f}"
    drawing = Figure()
    draw_league(drawing, data)
    assert [ax.get_yscale() for ax in drawing.axes] == ["linear", "log"]


def test_the_summary_has_who_is_first_in_bold() -> None:
    heading = ["algorithm", "tuned", "s to the target"]
    found = summary(
        {
            "A": [heading, ["**csa**", "", "1 ± 0"], ["FedAvg", "", "2 ± 0"]],
            "B": [heading, ["FedAvg", "", "3 ± 0"], ["**csa**", "", "4 ± 0"]],
            "C": [heading, ["**csa**", "", NOT_REACHED], ["FedAvg", "", NOT_REACHED]],
        }
    )
    assert found[1:] == [
        ["A", "**csa**", "1 ± 0", "FedAvg", "2 ± 0"],
        ["B", "csa", "4 ± 0", "**FedAvg**", "3 ± 0"],
        ["C", "csa", NOT_REACHED, "FedAvg", NOT_REACHED],
    ]


def test_where_nobody_comes_to_the_target_nothing_is_claimed() -> None:
    horizon = {"horizon_s": np.array([9.0])}
    never, once = np.array([np.inf, np.inf]), np.array([4.5, np.inf])
    reached = {"FedAvg/reached_s": never, "csa/reached_s": never}
    assert claims_of_league(horizon | reached) == []
    reached["csa/reached_s"] = once
    assert claims_of_league(horizon | reached)[0].ours.value == pytest.approx(0.75)


def test_who_diverges_has_failed_and_the_race_goes_on() -> None:
    study = small("testbed", learners=6, horizon_s=2.0)
    ran = raced(Entry(study, "FedAvg", Point(0, 0, 1e30), 0, to_target=True))
    assert "learning rate" in ran.failed
    assert reached_s(ran, study) == math.inf


@pytest.mark.slow
def test_where_models_take_no_time_options_change_nothing() -> None:
    study = small("fedcompass", seeds=1, horizon_s=8.0)
    rans = [
        raced(Entry(study, name, Point(0, 1, study.rates[0]), 0, to_target=False))
        for name in PAIR
    ]
    assert len(rans[0].accuracy) > 1
    assert rans[0] == rans[1]


def test_choosing_is_claimed_to_be_no_later_where_either_arrives() -> None:
    reached_s = {
        "fast/csa": [10.0, 20.0],
        "fast/csa-options": [9.0, 12.0],
        "never/csa": [math.inf, math.inf],
        "never/csa-options": [math.inf, math.inf],
    }
    data = {
        f"{name}/{what}": np.array(values)
        for name, times in reached_s.items()
        for what, values in {
            "reached_s": times,
            "tuned": [0, 1, 0.3],
            "sent_bytes": [1e6, 3e6],
        }.items()
    }
    data |= {f"{race}/horizon_s": np.array([50.0]) for race in ("fast", "never")}
    (claim,) = claims_of_options(data)
    assert claim.ours.value == pytest.approx((0.9 + 0.6) / 2)
    rows = table_of_options(data)
    assert [row[:2] for row in rows[1:]] == [
        [race, name] for race in ("fast", "never") for name in PAIR
    ]
    assert rows[2][-2:] == [rows[2][3], "2 ± 13"]
