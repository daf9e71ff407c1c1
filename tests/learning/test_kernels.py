import copy
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from torch import nn

from melisma.learning import batched, kernels, models
from melisma.learning.engines import Lesson
from melisma.learning.kernels import fast_kernels, onednn_is_slow, slowdown
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.samples import pairs
from melisma.learning.settings import Precision, Training
from melisma.learning.training import train
from melisma.maths.arrays import Floats, Ints

LINEAR = nn.Linear(4, 2)
X = torch.rand(64, 1, 28, 28, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 10, (64,), generator=torch.Generator().manual_seed(2))
SAMPLES = pairs(X, Y)


def is_on() -> bool:
    return bool(torch.backends.mkldnn.enabled)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU whose products oneDNN slows down."""
    monkeypatch.setattr(kernels, "onednn_is_slow", lambda: True)


def test_every_measurement_gives_the_same_answer() -> None:
    assert len({slowdown() >= kernels.SLOW_FROM for _ in range(20)}) == 1


def test_measuring_leaves_the_switch_alone() -> None:
    slowdown()
    assert is_on()


@pytest.mark.parametrize("times", [2.4, 2.6])
def test_onednn_is_slow_from_the_threshold_on(
    times: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels._measured.cache_clear()
    monkeypatch.setattr(kernels, "slowdown", lambda: times)
    assert onednn_is_slow() == (times > kernels.SLOW_FROM)
    kernels._measured.cache_clear()


def test_where_onednn_is_not_slow_it_stays_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "onednn_is_slow", lambda: False)
    with fast_kernels(LINEAR):
        assert is_on()


@pytest.mark.usefixtures("slow")
def test_onednn_is_off_until_the_last_one_is_out() -> None:
    first, second = ExitStack(), ExitStack()
    first.enter_context(fast_kernels(LINEAR))
    second.enter_context(fast_kernels(LINEAR))
    first.close()
    assert not is_on()
    second.close()
    assert is_on()


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(
    ("layer", "keeps"),
    [
        (LINEAR, False),
        (nn.Conv2d(1, 4, 3), False),
        (nn.Conv2d(4, 4, 3, groups=2), False),
        (nn.Conv2d(4, 4, 3, groups=4), True),
        (nn.Conv1d(4, 4, 3), True),
    ],
    ids=str,
)
def test_convolutions_that_are_fast_in_onednn_keep_it(
    layer: nn.Module, keeps: bool
) -> None:
    with fast_kernels(nn.Sequential(layer, nn.ReLU())):
        assert is_on() == keeps


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("precision", Precision)
def test_products_in_bfloat16_stay_with_onednn(precision: Precision) -> None:
    model = models.build("TwoNN", 0)
    lesson = Lesson(model, parameters_of(model), SAMPLES, Training(), precision)
    found = []

    def engine(lesson: Lesson, plans: Sequence[Ints]) -> tuple[Parameters, Floats]:
        found.append(is_on())
        return {}, np.zeros(len(plans))

    batched._chunk(lesson, [np.arange(4)[None]], range(1), engine)
    assert found == [precision == Precision.BF16]


@pytest.mark.parametrize("name", ["TwoNN", "ConvNet"])
def test_both_kinds_of_kernels_train_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models.build(name, 0)
    plan, results = np.arange(64).reshape(2, 32), []
    for is_slow in (True, False):
        monkeypatch.setattr(kernels, "onednn_is_slow", lambda slow=is_slow: slow)
        twin = copy.deepcopy(model)
        train(twin, SAMPLES, plan, Training())
        results.append(parameters_of(twin))
    torch.testing.assert_close(*results, atol=1e-6, rtol=1e-5)
