"""Parts with frozen layers: the last layers learn as they would in the whole."""

import pytest
import torch
from tests.learning.parts import MODELS, example, made, part
from torch import nn

from melisma.errors import ConfigError
from melisma.learning.losses import LOSSES
from melisma.learning.models import perceptron
from melisma.learning.parameters import parameters_of, trained
from melisma.learning.submodels import Example, submodel_of
from melisma.learning.submodels.cost import cost_of, whole_of


@pytest.mark.parametrize("name", [*MODELS, "attentive"])
def test_what_is_trained_has_the_gradient_of_the_whole(name: str) -> None:
    model, tried = made(name), example(name)
    small = part(model, "freeze 0.5", name)

    def gradients(one: nn.Module) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        moving = trained(one)
        loss = tried.loss(one.train(), tried.batch).mean()
        found = torch.autograd.grad(loss, list(moving.values()))
        return dict(zip(moving, found, strict=True))

    found, whole = gradients(small.model), gradients(model)
    assert 0 < len(found) < len(whole)
    assert all(torch.equal(found[key], whole[key]) for key in found)


def test_the_first_layers_to_run_are_frozen_whatever_their_order_is() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.middle = nn.Linear(7, 5), nn.Linear(6, 7)
            self.first = nn.Linear(4, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.last(self.middle(self.first(x)))
            return out

    tried = Example(
        LOSSES["cross-entropy"], {"x": torch.randn(2, 4), "y": torch.tensor([0, 1])}
    )
    for share, kept in ((0.1, "middle last"), (0.5, "middle last"), (0.7, "last")):
        small = submodel_of(f"freeze {share}").part(Model(), tried)
        assert {name.split(".")[0] for name in small.up} == {*kept.split()}
        assert len(small.down) == 6


def test_a_tied_tensor_is_trained_as_long_as_one_of_its_layers_is() -> None:
    small = part(made("attentive"), "freeze 0.5", "attentive")
    assert "tokens.weight" in small.up
    assert "attention.in_proj_weight" not in small.up
    assert "attention.out_proj.weight" not in small.up


def test_the_whole_travels_down_and_what_is_trained_travels_up() -> None:
    torch.manual_seed(0)
    model = perceptron(64, 256, 256, 10)
    tried = Example(
        LOSSES["cross-entropy"], {"x": torch.randn(8, 64), "y": torch.zeros(8).long()}
    )
    small = submodel_of("freeze 0.4").part(model, tried)
    cost, whole = (cost_of(p, model, tried) for p in (small, whole_of(model)))
    assert cost.down_bytes == whole.down_bytes
    assert cost.parameters == 256 * 256 + 256 + 2560 + 10
    assert cost.up_bytes == 4 * cost.parameters
    # Forward of all, weights of two layers, and inputs of the last alone.
    operations = 64 * 256 + 2 * 256 * 256 + 3 * 2560
    assert cost.operations == 2 * operations


def test_statistics_of_frozen_layers_travel() -> None:
    small = part(made("flat"), "freeze 0.5", "flat")
    assert "1.running_mean" in small.up
    assert "1.weight" not in small.up


def test_a_model_of_one_layer_has_nothing_to_freeze() -> None:
    tried = Example(
        LOSSES["cross-entropy"], {"x": torch.randn(2, 4), "y": torch.tensor([0, 1])}
    )
    with pytest.raises(ConfigError, match="1 layer"):
        submodel_of("freeze 0.5").part(nn.Sequential(nn.Linear(4, 5)), tried)


def test_a_part_is_as_the_model_was() -> None:
    model = made("residual")
    small = part(model, "freeze 0.5", "residual")
    for name, t in parameters_of(model).items():
        assert torch.equal(small.model.state_dict()[name], t)
