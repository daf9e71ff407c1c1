"""The fog paper: what runs are counted for, and claims that take seconds."""

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from papers import fog_tables, store
from papers.claims import Verdict
from papers.fog import PAPER
from papers.fog_figures import claims_of_media
from papers.fog_lemma import (
    Descending,
    LemmaStudy,
    LemmaTrial,
    claims_of_lemma,
    run_lemma,
)
from papers.fog_losses import WatchedDevices, local_losses
from papers.fog_runs import (
    Case,
    FogStudy,
    MediaStudy,
    Medium,
    SizesStudy,
    Trial,
    by_error,
    gather,
    job_of,
    medium_costs,
    outcome,
    outcome_with_losses,
    run_media,
    run_sizes,
    run_with,
    since_aggregation,
    told,
)
from papers.kit import Exhibit, Variant, in_order
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from melisma.algorithms.fog import Environment
from melisma.fog import Links, Movement, alone, cost, move
from melisma.fog.profiles import WIFI
from melisma.fog.topologies import full
from melisma.launch.simulate import build
from melisma.learning.samples import Part
from melisma.runs.records import Evaluated, Moved, Record

SMALL = FogStudy(dataset="mnist-5k", slots=20, windows=2, passes=3, seeds=2)


def problem_of(study: FogStudy, seed: int = 0) -> Movement:
    built = build(job_of(study, "B", seed)).built
    law = asyncio.run(built.crew.law())
    environment: Environment = built.algorithm.settings.environment
    return environment(built.crew.learners, built.crew.own_samples, law)


def moved(device: str, slot: int, collected: int, **fields: Any) -> Moved:
    nothing: dict[str, Any] = {"trained": 0, "arrived": 0, "discarded": 0, "sent": {}}
    costs = {"process_cost": 0.0, "transfer_cost": 0.0, "error_cost": 0.0}
    return Moved(
        cycle=slot,
        time_s=float(slot),
        task="fog",
        learner=device,
        slot=slot,
        collected=collected,
        **{**nothing, **costs, **fields},
    )


def test_costs_are_counted_by_the_sample_collected() -> None:
    # Slot 1: a sends 4 of its 6 to b and trains on 2; b collects 4 and discards them.
    # Slot 2: b trains on what came. Slot 3: a discards all 10.
    problem = Movement(
        data=np.array([[6.0, 4.0], [0.0, 0.0], [10.0, 0.0]]),
        process_cost=np.array(1.0),
        links=Links.always(2, 3, [0], [1]),
        link_cost=np.full(3, 0.5),
        discard_cost=np.array(0.3),
    )
    records: list[Record] = [
        moved("a", 1, 6, sent={"b": 4}, trained=2, process_cost=2.0, transfer_cost=2.0),
        moved("b", 1, 4, discarded=4, error_cost=1.2),
        moved("a", 2, 0),
        moved("b", 2, 0, arrived=4, trained=4, process_cost=4.0),
        moved("a", 3, 10, discarded=10, error_cost=3.0),
        Evaluated(cycle=2, time_s=2.0, task="fog", metrics={"accuracy": 0.5}, loss=1.0),
    ]
    found = told(records, problem)
    assert found["process"] == pytest.approx(6.0 / 20)
    assert found["transfer"] == pytest.approx(2.0 / 20)
    assert found["discard"] == pytest.approx((1.2 + 10 * 0.3) / 20)
    assert found["unit"] == pytest.approx((6.0 + 2.0 + 4.2) / 20)
    assert found["sent"] == pytest.approx(4 / 20)
    assert found["discarded"] == pytest.approx(14 / 20)
    assert found["sent_by_slot"].tolist() == [0.4, 0.0, 0.0]
    assert found["accuracy"] == 0.5


def test_each_device_is_judged_by_its_own_model_on_its_own_data() -> None:
    study = replace(SMALL, slots=10, windows=1, passes=1)  # one cycle
    simulation = build(job_of(study, "B", 0))
    crew, task = WatchedDevices(simulation.built.crew), simulation.built.task
    model = copy.deepcopy(task.model)  # as all devices are given it
    found = run_with(crew, simulation, study)
    parts = [
        Part(task.taken.train, crew.own_rows[name][: int(samples)])
        for name, samples in zip(crew.learners, found["own"], strict=True)
    ]
    # By torch's own mean over all samples of a device at once.
    losses = [
        float(
            cross_entropy(functional_call(model, dict(w), part[:]["x"]), part[:]["y"])
        )
        for w, part in zip(crew.models[0], parts, strict=True)
    ]
    np.testing.assert_allclose(
        local_losses(crew.models, task, parts), [losses], rtol=1e-5
    )
    trained = [
        not torch.equal(w[name], value)
        for w in crew.models[0]
        for name, value in list(model.state_dict().items())[:1]
    ]
    assert 0 < sum(trained) < study.devices  # in B few train
    # Watching changes nothing.
    plain = outcome(Trial(Case(study, "B"), 0))
    assert all((plain[name] == found[name]).all() for name in plain)


