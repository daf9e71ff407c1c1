from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from melisma.errors import ConfigError, DataError
from melisma.learning.files import check_labels, read, split
from melisma.registry import reference


def returning(value: Any) -> str:
    """``module:function`` of a function that returns ``value``."""

    def data() -> Any:
        return value

    return reference(data)


def test_an_unknown_form_is_told_what_is_possible(tmp_path: Path) -> None:
    (tmp_path / "set.mat").write_text("")
    with pytest.raises(
        ConfigError, match=r"set\.mat is of no known form: give \.npz, "
    ):
        read(tmp_path / "set.mat")
    with pytest.raises(DataError, match=r"there is no .*set\.csv: give \.npz, \.npy, "):
        read(tmp_path / "set.csv")


def test_the_home_folder_is_known(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.csv").write_text("a,b\n1,9\n")
    found = read("~/a.csv")
    assert isinstance(found, dict)
    with pytest.raises(DataError, match=r"~/a\.csv, line 2: y is class 9"):
        check_labels(found["y"], 2, "~/a.csv")


UNREADABLE = Path("/proc/self/mem")  # even for root


@pytest.mark.skipif(not UNREADABLE.exists(), reason="needs /proc")
@pytest.mark.parametrize("file", ["a.csv", "a.npy", "a.npz"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, file: str) -> None:
    (tmp_path / file).symlink_to(UNREADABLE)
    with pytest.raises(DataError, match=rf"{file} cannot be read: "):
        read(tmp_path / file)


def test_columns_are_for_tables(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    for place in (tmp_path, tmp_path / "x.npy", returning({"x": np.zeros(3)})):
        with pytest.raises(ConfigError, match="is no table: `target` and `features`"):
            read(place, target="price")


def test_a_function_in_the_current_folder_gives_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_arrays_of_mine.py").write_text(
        "import numpy as np, torch\n"
        "def load():\n"
        "    return {'x': np.arange(4.0), 'y': torch.arange(4)}\n"
    )
    monkeypatch.chdir(tmp_path)
    found = read("own_arrays_of_mine:load")
    assert isinstance(found, dict)
    assert found["x"].tolist() == [0, 1, 2, 3]
    assert isinstance(found["y"], torch.Tensor)
    with pytest.raises(ConfigError, match="did you mean 'load'"):
        read("own_arrays_of_mine:laod")
    with pytest.raises(ConfigError, match="there is no module 'nobodys_module'"):
        read("nobodys_module:load")


def test_a_function_may_give_a_map_style_data_set() -> None:
    whole = torch.utils.data.TensorDataset(torch.zeros(3, 2))
    assert read(returning(whole)) is whole
    with pytest.raises(DataError, match="returns a data set without samples"):
        read(returning([]))


@pytest.mark.parametrize("value", [None, 3, (np.zeros(3), np.zeros(3)), np.zeros(3)])
def test_a_function_that_gives_anything_else_is_told_so(value: Any) -> None:
    kind = type(value).__name__
    with pytest.raises(DataError, match=f"returns a {kind}: return arrays by name, e"):
        read(returning(value))


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({}, "holds no arrays"),
        ({"x": [1, 2]}, "x is a list: give a numpy array or a tensor"),
        ({3: np.zeros(3)}, "3 is no name of an array"),
        (
            {"x": torch.zeros(3, dtype=torch.complex64)},
            r"x is of type torch\.complex64",
        ),
        ({"x": torch.zeros(())}, "x is one number"),
        ({"x": torch.zeros(3), "y": np.zeros(2)}, "x has 3 samples and y has 2"),
        ({"x": torch.tensor([[0.0], [torch.nan]])}, r"x\[1, 0\] is nan"),
        ({"x": torch.tensor([torch.inf]).bfloat16()}, r"x\[0\] is inf"),
    ],
)
def test_arrays_of_a_function_are_checked(arrays: Any, fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        read(returning(arrays))


def test_bfloat16_passes() -> None:
    x = torch.ones(3, 2).bfloat16()
    found = read(returning({"x": x}))
    assert isinstance(found, dict)
    assert found["x"] is x


@given(
    labels=st.lists(st.integers(-3, 300), min_size=1),
    classes=st.integers(1, 301) | st.none(),
    as_tensor=st.booleans(),
)
def test_labels_are_from_0_to_one_less_than_the_classes(
    labels: list[int], classes: int | None, as_tensor: bool
) -> None:
    most = max(labels) if classes is None else classes - 1
    wrong = [n for n, label in enumerate(labels) if not 0 <= label <= most]
    y = torch.tensor(labels) if as_tensor else np.array(labels)
    if not wrong:
        return check_labels(y, classes, "set.npz")
    at = wrong[0]
    with pytest.raises(DataError, match=rf"y\[{at}\] is class {labels[at]}: give cla"):
        check_labels(y, classes, "set.npz")
    return None


def test_labels_of_every_pixel_are_checked() -> None:
    masks = np.zeros((3, 4, 4), np.uint8)
    masks[2, 1, 3] = 44
    with pytest.raises(DataError, match=r"y\[2, 1, 3\] is class 44: .* from 0 to 9"):
        check_labels(masks, 10, "masks")


@pytest.mark.parametrize("y", [np.zeros(3), torch.zeros(3), torch.zeros(3).bfloat16()])
def test_classes_are_whole_numbers(y: Any) -> None:
    with pytest.raises(
        DataError, match=r"y is of type .*: give classes as whole number"
    ):
        check_labels(y, None, "set.npz")


@given(
    samples=st.integers(2, 500),
    share=st.floats(0.001, 0.999),
    seed=st.integers(0, 2**32),
)
def test_a_split_has_every_sample_once(samples: int, share: float, seed: int) -> None:
    arrays = {"x": np.zeros((samples, 2)), "y": np.zeros(samples)}
    train, test = split(arrays, share, seed)
    assert sorted([*train, *test]) == list(range(samples))
    assert len(test) == min(max(round(share * samples), 1), samples - 1)
    again = split(range(samples), share, seed)
    assert np.array_equal(train, again[0])
    assert np.array_equal(test, again[1])


def test_a_split_is_the_same_on_every_machine() -> None:
    assert split(range(20), 0.2, 7)[1].tolist() == [3, 6, 11, 12]


def test_seeds_split_differently() -> None:
    tests = {tuple(split(range(100), 0.1, seed)[1]) for seed in range(10)}
    assert len(tests) == 10


@pytest.mark.parametrize("share", [0, 1, -0.2, 1.5, float("nan")])
def test_a_share_is_between_0_and_1(share: float) -> None:
    with pytest.raises(ConfigError, match=r"give one between 0 and 1, e\.g\. 0\.2"):
        split(range(10), share, 0)


def test_one_sample_cannot_be_split() -> None:
    with pytest.raises(DataError, match="1 sample cannot be split: give at least 2"):
        split([0], 0.5, 0)
