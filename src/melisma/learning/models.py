"""The papers' networks by name, and what they cost to train and to send.

    TwoNN          DAB, and the thesis's benchmarks in chapter 3
    DeadlineCNN    the thesis's deadline experiments in chapter 3
    ThreeNN        the thesis's Table 6.1
    ConvNet        the thesis's Table 6.2
    FashionNet     the thesis's Table 6.3
    CsaNet         CSA
    FogMLP         the fog paper's multilayer perceptron
    FogCNN         the fog paper's convolutional network
    CifarCNN       for CIFAR-10

Differences from the papers:
1. Every network gives logits. DAB's and the thesis's end in softmax, and the author's
   code then applies PyTorch's cross-entropy, which takes the softmax again: such a
   loss cannot fall below 1.46.
2. Chapter 3 prints DeadlineCNN's filters and units, not its kernels: 5 × 5, padded
   by 2, as in FedAvg's network, which the author's code names. Nor does it say where
   the ReLUs stand: after the pooling, as in Tables 6.2 and 6.3.
3. The fog paper prints neither of its networks, and the two-stage coding paper names
   none for CIFAR-10. FogMLP, FogCNN and CifarCNN are our choice: small networks of
   the usual form.
"""

import copy
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from melisma.errors import ConfigError, MelismaError, unknown
from melisma.learning.data import Dataset
from melisma.learning.files import check_labels
from melisma.learning.losses import (
    Loss,
    Supervised,
    checked,
    loss_of,
    target_name,
    transform_of,
)
from melisma.learning.parameters import trained
from melisma.learning.samples import INPUTS, Batch, column, length
from melisma.learning.settings import Training
from melisma.registry import imported, own_code

Factory = Callable[[], nn.Module]


