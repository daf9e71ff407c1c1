"""Mixed precision on learners: products in bfloat16, all else in float32."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from tests.fleets.learners import JOB, Steady, changed, live, of
from tests.learner.test_source import SPEC
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import melisma as mel
from melisma.errors import ConfigError
from melisma.jobs.live_task import LiveTask
from melisma.jobs.schema import Job
from melisma.learner.learner import Learner
from melisma.learning import devices
from melisma.learning.batched import train_many
from melisma.learning.engines import Lesson
from melisma.learning.losses import OwnTraining, in_precision
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.samples import Batch, pairs
from melisma.learning.settings import Precision, Training
from melisma.learning.training import batch_plan, train
from melisma.runs.records import Dropped
from melisma.runs.store import RunWriter

RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.normal(size=(60, 5)).astype("f4"))
Y = (X.sum(dim=1) > 0).long()
TRAINING = Training(batch=8, rate=0.1, shuffle=False)
PLAN = batch_plan(np.arange(60), 2, TRAINING, RNG)


@pytest.fixture
def _has_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine train in bfloat16, however slowly it multiplies."""
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda device: True)


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))


def by_hand(loss: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> Parameters:
    """Train as PyTorch's own page on autocast does."""
    model = small()
    step = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in PLAN:
        rows = torch.from_numpy(batch[batch >= 0])
        step.zero_grad()
        loss(model, X[rows], Y[rows]).mean().backward()  # type: ignore[no-untyped-call]
        step.step()
    return parameters_of(model)


def named(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model(x)
    assert outputs.dtype == torch.bfloat16
    return cross_entropy(outputs.float(), y, reduction="none")


def own(model: nn.Module, batch: Batch) -> Tensor:
    return model(batch["x"]).square().sum(dim=1)  # type: ignore[no-any-return]


def own_by_hand(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return own(model, {"x": x}).float()


@pytest.mark.parametrize(
    ("training", "loss"),
    [(TRAINING, named), (OwnTraining(**vars(TRAINING), own_loss=own), own_by_hand)],
    ids=["named", "own"],
)
def test_it_is_autocast_with_float32_parameters(training: Training, loss: Any) -> None:
    model = small()
    train(model, pairs(X, Y), PLAN, in_precision(training, Precision.BF16))
    expected, full = by_hand(loss), small()
    train(full, pairs(X, Y), PLAN, training)
    for name, value in parameters_of(model).items():
        assert value.dtype == torch.float32
        assert torch.equal(value, expected[name])
        assert not torch.equal(value, full.state_dict()[name])


@pytest.mark.usefixtures("_has_bfloat16")
def test_simulated_learners_train_so_one_by_one() -> None:
    model = small()
    samples, half = pairs(X, Y), Precision.BF16
    lesson = Lesson(model, parameters_of(model), samples, TRAINING, half)
    (chunk,) = train_many(lesson, [PLAN])
    for name, value in by_hand(named).items():
        assert torch.equal(chunk.parameters[name][0], value)


def test_where_the_device_has_none_a_learner_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda device: False)
    with pytest.raises(ConfigError, match="bf16 on 'cpu': it has no bfloat16"):
        Learner(name="a", precision=Precision.BF16)


class Spy(nn.Module):
    """Notes the types of what it is trained on."""

    seen: ClassVar[set[torch.dtype]] = set()

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(784, 4), nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        inside = self.first(x.flatten(1))
        if self.training:
            self.seen.add(inside.dtype)
        outputs: Tensor = self.last(inside)
        return outputs


@pytest.mark.usefixtures("_has_bfloat16")
def test_a_learner_benchmarks_itself_in_the_precision_that_it_trains_in(
    tmp_path: Path,
) -> None:
    job = changed(model=mel.Job(model=Spy).model, cycles=1)
    learner = Steady(name="a", allowed=[job.model], precision=Precision.BF16)
    assert not of(Dropped, live(job, tmp_path, [learner]))
    assert Spy.seen == {torch.bfloat16}
    kinds = {v.dtype for v in learner._tasks["test"].model.state_dict().values()}
    assert kinds == {torch.float32}


@pytest.mark.usefixtures("_has_bfloat16")
def test_work_that_is_compared_or_coded_is_done_in_float32() -> None:
    learner = Learner(name="a", precision=Precision.BF16)
    with pytest.raises(ConfigError, match="join with --precision fp32"):
        learner.prepare(replace(SPEC, exact=True))
    learner.prepare(SPEC)


@pytest.mark.parametrize(
    ("job", "exact"),
    [
        (JOB, False),
        (changed(checks=0.1), True),
        (changed(scheme="coded:cyclic"), True),
    ],
    ids=["plain", "checked", "coded"],
)
def test_learners_are_told_so(job: Job, exact: bool) -> None:
    with RunWriter.open(None, "") as run:
        assert LiveTask.of(job, run).announcement.spec.exact == exact


def test_float32_on_a_gpu_is_float32() -> None:
    torch.backends.cudnn.allow_tf32 = True
    Learner(name="a")
    assert not torch.backends.cudnn.allow_tf32