def test_losses_are_of_each_cycle_and_device() -> None:
    found = outcome_with_losses(Trial(Case(replace(SMALL, passes=1), "A"), 0))
    assert found["loss"].shape == (2, SMALL.devices)
    assert (found["loss"][1] < found["loss"][0]).all()


def test_in_a_everything_is_processed_where_it_is_collected() -> None:
    problem = problem_of(SMALL)
    paid = cost(problem, alone(problem)).total / problem.data.sum()
    found = outcome(Trial(Case(SMALL, "A"), 0))
    assert found["unit"] == found["process"] == pytest.approx(paid)
    assert found["discarded"] == found["sent"] == 0.0


def test_in_b_nothing_is_cheaper() -> None:
    problem = problem_of(SMALL)
    best = move(problem).costs.total / problem.data.sum()
    # Whole samples take each source's cheapest way as well: there are no capacities.
    assert outcome(Trial(Case(SMALL, "B"), 0))["unit"] == pytest.approx(best, rel=1e-5)


def test_a_run_in_which_all_is_discarded_in_the_end_is_counted_to_its_end() -> None:
    # The cheapest device costs c, and f/√t falls below it after slot 5 of 20.
    c = problem_of(SMALL).process_cost.min()
    study = replace(SMALL, discard=float(c) * np.sqrt(5.5))
    problem = problem_of(study)
    found = outcome(Trial(Case(study, "B"), 0))
    best = move(problem).costs.total / problem.data.sum()
    assert found["unit"] == pytest.approx(best, rel=1e-5)
    assert found["discarded"] >= problem.data[5:].sum() / problem.data.sum()


def test_f_begins_anew_after_each_aggregation() -> None:
    problem = since_aggregation(problem_of(SMALL), replace(SMALL, period=2))
    np.testing.assert_allclose(problem.discard_cost[:4, 0], [2, 2**0.5, 2, 2**0.5])


@pytest.mark.paper
def test_printed_transfers_are_dearer_than_any_link() -> None:
    # 620 of 1153 / 0.26 = 4,435 samples are 0.14 each, with c_ij ~ U(0, 1/10).
    for setting in "BCD":
        costs, samples = fog_tables.printed_costs(setting)
        assert costs[1] > 0.1
        assert 4_300 < samples < 4_500


@pytest.mark.slow
@pytest.mark.paper
def test_b_costs_less_than_a_and_is_more_accurate_by_its_steps() -> None:
    study = replace(SMALL, slots=30, windows=3, passes=1)
    ten = replace(study, passes=10)
    cases = {name: (Case(study, name), 2) for name in "AB"}
    data = gather({**cases, "ten": (Case(ten, "A"), 2)}, in_order)
    assert (data["B/unit"] < 0.6 * data["A/unit"]).all()
    assert data["B/accuracy"].mean() > data["A/accuracy"].mean() + 0.05
    assert data["ten/accuracy"].mean() > data["B/accuracy"].mean()


def test_media_cost_what_each_sample_costs_on_its_cheapest_way() -> None:
    # Theorem 3: the least of c_i(t), c_ij(t) + c_j(t + 1) and f.
    study, n, T = MediaStudy(slots=4), 5, 4
    rng = np.random.default_rng(7)
    c = WIFI.process_cost(n, T, rng)
    links = full(n, T)
    data = np.round(rng.uniform(0.0, study.most, (T, n)))
    fares = WIFI.link_cost(links, rng)
    least = np.minimum(c, study.discard)
    for t, i, j, fare in zip(
        links.slot, links.source, links.target, fares, strict=True
    ):
        least[t, i] = min(least[t, i], fare + c[min(t + 1, T - 1), j])
    found = medium_costs(Medium(study, "WiFi", "full", n, 7))
    assert sum(found) == pytest.approx((data * least).sum() / data.sum(), rel=1e-5)


