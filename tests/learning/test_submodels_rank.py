"""Parts by rank: adapters with the first of their rows and columns."""

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from melisma.errors import ConfigError
from melisma.learning.losses import LOSSES
from melisma.learning.parameters import parameters_of, trained
from melisma.learning.submodels import Example, submodel_of
from melisma.learning.submodels.cost import cost_of, whole_of


class Adapted(nn.Module):
    rank_axes: ClassVar[Any] = {"down": 0, "up": 1}

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features))
        self.up = nn.Parameter(torch.randn(frozen.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.frozen(x) + x @ self.down.T @ self.up.T
        return y


def made() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        Adapted(nn.Linear(6, 9), 8), nn.ReLU(), Adapted(nn.Linear(9, 5), 3)
    )


TRIED = Example(
    LOSSES["cross-entropy"],
    {
        "x": torch.randn(4, 6, generator=torch.Generator().manual_seed(0)),
        "y": torch.arange(4),
    },
)


def test_lower_ranks_compute_what_the_whole_does_without_the_others() -> None:
    model = made()
    small = submodel_of("rank 4").part(model, TRIED)
    shapes = {name: tuple(t.shape) for name, t in parameters_of(small.model).items()}
    assert shapes == {
        "0.down": (4, 6),
        "0.up": (9, 4),
        "2.down": (3, 9),  # as it was
        "2.up": (5, 3),
    }
    with torch.no_grad():
        model.get_parameter("0.up")[:, 4:] = 0.0
    x = TRIED.batch["x"]
    torch.testing.assert_close(small.model(x), model(x))
    found, whole = (
        torch.autograd.grad(m(x).square().sum(), list(trained(m).values()))
        for m in (small.model, model)
    )
    # Sums of other lengths are added up in another order.
    for own, part in ((found[0], whole[0][:4]), (found[1], whole[1][:, :4])):
        torch.testing.assert_close(own, part, rtol=1e-4, atol=1e-4)


def test_what_travels_is_the_adapters_alone() -> None:
    model = made()
    small = submodel_of("rank 2").part(model, TRIED)
    cost, whole = (cost_of(p, model, TRIED) for p in (small, whole_of(model)))
    assert cost.up_bytes == cost.down_bytes == 4 * 2 * (6 + 9 + 9 + 5)
    assert whole.up_bytes == 4 * (8 * (6 + 9) + 3 * (9 + 5))
    assert cost.step(whole) < 1


@pytest.mark.parametrize(
    ("model", "axes", "why"),
    [
        (nn.Linear(6, 5), {}, "no adapter of a higher rank"),
        (Adapted(nn.Linear(6, 5), 2), {"down": 0, "up": 1}, "no adapter of a higher"),
        (Adapted(nn.Linear(6, 5), 8), {"down": 0, "up": 0}, "all of them as long"),
        (Adapted(nn.Linear(6, 5), 8), {"down": 0, "other": 0}, "an axis of each"),
        (Adapted(nn.Linear(6, 5), 8), {"down": 0, "up": 2}, "an axis of each"),
        (Adapted(nn.Linear(6, 5), 8), "down", "an axis of each"),
    ],
)
def test_what_has_no_such_ranks_is_refused(
    model: nn.Module, axes: object, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Adapted, "rank_axes", axes)
    with pytest.raises(ConfigError, match=why):
        submodel_of("rank 4").part(model, TRIED)


@pytest.mark.parametrize("written", ["rank", "rank 0", "rank 1.5", "rank -2"])
def test_a_rank_that_is_none_is_named(written: str) -> None:
    with pytest.raises(ConfigError, match="for example 'rank 4'"):
        submodel_of(written)
