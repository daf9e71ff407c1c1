from pathlib import Path

import pytest
import torch
from torch import nn

from melisma.errors import ConfigError
from melisma.learning.models import (
    MODELS,
    build,
    cycles_per_sample,
    model_bytes,
    parameter_count,
)

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
SHAPES = {name: CIFAR if name == "CifarCNN" else MNIST for name in MODELS}

# A layer has inputs·outputs weights and outputs biases; a convolution has
# channels·kernel²·filters weights and filters biases.
PARAMETERS = {
    "TwoNN": 785 * 50 + 51 * 20 + 21 * 10,
    "DeadlineCNN": 26 * 32 + 801 * 64 + 3137 * 512 + 513 * 10,
    "ThreeNN": 785 * 500 + 501 * 300 + 301 * 100 + 101 * 10,
    "ConvNet": 10 * 6 + 55 * 16 + 401 * 200 + 201 * 100 + 101 * 10,
    "FashionNet": 10 * 16 + 145 * 32 + 1569 * 1000 + 1001 * 500 + 501 * 10,
    "CsaNet": 785 * 300 + 301 * 124 + 125 * 60 + 61 * 10,
    "FogMLP": 785 * 64 + 65 * 10,
    "FogCNN": 26 * 10 + 251 * 20 + 321 * 50 + 51 * 10,
    "CifarCNN": 28 * 32 + 289 * 64 + 577 * 64 + 1025 * 64 + 65 * 10,
}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_as_counted_by_hand(name: str) -> None:
    model = build(name, 0)
    assert parameter_count(model) == PARAMETERS[name]
    assert model_bytes(model) == 4 * PARAMETERS[name]


@pytest.mark.parametrize("name", MODELS)
def test_every_network_gives_ten_logits(name: str) -> None:
    sample = torch.rand(5, *SHAPES[name], generator=torch.Generator().manual_seed(0))
    logits = build(name, 0)(sample)
    assert logits.shape == (5, 10)
    # A softmax would make rows of positive numbers that sum to 1.
    assert (logits < 0).any()
    assert not torch.isclose(logits.sum(dim=1), torch.ones(5), atol=1e-3).all()


@pytest.mark.parametrize("name", MODELS)
def test_networks_are_plain_sequences(name: str) -> None:
    model = build(name, 0)
    assert isinstance(model, nn.Sequential)
    plain = (nn.Flatten, nn.Linear, nn.ReLU, nn.Conv2d, nn.MaxPool2d)
    assert all(type(layer) in plain for layer in model)
    assert not any(isinstance(layer, nn.ReLU) and layer.inplace for layer in model)
    assert isinstance(model[-1], nn.Linear)


def layers_of(name: str) -> list[str]:
    return [type(layer).__name__ for layer in build(name, 0).children()]


