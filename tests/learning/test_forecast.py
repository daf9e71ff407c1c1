import pytest
import torch
from torch import nn

from melisma.errors import ConfigError
from melisma.learning.benchmark import Machine
from melisma.learning.data import Dataset
from melisma.learning.forecast import Forecast, forecast, operations_of, shard_size
from melisma.learning.samples import pairs
from melisma.learning.settings import Training

X = torch.linspace(-1, 1, 200 * 3).view(200, 3).sin()
Y = torch.arange(200) % 2
DATA = Dataset("sines", pairs(X, Y), pairs(X, Y))


def forecast_of(
    *, flops_s: float | None = 1.0, trained_s: float | None = None
) -> Forecast:
    return Forecast(
        samples_per_s=100.0,
        shards_per_s=1.0,
        latency_s=0.0,
        flops=1e9,
        machine=Machine(threads=1, cores=2, load=0.5),
        subset_s=3.0,
        flops_s=flops_s,
        trained_s=trained_s,
    )


def test_errors_are_signed_and_relative_to_what_was_trained() -> None:
    # 3 s and 1 s predicted for 4 s: 25 % and 75 % too little.
    assert forecast_of(trained_s=4.0).errors_percent == pytest.approx((-25.0, -75.0))


def test_without_a_trained_cycle_or_a_count_there_is_no_error() -> None:
    assert forecast_of().errors_percent == (None, None)
    assert forecast_of(flops_s=None, trained_s=4.0).errors_percent[1] is None


def test_a_forecast_is_the_measured_line_at_all_samples_of_all_steps() -> None:
    found = forecast(
        nn.Linear(3, 2),
        DATA,
        Training(),
        samples=150,
        steps=4,
        shard=20,
        shards=8,
        sizes=2,
        repeats=1,
        operations=1e6,
        check=True,
    )
    work = 4 * 150
    assert found.subset_s == pytest.approx(found.latency_s + work / found.samples_per_s)
    assert found.flops_s == pytest.approx(work * 1e6 / found.flops)
    assert found.shards_per_s == pytest.approx(found.samples_per_s / 20)
    assert found.trained_s is not None


@pytest.mark.parametrize(("given", "shards"), [(1, 801), (200, 5)])
def test_more_shards_than_there_are_samples_for_are_named(
    given: int, shards: int
) -> None:
    with pytest.raises(ConfigError, match="there are 800 samples; take fewer shards"):
        shard_size(given, shards, 800)


def test_operations_of_a_layer_that_cannot_be_counted_are_unknown() -> None:
    # 4·(3 + 1) for each of two units.
    assert operations_of(nn.Linear(3, 2), DATA) == 32.0
    assert operations_of(nn.Sequential(nn.Linear(3, 2), nn.PReLU()), DATA) is None
