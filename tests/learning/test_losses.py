"""Losses and metrics by name, against torch's and numpy's own."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from melisma.errors import ConfigError
from melisma.learning.evaluation import evaluate
from melisma.learning.losses import (
    LOSSES,
    OwnTraining,
    checked,
    loss_of,
    mean_loss,
    transform_of,
)
from melisma.learning.metrics import METRICS, Metric, metrics_for
from melisma.learning.samples import Arrays, Batch, pairs
from melisma.learning.settings import Training

#: torch's loss as a module, which takes the mean over all values.
TORCH: dict[str, Callable[[], nn.Module]] = {
    "cross-entropy": nn.CrossEntropyLoss,
    "mse": nn.MSELoss,
    "mae": nn.L1Loss,
    "huber": nn.HuberLoss,
    "bce": nn.BCEWithLogitsLoss,
}
SEED = torch.Generator().manual_seed(0)
#: Outputs of a model for five samples, of several shapes.
SHAPES = [(5, 4), (5, 4, 3), (5, 4, 3, 2)]


class Table(nn.Module):
    """Gives the outputs of a sample by its number."""

    def __init__(self, outputs: Tensor) -> None:
        super().__init__()
        self.outputs = nn.Parameter(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.outputs[x]


def case(name: str, shape: tuple[int, ...]) -> tuple[Tensor, Batch]:
    """Outputs, and samples to which they are to belong."""
    outputs = torch.randn(shape, generator=SEED)
    if name == "cross-entropy":
        y = torch.randint(4, (shape[0], *shape[2:]), generator=SEED)
    else:
        y = torch.rand(shape, generator=SEED)
    return outputs, {"x": torch.arange(shape[0]), "y": y}


def test_every_loss_has_torchs() -> None:
    assert LOSSES.keys() == TORCH.keys()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_mean_over_samples_is_torchs_over_values(
    name: str, shape: tuple[int, ...]
) -> None:
    outputs, batch = case(name, shape)
    each = LOSSES[name](Table(outputs), batch)
    assert each.shape == (5,)
    torch.testing.assert_close(each.mean(), TORCH[name]()(outputs, batch["y"]))
    alone = [TORCH[name]()(outputs[i : i + 1], batch["y"][i : i + 1]) for i in range(5)]
    torch.testing.assert_close(each, torch.stack(alone))


@pytest.mark.parametrize("name", ["mse", "mae", "huber", "bce"])
def test_one_number_may_have_an_axis_of_its_own_or_not(name: str) -> None:
    # torch alone would compare each of the five with every other.
    outputs, y = torch.randn(5, 1, generator=SEED), torch.rand(5, generator=SEED)
    each = LOSSES[name](Table(outputs), {"x": torch.arange(5), "y": y})
    torch.testing.assert_close(each.mean(), TORCH[name]()(outputs[:, 0], y))


def test_whole_numbers_and_truth_values_are_targets_too() -> None:
    outputs, x = torch.randn(3, generator=SEED), torch.arange(3)
    sure = torch.tensor([True, False, True])
    each = LOSSES["bce"](Table(outputs), {"x": x, "y": sure})
    torch.testing.assert_close(
        each.mean(), nn.BCEWithLogitsLoss()(outputs, sure.float())
    )
    each = LOSSES["mse"](Table(outputs), {"x": x, "y": torch.tensor([3, 0, -4])})
    torch.testing.assert_close(each, (outputs - torch.tensor([3.0, 0.0, -4.0])) ** 2)


def test_without_targets_inputs_are_to_come_out_again() -> None:
    x = torch.randn(5, 3, 2, generator=SEED)
    each = LOSSES["mse"](nn.Tanh(), {"x": x})
    torch.testing.assert_close(each.mean(), nn.MSELoss()(x.tanh(), x))


def test_targets_of_another_size_are_named() -> None:
    outputs, batch = torch.randn(5, 3), {"x": torch.arange(5), "y": torch.rand(5, 2)}
    with pytest.raises(ConfigError, match=r"model gives \(3,\) values .* have \(2,\)"):
        LOSSES["mse"](Table(outputs), batch)


@pytest.mark.parametrize("wrong", [torch.tensor(1.0), torch.ones(5, 1), 3.0, None])
def test_a_loss_is_one_value_a_sample(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r'in place of \(5,\).*reduction="none"'):
        checked(wrong, 5)
    with pytest.raises(ConfigError, match=r"in place of \(5,\)"):
        mean_loss(lambda model, batch: wrong, nn.Identity(), {"x": torch.ones(5, 2)})


def test_a_loss_or_metric_that_is_not_there_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'hubert'.*'huber'"):
        loss_of(Training(loss="hubert"))
    with pytest.raises(ConfigError, match=r"'acuracy'.*'accuracy'"):
        metrics_for(["acuracy"], Training())
    with pytest.raises(ConfigError, match="mae, mae: give each once"):
        metrics_for(["mae", "mae"], Training())


def test_functions_of_ones_own_come_before_names() -> None:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return batch["x"]

    def same(batch: Batch) -> Batch:
        return batch

    own = OwnTraining(own_loss=loss, own_transform=same)
    assert loss_of(own) is loss
    assert transform_of(own) is same
    assert loss_of(OwnTraining()) is LOSSES["cross-entropy"]


def test_without_metrics_there_is_accuracy_or_the_loss() -> None:
    assert [m.name for m in metrics_for(None, Training())] == ["accuracy"]
    assert [m.name for m in metrics_for(None, Training(loss="mse"))] == ["loss"]
    own = OwnTraining(own_loss=lambda model, batch: batch["x"])
    (only,) = metrics_for((), own)
    assert (only.name, only.more_is_better, only.percent) == ("loss", False, False)


def scored(
    outputs: Tensor, y: Tensor, loss: str, metrics: Iterable[str], batch: int = 2
) -> dict[str, float]:
    chosen = metrics_for(metrics, Training())
    samples = pairs(torch.arange(len(outputs)), y)
    return evaluate(Table(outputs), samples, LOSSES[loss], chosen, batch).metrics


@given(st.integers(2, 30), st.integers(1, 3), st.integers(0, 2**32))
def test_metrics_of_numbers_are_numpys(rows: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    out, y = (rng.normal(5.0, 2.0, (rows, width)).astype(np.float32) for _ in range(2))
    found = scored(
        torch.from_numpy(out), torch.from_numpy(y), "mse", ["mae", "rmse", "r2", "loss"]
    )
    off = out.astype(float) - y
    assert list(found) == ["mae", "rmse", "r2", "loss"]
    assert found["mae"] == pytest.approx(np.abs(off).mean())
    assert found["rmse"] == pytest.approx(math.sqrt((off**2).mean()))
    assert found["loss"] == pytest.approx((off**2).mean(), rel=1e-5)
    spread = ((y - y.mean(dtype=float)) ** 2).sum(dtype=float)
    assert found["r2"] == pytest.approx(1 - (off**2).sum() / spread, rel=1e-3)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_accuracy_is_the_share_of_largest_logits_at_the_target(
    shape: tuple[int, ...],
) -> None:
    outputs, batch = case("cross-entropy", shape)
    found = scored(outputs, batch["y"], "cross-entropy", ["accuracy"])
    right = outputs.numpy().argmax(axis=1) == batch["y"].numpy()
    assert found["accuracy"] == pytest.approx(right.mean())


def test_nothing_is_explained_where_all_targets_are_alike() -> None:
    found = scored(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0]), "mse", ["r2"])
    assert math.isnan(found["r2"])


def test_metrics_are_the_same_however_samples_are_cut() -> None:
    outputs, batch = case("mse", (5, 4))
    whole, single = (
        scored(outputs, batch["y"], "mse", ["mae", "rmse", "r2", "loss"], size)
        for size in (5, 1)
    )
    assert whole == pytest.approx(single)


def test_a_metric_of_ones_own_sees_the_model_and_all_batches() -> None:
    def seen(model: nn.Module, batches: Iterable[Batch]) -> float:
        # Twice: batches can be gone through as often as is needed.
        assert not model.training
        return sum(len(batch["y"]) for batch in batches) + sum(1 for _ in batches)

    outputs, batch = case("mse", (5, 4))
    own = Metric(name="seen", of=seen)
    for loss in (LOSSES["mse"], lambda model, one: one["y"].sum(dim=1)):
        scores = evaluate(Table(outputs), Arrays(batch), loss, [own, METRICS["mae"]], 2)
        assert list(scores.metrics) == ["seen", "mae"]
        assert scores.metrics["seen"] == 5 + 3


def test_a_metric_that_raises_is_named() -> None:
    def broken(model: nn.Module, batches: Iterable[Batch]) -> float:
        raise KeyError("z")

    outputs, batch = case("mse", (5, 4))
    with pytest.raises(ConfigError, match="metric 'broken' raised KeyError: 'z'"):
        evaluate(
            Table(outputs),
            Arrays(batch),
            LOSSES["mse"],
            [Metric(name="broken", of=broken)],
        )