def test_layers_stand_in_the_order_of_the_thesis() -> None:
    halving = ["Conv2d", "MaxPool2d", "ReLU"]
    dense = ["Flatten", "Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert layers_of("ConvNet") == halving + halving + dense
    assert layers_of("TwoNN") == dense


@pytest.mark.parametrize("name", MODELS)
def test_the_seed_decides_the_parameters(name: str) -> None:
    def parameters(seed: int) -> torch.Tensor:
        return nn.utils.parameters_to_vector(build(name, seed).parameters())

    assert torch.equal(parameters(3), parameters(3))
    assert not torch.equal(parameters(3), parameters(4))


def test_building_leaves_torchs_generator_alone() -> None:
    before = torch.get_rng_state()
    build("TwoNN", 12)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_was_drawn_before_does_not_matter() -> None:
    model = build("TwoNN", 12)
    with torch.random.fork_rng(devices=[]):
        torch.rand(100)
        again = build("TwoNN", 12)
    assert all(map(torch.equal, model.parameters(), again.parameters()))


@pytest.mark.paper
def test_csa_net_costs_what_the_paper_prints() -> None:
    model = build("CsaNet", 0)
    weights = sum(p.numel() for p in model.parameters() if p.ndim == 2)
    assert 32 * weights == 8_974_080
    assert cycles_per_sample(model, MNIST) == 1_123_736


def test_a_convolution_costs_its_kernel_for_every_output() -> None:
    # 26² outputs in each of 6 filters, 9 inputs each; 13² after pooling, no cost.
    convolution = nn.Sequential(nn.Conv2d(1, 6, 3), nn.MaxPool2d(2), nn.ReLU())
    assert cycles_per_sample(convolution, MNIST) == 4 * 6 * 26**2 * (9 + 1)
    # ConvNet: as above; 16 filters of 11² outputs, 54 inputs each; then a perceptron.
    dense = 401 * 200 + 201 * 100 + 101 * 10
    total = 4 * (6 * 26**2 * 10 + 16 * 11**2 * 55 + dense)
    assert cycles_per_sample(build("ConvNet", 0), MNIST) == total


def test_grouped_filters_sum_fewer_inputs() -> None:
    grouped = nn.Conv2d(4, 8, 3, groups=2)
    assert cycles_per_sample(grouped, (4, 5, 5)) == 4 * 8 * 3**2 * (2 * 9 + 1)


def test_a_layer_used_twice_costs_twice() -> None:
    layer = nn.Linear(8, 8)
    twice = nn.Sequential(layer, nn.ReLU(), layer)
    assert cycles_per_sample(twice, (8,)) == 2 * cycles_per_sample(layer, (8,))


def test_counting_leaves_the_model_as_it_was() -> None:
    model = build("ConvNet", 0)
    cycles_per_sample(model, MNIST)
    assert model.training
    assert not any(layer._forward_hooks for layer in model.modules())


def test_what_cannot_be_counted_is_named() -> None:
    with pytest.raises(ConfigError, match="operations of LSTM cannot be counted"):
        cycles_per_sample(nn.Sequential(nn.LSTM(4, 4)), (3, 4))


def test_samples_of_another_shape_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"does not take samples of x: \(3, 32"):
        cycles_per_sample(build("CsaNet", 0), CIFAR)


@pytest.mark.parametrize(
    ("name", "nearest"), [("twonn", "TwoNN"), ("CifarNet", "CifarCNN")]
)
def test_an_unknown_model_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"did you mean '{nearest}'.*module:factory"):
        build(name, 0)


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_models.py").write_text(
        "from torch import nn\n"
        "def net(): return nn.Linear(4, 2)\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self): super().__init__(4, 2)\n"
        "def wide(width): return nn.Linear(width, 2)\n"
        "def words(): return 'a network'\n"
        "number = 3\n"
    )
    (tmp_path / "needy_models.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize("name", ["own_models:net", "own_models:Net"])
def test_a_model_of_ones_own_is_built_from_the_seed(name: str) -> None:
    model, same, other = build(name, 1), build(name, 1), build(name, 2)
    assert isinstance(model, nn.Linear)
    assert all(map(torch.equal, model.parameters(), same.parameters()))
    assert not any(map(torch.equal, model.parameters(), other.parameters()))


@pytest.mark.usefixtures("own_module")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_models:net", "there is no module 'no_models'"),
        ("needy_models:net", "needy_models imports 'no_such_library'"),
        ("own_models:nett", "unknown function of own_models 'nett'"),
        ("own_models:number", "is of type int: give a function"),
        ("own_models:wide", "without arguments: missing a required argument: 'width'"),
        ("own_models:words", "returned str: the factory must return a torch.nn.Module"),
        ("builtins:dict", "cannot be made without arguments"),
        ("own_models:", "give a name, or module:function"),
        (":net", "give a name, or module:function"),
        (".own_models:net", "give a name, or module:function"),
        ("own_models:net:x", "give a name, or module:function"),
    ],
)
def test_a_bad_path_is_told(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(name, 0)