def perceptron(*widths: int) -> nn.Sequential:
    """Make fully connected layers of these widths, with ReLU between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _halving(inputs: int, filters: int, kernel: int, padding: int) -> nn.Sequential:
    """Make a convolution whose output is pooled to half its height and width."""
    convolution = nn.Conv2d(inputs, filters, kernel, padding=padding)
    return nn.Sequential(convolution, nn.MaxPool2d(2), nn.ReLU())


def _conv_net() -> nn.Module:
    return nn.Sequential(
        *_halving(1, 6, kernel=3, padding=0),
        *_halving(6, 16, kernel=3, padding=0),
        *perceptron(16 * 5 * 5, 200, 100, 10),
    )


def _fashion_net() -> nn.Module:
    return nn.Sequential(
        *_halving(1, 16, kernel=3, padding=1),
        *_halving(16, 32, kernel=3, padding=1),
        *perceptron(32 * 7 * 7, 1000, 500, 10),
    )


def _deadline_cnn() -> nn.Module:
    return nn.Sequential(
        *_halving(1, 32, kernel=5, padding=2),
        *_halving(32, 64, kernel=5, padding=2),
        *perceptron(64 * 7 * 7, 512, 10),
    )


def _fog_cnn() -> nn.Module:
    return nn.Sequential(
        *_halving(1, 10, kernel=5, padding=0),
        *_halving(10, 20, kernel=5, padding=0),
        *perceptron(20 * 4 * 4, 50, 10),
    )


def _cifar_cnn() -> nn.Module:
    return nn.Sequential(
        *_halving(3, 32, kernel=3, padding=1),
        *_halving(32, 64, kernel=3, padding=1),
        *_halving(64, 64, kernel=3, padding=1),
        *perceptron(64 * 4 * 4, 64, 10),
    )


#: Each takes 1 × 28 × 28 images, CifarCNN 3 × 32 × 32; each gives ten logits.
MODELS: dict[str, Factory] = {
    "TwoNN": partial(perceptron, 784, 50, 20, 10),
    "DeadlineCNN": _deadline_cnn,
    "ThreeNN": partial(perceptron, 784, 500, 300, 100, 10),
    "ConvNet": _conv_net,
    "FashionNet": _fashion_net,
    "CsaNet": partial(perceptron, 784, 300, 124, 60, 10),
    "FogMLP": partial(perceptron, 784, 64, 10),
    "FogCNN": _fog_cnn,
    "CifarCNN": _cifar_cnn,
}


def build(name: str | Factory | nn.Module, seed: int) -> nn.Module:
    """Make a model by its name in MODELS or by the ``module:factory`` path of your own.

    A function that makes one, or a model that is copied, does as well.

    The same seed gives the same parameters, and torch's own generator is left as it
    was. Raise ConfigError if there is no such model.
    """
    factory = _factory(name)
    # ``torch.manual_seed`` would reach the generators of all accelerators as well.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        with own_code("model", name):
            model = factory()
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f'model "{name}" returned {type(model).__name__}: '
            "the factory must return a torch.nn.Module"
        )
    return model


def _factory(name: str | Factory | nn.Module) -> Factory:
    """Return what makes a model, imported from a ``module:factory`` path."""
    if isinstance(name, nn.Module):
        return partial(copy.deepcopy, name)
    if not isinstance(name, str):
        return name
    if name in MODELS:
        return MODELS[name]
    if ":" not in name:
        raise unknown("model", name, [*MODELS, "module:factory"])
    factory = imported("model", name)
    if isinstance(factory, nn.Module):
        return partial(copy.deepcopy, factory)
    _check_needs_no_arguments(name, factory)
    return factory


def _check_needs_no_arguments(name: str, factory: Callable[..., nn.Module]) -> None:
    try:
        inspect.signature(factory).bind()
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f'model "{name}" cannot be made without arguments: {error}'
        ) from error


def parameter_count(model: nn.Module) -> int:
    """Weights and biases that are trained."""
    return sum(parameter.numel() for parameter in trained(model).values())


def model_bytes(model: nn.Module) -> int:
    """Bytes of the model on the wire, each parameter as a float32."""
    return 4 * parameter_count(model)


_COUNTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def cycles_per_sample(model: nn.Module, input_shape: Sequence[int]) -> int:
    """Operations to train on one sample once, at one operation per clock cycle.

    CSA counts 4·(weights + units after the input) for a multilayer perceptron. A
    weight of a convolution is used anew for each unit, so here each unit costs
    4·(inputs it sums + 1), which is the same for a perceptron. Raise ConfigError if a
    layer with parameters is neither linear nor a convolution, or the shape does not
    fit.
    """
    operations = 0

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        nonlocal operations
        # One row of the weight is what one unit sums over.
        inputs = layer.get_parameter("weight")[0].numel()
        operations += 4 * output.numel() * (inputs + 1)

    # The copy can be hooked and put on the CPU without a trace in the original.
    probe = copy.deepcopy(model).cpu().eval()
    for layer in probe.modules():
        if isinstance(layer, _COUNTED):
            layer.register_forward_hook(count)
        elif list(layer.parameters(recurse=False)):
            raise ConfigError(
                f"the operations of {type(layer).__name__} cannot be counted, only "
                f"those of {', '.join(kind.__name__ for kind in _COUNTED)}"
            )
    _tried(_outputs, probe, {INPUTS: torch.zeros(1, *input_shape)})
    return operations


def check_fits(model: nn.Module, data: Dataset, training: Training) -> None:
    """Raise ConfigError unless the loss of the model on this data can be computed.

    Two samples are tried, and the labels of all are looked at.
    """
    few, probe = transform_of(training)(data.train[:2]), copy.deepcopy(model).eval()
    each = checked(_tried(loss_of(training), probe, few), length(few))
    if not each.isfinite().all():
        raise ConfigError(
            f"the loss of the untrained model on the first samples of {data.name} is "
            f"{each.tolist()}: it has to be finite"
        )
    classes = classes_of(model, few, training)
    if classes is not None:
        check_labels(column(data.train, target_name(few)), classes, data.name)


def classes_of(model: nn.Module, few: Batch, training: Training) -> int | None:
    """Return how many classes a model tells apart; None if the loss has no classes."""
    loss = loss_of(training)
    if not isinstance(loss, Supervised) or not loss.by_class:
        return None
    outputs = _tried(_outputs, copy.deepcopy(model).eval(), few)
    return int(outputs.shape[1]) if outputs.ndim > 1 else 0


def _outputs(model: nn.Module, batch: Batch) -> Tensor:
    outputs: Tensor = model(batch[INPUTS])
    return outputs


def _tried(loss: Loss, model: nn.Module, batch: Batch) -> Tensor:
    """Return what a loss returns; ConfigError if it fails."""
    try:
        with torch.no_grad():
            return loss(model, batch)
    except MelismaError:
        raise
    except Exception as error:  # the user's own code may raise anything
        kinds = ", ".join(
            f"{name}: {tuple(value.shape[1:])} {value.dtype}".replace("torch.", "")
            for name, value in batch.items()
        )
        reason = str(error).splitlines()[0] if str(error) else ""
        raise ConfigError(
            f"the model does not take samples of {kinds}: {type(error).__name__}: "
            f"{reason[:200]}"
        ) from error
