"""Tasks of one's own in a job: what is right is trained, what is wrong is one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import melisma as mel
from melisma.errors import ConfigError, DataError, MelismaError
from melisma.jobs.building import task_of
from melisma.jobs.files import job_of
from melisma.jobs.schema import DataTable, Job, TrainingTable
from melisma.learning.settings import Schedule
from melisma.units import Deadline

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5)).astype("f4")
Y = (X.sum(axis=1) > 0).astype("i8")
Batch = dict[str, Tensor]


def linear() -> nn.Module:
    return nn.Linear(5, 2)


def task_with(**changes: Any) -> Callable[[], mel.Task]:
    given: dict[str, Any] = {
        "model": linear,
        "train": {"x": X, "y": Y},
        "test": {"x": X[:20], "y": Y[:20]},
        "rate": 0.1,
    }
    return lambda: mel.Task(**(given | changes))


def each(model: nn.Module, batch: Batch) -> Tensor:
    return cross_entropy(model(batch["x"]), batch["y"], reduction="none")


def fails(model: nn.Module, batches: Any) -> float:
    raise ZeroDivisionError("nothing to divide")


def test_a_task_is_trained_by_its_own_loss_and_judged_by_its_own_metrics() -> None:
    seen = []

    def worst(model: nn.Module, batches: Any) -> float:
        return max(float(each(model, batch).max()) for batch in batches)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        seen.append(sorted(batch))
        return each(model, batch)

    metrics = [mel.Metric(name="worst", of=worst, more_is_better=False), "accuracy"]
    given = task_with(loss=loss, metrics=metrics)
    job = Job(task=given, cycles=3, deadline=Deadline(0.2))
    run = mel.simulate(job, runs=None)
    assert {tuple(names) for names in seen} == {("x", "y")}
    assert list(run.history.metrics) == ["worst", "accuracy"]
    assert run.history.metric == run.history.metrics["worst"]
    assert run.history.loss[-1] < run.history.loss[0]


def test_a_job_changes_how_a_task_is_trained_where_it_says_so() -> None:
    given = task_with(optimiser="AdamW", arguments={"eps": 1e-6}, batch=16)
    job = Job(task=given, training=TrainingTable(batch=8))
    training = task_of(job).training
    assert (training.optimiser, training.rate, training.batch) == ("AdamW", 0.1, 8)
    assert training.arguments == {"eps": 1e-6}


def test_what_a_job_says_holds_though_it_is_the_default() -> None:
    said = {"optimiser": "sgd", "rate": 0.05, "batch": 32, "schedule": "constant"}
    for given in (
        task_with(optimiser="AdamW", arguments={"eps": 1e-6}, schedule="cosine"),
        task_with(optimiser=torch.optim.Adagrad, arguments={"eps": 1e-6}, batch=3),
    ):
        job = msgspec.structs.replace(job_of({"training": said}, "here"), task=given)
        training = task_of(job).training
        assert {key: getattr(training, key) for key in said} == said
        assert training.arguments == {}
        assert training.is_plain_sgd


def test_no_momentum_is_none_for_every_optimiser() -> None:
    job = job_of({"training": {"optimiser": "adam", "momentum": 0.0}}, "here")
    assert task_of(job).training.arguments == {}
    given = task_with(arguments={"momentum": 0.9})
    for said, expected in ((None, 0.9), (0.0, 0.0), (0.5, 0.5)):
        table = TrainingTable(momentum=said)
        training = task_of(Job(task=given, training=table)).training
        assert training.arguments == {"momentum": expected}


@pytest.mark.slow
def test_an_optimiser_of_ones_own_is_what_trains_with_its_arguments() -> None:
    def own(values: Any, lr: float, eps: float) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(values, lr=lr, eps=eps)

    def losses(**optimiser: Any) -> list[float]:
        given = task_with(model=lambda: nn.Sequential(linear()), **optimiser)
        job = Job(task=given, cycles=2, deadline=Deadline(0.2))
        return list(mel.simulate(job, runs=None).history.loss)

    ours = losses(optimiser=own, arguments={"eps": 0.5})
    assert ours == pytest.approx(losses(optimiser="adagrad", arguments={"eps": 0.5}))
    assert ours != pytest.approx(losses())


@pytest.mark.slow
def test_an_optimiser_that_does_not_take_the_model_is_named() -> None:
    given = task_with(optimiser="Muon")  # of matrices alone
    with pytest.raises(ConfigError, match=r"optimiser 'Muon'.*2D"):
        task_of(Job(task=given))
    matrix = task_with(optimiser="Muon", model=lambda: nn.Linear(5, 2, bias=False))
    job = Job(task=matrix, cycles=2, deadline=Deadline(0.2))
    loss = mel.simulate(job, runs=None).history.loss
    assert loss[1] < loss[0]


def test_the_loss_is_no_name_of_another_metric() -> None:
    given = task_with(metrics=[mel.Metric(name="loss", of=fails)])
    with pytest.raises(ConfigError, match="another name"):
        task_of(Job(task=given))


def test_arguments_of_an_optimiser_may_stand_in_its_table() -> None:
    table = {"optimiser": "adamw", "weight_decay": 0.1, "betas": [0.8, 0.9]}
    job = job_of({"training": table | {"schedule": "cosine"}}, "here")
    assert job.training.arguments == {"weight_decay": 0.1, "betas": [0.8, 0.9]}
    assert job.training.schedule == Schedule.COSINE


def test_several_tasks_of_version_2_are_still_read() -> None:
    job = job_of({"task": [{"name": "one"}, {"name": "two"}]}, "here")
    assert [task.name for task in job.tasks] == ["one", "two"]


WRONG = {
    "a scalar": (
        {"loss": lambda model, batch: each(model, batch).mean()},
        r"returned \(\) in place of \(2,\)",
    ),
    "no tensor": ({"loss": lambda model, batch: 1.0}, "returned float"),
    "NaN": (
        {"loss": lambda model, batch: each(model, batch) * float("nan")},
        r"is \[nan, nan\]: it has to be finite",
    ),
    "a metric": (
        {"metrics": [mel.Metric(name="mine", of=fails)]},
        "metric 'mine' raised ZeroDivisionError: nothing to divide",
    ),
    "a model": (
        {"model": lambda: nn.Linear(6, 2)},
        r"does not take samples of x: \(5,\) float32, y: \(\) int64",
    ),
    "a label": (
        {"train": {"x": X, "y": Y + 300 * (np.arange(60) == 7)}},
        r"y\[7\] is class 30\d: give classes from 0 to 1",
    ),
    "lengths": ({"train": {"x": X, "y": Y[:9]}}, "give as many in each"),
    "no samples": ({"train": {"x": X[:0], "y": Y[:0]}}, "x is empty"),
    "nothing to train on": ({"train": None}, "there are no samples"),
    "complex": ({"train": {"x": X * 1j, "y": Y}}, "complex"),
    "an optimiser": ({"optimiser": "AdamWW"}, "did you mean 'AdamW'"),
    "its argument": ({"arguments": {"decoy": 1}}, "unexpected keyword argument"),
    "a loss": ({"loss": "mze"}, "did you mean 'mse'"),
    "a metric's name": ({"metrics": ["accurate"]}, "did you mean 'accuracy'"),
    "a metric twice": ({"metrics": ["r2", "r2"]}, "give each once"),
}


@pytest.mark.parametrize(("changes", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_one_line_before_the_first_cycle(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(MelismaError, match=said) as raised:
        task_of(Job(task=task_with(**changes)))
    assert isinstance(raised.value, ConfigError | DataError)
    assert "\n" not in str(raised.value)


def test_what_a_task_says_is_not_said_again() -> None:
    for changes in ({"model": "ThreeNN"}, {"loss": "mse"}, {"metrics": ("mae",)}):
        with pytest.raises(ConfigError, match=r"leave .* out"):
            task_of(Job(task=task_with(), **changes))


def test_a_table_is_trained_in_a_jobs_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{a:.4f},{b:.4f},{2 * a - b:.4f}" for a, b in X[:, :2]]
    Path("table.csv").write_text("\n".join(["a,b,c", *rows]))
    job = Job(
        model=lambda: nn.Linear(2, 1),
        loss="mse",
        metrics=("mae", "r2"),
        data=DataTable(train="table.csv", test=0.25),
        training=TrainingTable(optimiser="adam", rate=0.1),
        deadline=Deadline(0.2),
        cycles=4,
    )
    task = task_of(job)
    assert (len(task.data.train), len(task.data.test)) == (45, 15)
    run = mel.simulate(job, runs=None)
    assert run.history.metrics["r2"][-1] > 0.99
    Path("table.csv").write_text("\n".join(["a,b,c", *rows[:3], "1,two,3"]))
    with pytest.raises(DataError, match=r'table.csv, line 5, column "b" holds \'two\''):
        task_of(job)
