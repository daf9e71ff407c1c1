"""Which models can be told as layers, and what is said of the others."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from melisma.errors import ConfigError
from melisma.learning.models import MODELS, build
from melisma.learning.outline import check_training, outline_of
from melisma.learning.settings import Training


class Plain(nn.Module):
    """As networks are written by hand: functions, methods and layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 5, padding="same")
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(4 * 7 * 7, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.tanh(self.conv(x)), 2)
        x = self.drop(F.avg_pool2d(x.relu(), kernel_size=2))
        x = F.dropout(x.view(x.size(0), -1), 0.3, training=self.training)
        out: Tensor = F.log_softmax(self.last(x), dim=-1)
        return out


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.inner(x)
        return x + inner


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.inner(x)
        return inner if inner.sum() > 0 else -inner


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.inner(x))  # type: ignore[no-any-return]


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)  # type: ignore[no-any-return]


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    return model


def kinds(model: nn.Module, *shape: int) -> list[str]:
    return [layer.kind for layer in outline_of(model, shape)]


@pytest.mark.parametrize("name", MODELS)
def test_every_network_of_the_papers_is_a_chain(name: str) -> None:
    shape = (3, 32, 32) if name == "CifarCNN" else (1, 28, 28)
    model = build(name, 0)
    told = [layer.name for layer in outline_of(model, shape) if layer.name]
    assert {f"{n}.{part}" for n in told for part in ("weight", "bias")} == set(
        model.state_dict()
    )


def test_functions_and_methods_are_the_layers_that_they_compute() -> None:
    layers = outline_of(Plain(), (1, 28, 28))
    assert [layer.kind for layer in layers] == [
        *("Conv2d", "Tanh", "MaxPool2d", "ReLU", "AvgPool2d", "Dropout"),
        *("Reshape", "Dropout", "Linear", "LogSoftmax"),
    ]
    assert layers[0].arguments["padding"] == [2, 2]
    assert [layers[i].arguments["p"] for i in (5, 7)] == [0.2, 0.3]
    assert [layer.name for layer in layers if layer.name] == ["conv", "last"]


def test_adaptive_pooling_becomes_pooling_by_a_window() -> None:
    (pool, _) = outline_of(
        nn.Sequential(nn.AdaptiveAvgPool2d((2, 1)), nn.Conv2d(3, 1, 1)), (3, 8, 6)
    )
    assert pool.kind == "AvgPool2d"
    assert pool.arguments["kernel_size"] == pool.arguments["stride"] == [4, 6]


def test_outlining_leaves_model_and_random_numbers_as_they_were() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout()).eval()
    torch.manual_seed(0)
    before, drawn = {n: v.clone() for n, v in model.state_dict().items()}, torch.rand(1)
    torch.manual_seed(0)
    assert kinds(model, 4) == ["Linear", "BatchNorm", "Dropout"]
    assert torch.rand(1) == drawn
    assert not model.training
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (Residual(), (4,), r"'add' \(Residual\).*not in a chain"),
        (Scaled(), (4,), r"'scale' \(Scaled\)|'mul' \(Scaled\)"),
        (Deciding(), (4,), "Deciding is no chain of layers.*nn.Sequential"),
        (Twice(), (4,), r"'inner' \(Linear\).*used twice"),
        (Unused(), (4,), r"'other' \(Linear\).*in a way of its own"),
        (frozen(), (4,), r"'0' \(Linear\).*'0.weight' is frozen"),
        (nn.Sequential(nn.GRU(4, 4)), (3, 4), r"'0' \(GRU\).*more than one tensor"),
        (
            nn.Sequential(nn.Linear(4, 4), nn.Hardswish()),
            (4,),
            r"'1' \(Hardswish\).*no engine knows it.*Linear, Conv2d",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")),
            (1, 4, 4),
            "pads by 'circular'",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 1, 1), nn.AdaptiveAvgPool2d(3)),
            (1, 4, 4),
            "windows differ",
        ),
        (nn.Sequential(nn.Linear(4, 4).double()), (4,), "does not take samples"),
        (nn.Sequential(nn.Linear(4, 4), nn.Flatten(0)), (4,), "stay apart"),
        (nn.Sequential(nn.Linear(4, 4), nn.Softmax(dim=0)), (4,), "across samples"),
        (nn.Sequential(nn.Linear(4, 4)), (5,), r"does not take samples of \(5,\)"),
        (nn.Sequential(nn.Flatten()), (4,), "nothing to train"),
        (
            nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None)),
            (4,),
            "momentum is None",
        ),
        (
            nn.Sequential(
                nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)
            ),
            (4,),
            "no running statistics",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_what_cannot_be_told_is_refused_by_name(
    model: nn.Module, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        outline_of(model, shape)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_padding_that_differs_from_side_to_side_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 2, padding="same"))
    with pytest.raises(ConfigError, match="one side by more than the other"):
        outline_of(model, (1, 4, 4))


@pytest.mark.parametrize(
    ("training", "message"),
    [
        (Training(optimiser="Rprop"), "optimiser of a browser 'Rprop'"),
        (Training(arguments={"nesterov": True}), "(?i)nesterov"),
        (
            Training(optimiser="adam", arguments={"decoupled_weight_decay": True}),
            "argument of Adam in a browser 'decoupled_weight_decay'",
        ),
        (Training(loss="hinge"), "loss 'hinge'"),
    ],
    ids=str,
)
def test_training_that_no_engine_knows_is_refused_by_name(
    training: Training, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_training(training)


def test_training_that_engines_know_is_not_refused() -> None:
    check_training(Training(arguments={"momentum": 0.9, "foreach": True}))
    check_training(Training(optimiser="adamw", arguments={"betas": [0.8, 0.9]}))
