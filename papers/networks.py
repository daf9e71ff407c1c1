"""What DAB's figures train: tasks that a job names, a network and then a data set.

The author's networks end in softmax, and PyTorch's cross-entropy takes the softmax
again, so that the loss of ten classes lies between 1.46 and 2.46; ours in
``melisma.learning.models`` end in logits. All are judged by the share of images that
are told, and by the mean probability of the right class, which the author's code calls
accuracy. A module of its own: learners import it.
"""

from collections.abc import Iterable
from functools import cache, partial

import torch
from torch import Tensor, nn

import melisma as mel
from melisma.learning import Arrays, Dataset, data, models

PROBABILITY = "probability"  #: of the right class, in the mean over images
#: Of the test images of convolutional networks one in so many is taken: all 10,000
#: take the thesis's network ten seconds of a core, five times a run.
EVERY = 10


def mean_probability(
    model: nn.Module, batches: Iterable[dict[str, Tensor]], *, softmax: bool
) -> float:
    """Return the mean probability of the right class; ``softmax``: it ends in that."""
    found = []
    for batch in batches:
        outputs = model(batch["x"])
        outputs = outputs if softmax else outputs.softmax(dim=1)
        found.append(outputs.gather(1, batch["y"][:, None]).double())
    return float(torch.cat(found).mean())


@cache
def _loaded(dataset: str) -> Dataset:
    """A data set, read once for all runs of a process."""
    return data.load(dataset)


def _task(network: str, dataset: str, *, softmax: bool, every: int = 1) -> mel.Task:
    def model() -> nn.Module:
        layers = models.MODELS[network]()
        return nn.Sequential(layers, nn.Softmax(dim=1)) if softmax else layers

    def test() -> Arrays:
        samples = _loaded(dataset).test
        return Arrays(samples[slice(None, None, every)])

    by_probability = mel.Metric(
        name=PROBABILITY, of=partial(mean_probability, softmax=softmax), percent=True
    )
    return mel.Task(
        model=model,
        train=lambda: _loaded(dataset).train,
        test=test,
        metrics=("accuracy", by_probability),
    )


def soft_two_nn_mnist() -> mel.Task:
    """TwoNN as the author has it, ending in softmax, on MNIST."""
    return _task("TwoNN", "mnist", softmax=True)


def two_nn_mnist() -> mel.Task:
    """TwoNN ending in logits, which trains three times as fast, on MNIST."""
    return _task("TwoNN", "mnist", softmax=False)


def two_nn_mnist_5k() -> mel.Task:
    """The same on the digits that come with Melisma."""
    return _task("TwoNN", "mnist-5k", softmax=False)


def deadline_cnn_mnist() -> mel.Task:
    """The network of the thesis's deadline experiments, ending in softmax, on MNIST."""
    return _task("DeadlineCNN", "mnist", softmax=True, every=EVERY)


def conv_net_mnist() -> mel.Task:
    """The thesis's smaller ConvNet, ending in logits, on MNIST."""
    return _task("ConvNet", "mnist", softmax=False, every=EVERY)


def conv_net_mnist_5k() -> mel.Task:
    """The same on the digits that come with Melisma."""
    return _task("ConvNet", "mnist-5k", softmax=False)