@pytest.mark.paper
def test_transfers_dominate_on_wifi_and_processing_on_lte() -> None:
    data = run_media(MediaStudy(slots=20, beside=5, seeds=4))
    largest = [claim for claim in claims_of_media(data) if "largest" in claim.what]
    assert len(largest) == 6
    assert {claim.verdict for claim in largest} == {Verdict.HOLDS}


def made_up(trial: Any, todo: Sequence[Any]) -> list[Any]:
    """Some result for everything there is to do."""
    rng = np.random.default_rng(0)

    def one(thing: Any) -> Any:
        if isinstance(thing, LemmaTrial):
            shape = len(thing.study.passes), len(thing.study.sizes)
            return rng.random(shape), rng.random(shape)
        if not isinstance(thing, Trial):
            return tuple(rng.random(3)) if isinstance(thing, Medium) else rng.random()
        study = thing.case.study
        names = ("process", "transfer", "discard", "unit", "sent", "discarded")
        return {
            **{name: rng.random(()) for name in (*names, "accuracy", "collected")},
            "sent_by_slot": rng.random(study.slots),
            "own": rng.random(study.devices),
            "loss": rng.random((study.slots // study.period, study.devices)),
        }

    return [one(thing) for thing in todo]


#: Those are run for real in test_fog_live.
RUN_THERE = {"theorems", "networks", "testbed"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "exhibit",
    [exhibit for exhibit in PAPER.exhibits if exhibit.name not in RUN_THERE],
    ids=lambda exhibit: exhibit.label,
)
def test_every_study_has_all_its_claims(exhibit: Exhibit[Any]) -> None:
    for variant in Variant:
        for study in exhibit.studies(variant):
            data = exhibit.run(study, made_up)
            claims = exhibit.claims(data)
            assert claims
            assert all(claim.why != "unexplained" for claim in claims)
            if exhibit.draw:
                exhibit.draw(Figure(), data)
            if exhibit.table:
                assert len({len(row) for row in exhibit.table(data)}) == 1


def test_figures_run_by_either_error() -> None:
    linear, convex = by_error(SizesStudy(convex=7.0)).values()
    assert (linear.gamma, convex.gamma) == (0.0, 7.0)
    assert replace(convex, gamma=0.0) == linear
    assert "gamma" not in store.fields(linear)  # runs that were made keep their mark
    assert store.mark(run_sizes, linear) != store.mark(run_sizes, convex)
    assert problem_of(replace(SMALL, gamma=10.0)).gamma.min() == 10.0


def test_a_convex_error_is_paid_for() -> None:
    case = Case(replace(SMALL, passes=1), "A")
    convex = Case(replace(SMALL, passes=1, gamma=10.0), "A")
    one, two = (float(outcome(Trial(c, 0))["discard"]) for c in (case, convex))
    assert one == 0.0 < two


LEMMA = LemmaStudy(sizes=(1, 10, 100), passes=(0, 1), draws=4, seeds=3, steps=2)


@pytest.mark.slow
def test_gradients_of_few_samples_err_with_the_root_of_their_number() -> None:
    data = run_lemma(LEMMA)
    power = claims_of_lemma(data)[0]
    assert power.ours.value == pytest.approx(-0.5, abs=0.1)
    # A γ that grows with G is found out.
    wrong = claims_of_lemma(data | {"delta": data["delta"] * np.sqrt(data["sizes"])})
    assert wrong[0].verdict == Verdict.FAILS
    # So do losses after steps of so many samples; training makes gradients unlike.
    few, more, many = data["apart"].mean(axis=0).T
    assert (few > more).all()
    assert (more > many).all()
    untrained, trained = data["delta"].mean(axis=0)
    assert (trained > 1.2 * untrained).all()


def test_the_gradient_of_most_samples_is_nearly_the_true_one() -> None:
    study = replace(LEMMA, sizes=(2000,), passes=(0,), draws=1, seeds=1, steps=1)
    here = Descending(study, 0)
    true = here.gradient(here.start(), slice(None)).norm()
    assert 0.0 < run_lemma(study)["delta"][0, 0, 0] < 0.5 * true


def test_the_gradient_of_a_set_is_the_mean_of_those_of_its_samples() -> None:
    here = Descending(LEMMA, 0)
    w, rows = here.start(), [3, 5, 8]
    mean = sum(here.gradient(w, [row]) for row in rows) / 3
    assert np.allclose(here.gradient(w, rows), mean, atol=1e-6)
