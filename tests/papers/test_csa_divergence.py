"""Divergence against staleness: what is measured, and how it is judged."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from papers import csa_divergence as divergence
from papers.claims import Verdict
from papers.csa import PAPER
from papers.kit import Data
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from melisma.jobs.building import own_rows, task_of
from melisma.learning import models
from melisma.maths import Floats
from melisma.schemes import SCHEMES
from melisma.system import Mode, cell, max_staleness

STUDY = divergence.DivergenceStudy(
    learners=6, staleness=(0, 2, 4), cycles=1, rate=0.1, seeds=2
)


@pytest.mark.parametrize("staleness", [0, 2, 8])
def test_half_are_ahead_and_half_behind_by_the_staleness(staleness: int) -> None:
    steps = SCHEMES[divergence.apart(5, staleness)](cell(20, 1e6)).steps
    assert max_staleness(steps) == staleness
    assert steps.mean() == 5


@pytest.mark.parametrize("data", divergence.DATA)
def test_real_training_diverges_from_the_synchronous_one(data: str) -> None:
    trial = divergence.Trial(study=STUDY, data=data, mean=3, seed=0)
    (same, _), (near, _), (far, accuracy) = divergence.diverged(trial)
    assert same == 0.0
    assert 0.0 < near < far
    assert 0.0 < accuracy < 1.0


def descended(trial: divergence.Trial, staleness: int) -> Floats:
    """The mean of the learners' models after a cycle, by plain gradient descent."""
    study, job = trial.study, divergence.job_of(trial, staleness)
    data = task_of(job).data
    whole, ends = data.train[np.arange(len(data.train))], []
    for k, rows in enumerate(own_rows(job, data) or []):
        x, y = whole["x"][rows].float() / 255.0, whole["y"][rows].long()
        model = models.build(study.model, trial.seed)
        for _ in range(trial.mean + (-1) ** k * (staleness // 2)):
            parameters = list(model.parameters())
            parts = torch.autograd.grad(cross_entropy(model(x), y), parameters)
            slope = torch.cat([part.reshape(-1) for part in parts])
            w = parameters_to_vector(parameters)
            vector_to_parameters(w - study.rate * slope, model.parameters())
        ends.append(parameters_to_vector(model.parameters()).detach().numpy())
    return np.asarray(np.mean(ends, axis=0, dtype=np.float64))


def test_divergence_is_what_plain_descent_by_hand_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Data of one's own in equal parts: no draw of samples has a part in it.
    monkeypatch.setitem(divergence.DATA, "equal", (Mode.FEDERATED, "iid"))
    study = replace(STUDY, learners=8)
    trial = divergence.Trial(study=study, data="equal", mean=3, seed=0)
    began = parameters_to_vector(models.build(study.model, 0).parameters())
    same, *others = (descended(trial, s) for s in study.staleness)
    way = np.linalg.norm(same - began.detach().numpy())
    expected = [0.0, *(np.linalg.norm(other - same) / way for other in others)]
    ours = [apart for apart, _ in divergence.diverged(trial)]
    assert ours == pytest.approx(expected, rel=1e-3)


def test_unlike_learners_have_two_classes_each() -> None:
    trial = divergence.Trial(study=STUDY, data="unlike", mean=3, seed=0)
    job = divergence.job_of(trial, 2)
    data = task_of(job).data
    labels = data.labels()
    assert [len(set(labels[own])) for own in own_rows(job, data) or []] == [2] * 6


def test_runs_of_as_many_steps_are_the_same_run() -> None:
    study = replace(STUDY, staleness=(0, 1))  # s/2 is no whole step
    trial = divergence.Trial(study=study, data="alike", mean=1, seed=0)
    assert [apart for apart, _ in divergence.diverged(trial)] == [0.0, 0.0]


def found(grows: float) -> Data:
    staleness = np.array([0.0, 2.0, 4.0])
    data: Data = {"staleness": staleness}
    noise = 1e-4 * np.random.default_rng(0).standard_normal((3, 1))
    for kind, steps in divergence.CASES:
        data[f"{kind}/{steps}/divergence"] = grows * staleness / steps + noise
        data[f"{kind}/{steps}/accuracy"] = 0.9 - grows * staleness / 100 + noise
    return data


@pytest.mark.parametrize(
    ("grows", "verdict"), [(0.5, "holds"), (-0.5, "does not hold")]
)
def test_what_grows_with_staleness_is_judged(grows: float, verdict: str) -> None:
    claims = divergence.claims_of_divergence(found(grows))
    judged = {claim.what: claim.verdict for claim in claims}
    what = "Data alike, 5 steps"
    growth = f"{what}: growth of divergence for two steps of staleness"
    assert judged[growth] == Verdict(verdict)
    assert judged[f"{what}: accuracy lost from s = 0 to s = 4"] == Verdict(verdict)


def test_more_steps_are_judged_by_the_ratio() -> None:
    claims = {c.what: c for c in divergence.claims_of_divergence(found(0.5))}
    claim = claims["Data alike: divergence at s = 4, 10 steps against 5"]
    assert claim.ours.value == pytest.approx(0.5, abs=0.01)
    assert claim.verdict == Verdict.HOLDS


def test_the_picture_and_the_table_have_every_case() -> None:
    drawing = Figure()
    divergence.draw_divergence(drawing, found(0.5))
    assert [len(ax.lines) for ax in drawing.axes] == [4, 4]
    assert len(divergence.table_of_divergence(found(0.5))) == 5


def test_the_exhibit_says_what_was_found() -> None:
    (exhibit,) = [one for one in PAPER.exhibits if one.name == "A"]
    data, drawing = found(0.5), Figure()
    assert {claim.verdict for claim in exhibit.claims(data)} >= {Verdict.HOLDS}
    assert exhibit.draw
    exhibit.draw(drawing, data)
    assert drawing.axes
    assert exhibit.table
    assert len(exhibit.table(data)) > 1
