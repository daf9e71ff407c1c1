from pathlib import Path

import pytest
import torch
from torch import nn

from melisma.errors import DataError
from melisma.learning import models
from melisma.learning.parameters import all_finite, load, parameters_of, put, save


def test_parameters_survive_the_disk(tmp_path: Path) -> None:
    model, other = models.build("TwoNN", 0), models.build("TwoNN", 1)
    save(parameters_of(model), tmp_path / "model.safetensors")
    put(load(tmp_path / "model.safetensors"), other)
    assert all(map(torch.equal, model.parameters(), other.parameters()))
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_running_means_travel_and_counters_stay() -> None:
    names = set(parameters_of(nn.BatchNorm1d(3)))
    assert names == {"weight", "bias", "running_mean", "running_var"}


def test_taken_parameters_are_copies() -> None:
    model = models.build("TwoNN", 0)
    parameters_of(model)["1.bias"].fill_(7.0)
    assert not (model.state_dict()["1.bias"] == 7.0).any()


@pytest.mark.parametrize("content", [b"", b"not a model", b"\xff" * 100])
def test_a_damaged_model_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"model\.safetensors is not a readable model"):
        load(path)


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("values", "finite"),
    [
        ([1.0, -2.0], True),
        ([3e38, 3e38], True),  # though their sum is not
        ([1.0, torch.nan], False),
        ([torch.inf, -torch.inf], False),
        ([], True),
    ],
)
def test_what_is_not_finite_is_found(values: list[float], finite: bool) -> None:
    tensors = {"a": torch.zeros(2), "b": torch.tensor(values)}
    assert all_finite(tensors) is finite
