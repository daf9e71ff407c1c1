from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from melisma.errors import DataError
from melisma.learning.losses import numbers
from melisma.learning.samples import (
    Arrays,
    Batch,
    Field,
    Items,
    Part,
    Samples,
    Transformed,
    fields_of,
    joined,
    length,
    pairs,
    samples_of,
    transformed,
)

X = np.arange(40, dtype=np.float32).reshape(10, 2, 2)
Y = np.arange(10) % 3


def on_disk(folder: Path, array: Any, mode: Any) -> Any:
    np.save(folder / "array.npy", array)
    return np.load(folder / "array.npy", mmap_mode=mode)


def assert_same(one: Batch, other: Batch) -> None:
    assert list(one) == list(other)
    for name, value in one.items():
        assert value.dtype == other[name].dtype
        assert torch.equal(value, other[name])


ROWS: list[Any] = [
    slice(None),
    slice(2, 5),
    slice(0, 0),
    np.array([7, 0, 7]),
    np.array([], dtype=np.int64),
    torch.tensor([7, 0, 7]),
]


class Squares:
    """A map-style data set of mappings."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"x": X[place], "y": Y[place]}


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_every_kind_of_samples_gives_the_same_rows(rows: Any, tmp_path: Path) -> None:
    plain = pairs(torch.from_numpy(X), torch.from_numpy(Y))
    kinds: list[Samples] = [
        Arrays({"x": X, "y": Y}),
        Arrays({"x": on_disk(tmp_path, X, "r"), "y": Y}),
        Items(Squares()),
        Items([(X[i], Y[i]) for i in range(10)]),
        Items(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))),
        Part(pairs(X[::-1].copy(), Y[::-1].copy()), np.arange(9, -1, -1)),
        Transformed(plain, lambda batch: batch),
    ]
    for samples in kinds:
        assert len(samples) == 10
        assert_same(samples[rows], plain[rows])


def test_a_data_set_without_items_gives_no_rows() -> None:
    assert Items([])[:] == {}
    with pytest.raises(DataError, match="there are no samples"):
        fields_of(Items([]))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every file were too large for the memory."""
    monkeypatch.setattr("melisma.learning.samples.MAPPED_BYTES", 0)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_files_are_read_where_they_lie_and_never_written(
    mode: str, order: Any, tmp_path: Path
) -> None:
    file = on_disk(tmp_path, np.asarray(X, order=order), mode)
    before = (tmp_path / "array.npy").read_bytes()
    samples = Arrays({"x": file})
    assert not samples.in_memory
    assert torch.equal(samples[:]["x"], torch.from_numpy(X))
    if mode == "r":
        samples[:]["x"].zero_()
        assert (tmp_path / "array.npy").read_bytes() == before


def test_a_part_of_a_file_is_read(tmp_path: Path) -> None:
    file = on_disk(tmp_path, X, "r")
    assert torch.equal(Arrays({"x": file[2:6]})[:]["x"], torch.from_numpy(X[2:6]))
    assert torch.equal(Arrays({"x": file[:, 1]})[:]["x"], torch.from_numpy(X[:, 1]))


@pytest.mark.usefixtures("small")
def test_what_is_on_disk_is_transformed_when_it_is_asked_for(tmp_path: Path) -> None:
    asked = []

    def doubled(batch: Batch) -> Batch:
        asked.append(length(batch))
        return {name: 2 * value for name, value in batch.items()}

    here = transformed(Arrays({"x": X}), doubled)
    assert asked == [10]
    there = transformed(Arrays({"x": on_disk(tmp_path, X, "r")}), doubled)
    assert asked == [10]
    assert torch.equal(there[2:5]["x"], here[2:5]["x"])
    assert asked == [10, 3]


def test_a_part_of_a_part_has_its_rows() -> None:
    inner = Part(pairs(X, Y), np.array([8, 6, 4, 2]))
    assert Part(inner, np.array([3, 0]))[:]["y"].tolist() == [Y[2], Y[8]]


def test_fields_are_types_and_shapes_as_they_are_stored() -> None:
    samples = Arrays({"image": np.zeros((2, 3, 4), np.uint8), "label": Y[:2]})
    assert fields_of(samples) == {
        "image": Field("uint8", (3, 4)),
        "label": Field("int64", ()),
    }
    assert Field("bfloat16", (3, 4)).nbytes == 24
    assert Field("bool", ()).nbytes == 1


def test_batches_are_joined_in_their_order() -> None:
    samples = pairs(X, Y)
    assert_same(joined([samples[:3], samples[3:3], samples[3:]]), samples[:])


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"x": X, "y": Y[:9]},
        {"x": np.array(1.0)},
        {"x": np.array(["a", "b"])},
        {"x": np.array([{}], dtype=object)},
        {"x": np.zeros(2, ">f4")},
    ],
    ids=str,
)
def test_arrays_that_are_no_samples_are_named(arrays: Any) -> None:
    with pytest.raises(DataError, match=r"arrays? of"):
        Arrays(arrays)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([X[0]], "an item of the data set is a ndarray"),
        ([(1, 2, 3)], "an item of the data set is a tuple"),
        ([(X[0], 1), (X[0, 0], 1)], "differ in names, types or shapes"),
        ([{"x": 1}, {"y": 1}], "differ in names, types or shapes"),
        ([("a word", 1)], "data set is no numbers"),
    ],
    ids=str,
)
def test_items_that_are_no_samples_are_named(items: list[Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        Items(items)[:]


def test_samples_are_made_of_arrays_and_of_data_sets() -> None:
    made = samples_of({"x": X, "y": Y})
    assert_same(made[:], pairs(X, Y)[:])
    assert samples_of(made) is made
    assert_same(samples_of(Squares())[:], made[:])
    with pytest.raises(DataError, match="samples cannot be a int"):
        samples_of(3)


def test_a_model_takes_numbers_whole_numbers_and_truth_values() -> None:
    batch = {
        "x": torch.tensor([0, 51, 255], dtype=torch.uint8),
        "y": torch.tensor([0, 9, 255], dtype=torch.uint8),
        "tokens": torch.tensor([1, 2, 3], dtype=torch.int32),
        "half": torch.tensor([0.5, 1, 2], dtype=torch.bfloat16),
        "double": torch.tensor([0.5, 1, 2], dtype=torch.float64),
        "mask": torch.tensor([True, False, True]),
    }
    ready = numbers(batch)
    torch.testing.assert_close(ready["x"], torch.tensor([0, 0.2, 1]))
    assert ready["y"].tolist() == [0, 9, 255]
    assert ready["half"].tolist() == ready["double"].tolist() == [0.5, 1, 2]
    assert {name: value.dtype for name, value in ready.items()} == {
        "x": torch.float32,
        "y": torch.int64,
        "tokens": torch.int64,
        "half": torch.float32,
        "double": torch.float32,
        "mask": torch.bool,
    }
    assert batch["x"].tolist() == [0, 51, 255]
