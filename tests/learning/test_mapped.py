import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from tests.learning.reading import fault, refused

from melisma.errors import DataError
from melisma.learning.files import read

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
]
shapes = arrays.array_shapes(min_dims=1, max_dims=4, max_side=5)
any_array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: arrays.arrays(
        dtype,
        shapes,
        elements=arrays.from_dtype(
            np.dtype(dtype), allow_nan=False, allow_infinity=False
        ),
    )
)
in_one_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50
)


def same(found: Any, expected: NDArray[Any]) -> bool:
    kinds = (found.dtype, found.shape) == (expected.dtype, expected.shape)
    return kinds and bool(found.tobytes() == expected.tobytes())


@in_one_folder
@given(x=any_array, column_major=st.booleans())
def test_a_npy_file_comes_back_bit_for_bit_as_x(
    tmp_path: Path, x: NDArray[Any], column_major: bool
) -> None:
    np.save(tmp_path / "x.npy", np.asfortranarray(x) if column_major else x)
    found = read(tmp_path / "x.npy")
    assert isinstance(found, dict)
    assert list(found) == ["x"]
    assert isinstance(found["x"], np.memmap)
    assert same(found["x"], x)


@in_one_folder
@given(x=any_array, compressed=st.booleans(), column_major=st.booleans())
def test_a_npz_file_comes_back_bit_for_bit_under_its_names(
    tmp_path: Path, x: NDArray[Any], compressed: bool, column_major: bool
) -> None:
    save = np.savez_compressed if compressed else np.savez
    inputs = np.asfortranarray(x) if column_major else x
    save(tmp_path / "set.npz", tokens=inputs, y=np.arange(len(x)))
    found = read(tmp_path / "set.npz")
    assert isinstance(found, dict)
    assert list(found) == ["tokens", "y"]
    assert isinstance(found["tokens"], np.memmap) != compressed
    assert same(found["tokens"], x)
    assert same(found["y"], np.arange(len(x)))


def test_a_folder_has_an_array_for_each_npy_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 2), np.float32))
    np.save(tmp_path / "y.npy", np.array([1, 300, 2]))
    (tmp_path / "notes.txt").write_text("of other kinds")
    (tmp_path / "._x.npy").write_text("macOS leaves these")
    found = read(tmp_path)
    assert isinstance(found, dict)
    assert list(found) == ["x", "y"]
    assert found["y"].tolist() == [1, 300, 2]


def test_arrays_must_have_as_many_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", x=np.zeros((3, 2)), y=np.zeros(4))
    assert refused(tmp_path / "set.npz") == (
        f"{tmp_path / 'set.npz'}: x has 3 samples and y has 4: give as many in each, "
        "along the first axis"
    )


def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    bomb = np.array([{"any": "object"}, None])
    np.save(tmp_path / "x.npy", bomb, allow_pickle=True)
    assert "holds Python objects, which are never unpickled" in refused(
        tmp_path / "x.npy"
    )
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "set.npz", x=bomb)
        assert "x holds Python objects" in refused(tmp_path / "set.npz")


def test_a_bare_pickle_is_no_array(tmp_path: Path) -> None:
    bomb = np.array([{"any": "object"}])
    (tmp_path / "x.npy").write_bytes(bomb.dumps())
    assert "x.npy cannot be read: the magic string is not correct" in refused(
        tmp_path / "x.npy"
    )


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (np.zeros(3, complex), "x is of type complex128: give whole numbers"),
        (np.array(["a", "b"]), "x is of type <U1: give whole numbers"),
        (np.zeros(3, ">f4"), "x is of type >f4: give whole numbers"),
        (np.zeros(3, "datetime64[s]"), r"x is of type datetime64\[s\]: give whole"),
        (np.zeros(3, "i4,f4"), "x is of type .*: give whole numbers"),
        (np.float32(3), "x is one number: give samples along a first axis"),
        (np.zeros((0, 4)), r"x is empty, its shape being \(0, 4\): give at least one"),
        (np.zeros((4, 0)), "x is empty"),
        (np.array([[1, 2], [3, np.nan]]), r"x\[1, 1\] is nan: fill in missing values"),
        (np.array([1, np.inf], np.float16), r"x\[1\] is inf: fill in"),
    ],
)
@pytest.mark.parametrize("file", ["x.npy", "stored.npz", "compressed.npz"])
def test_arrays_that_cannot_be_trained_on_are_refused(
    tmp_path: Path, file: str, x: NDArray[Any], reason: str
) -> None:
    if file == "x.npy":
        np.save(tmp_path / file, x)
    else:
        (np.savez if file == "stored.npz" else np.savez_compressed)(
            tmp_path / file, x=x
        )
    with pytest.raises(DataError, match=f"{file}: {reason}"):
        read(tmp_path / file)


def test_a_missing_value_far_into_a_large_array_is_found(tmp_path: Path) -> None:
    x = np.zeros((100_000, 64), np.float32)
    x[99_999, 7] = np.nan
    np.save(tmp_path / "x.npy", x)
    assert "x[99999, 7] is nan" in refused(tmp_path / "x.npy")


def test_faults_of_column_major_arrays_are_found_where_they_are(tmp_path: Path) -> None:
    x = np.zeros((5, 3, 2), order="F")
    x[4, 0, 1] = np.inf
    np.save(tmp_path / "x.npy", x)
    assert "x[4, 0, 1] is inf" in refused(tmp_path / "x.npy")


def test_a_name_must_be_one(tmp_path: Path) -> None:
    outside: dict[str, Any] = {"../x": np.zeros(3)}
    np.savez(tmp_path / "set.npz", **outside)
    assert "'../x' is no name of an array: give letters, digits and _" in refused(
        tmp_path / "set.npz"
    )


def test_a_zip_of_other_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "set.npz", "w") as file:
        file.writestr("photo.jpg", b"")
    assert "photo.jpg is no array: save it with np.savez" in refused(
        tmp_path / "set.npz"
    )
    with zipfile.ZipFile(tmp_path / "set.npz", "w"):
        pass
    assert "set.npz holds no arrays: give x, and y" in refused(tmp_path / "set.npz")


def test_a_file_that_was_cut_short_says_so(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((10, 10)))
    os.truncate(tmp_path / "x.npy", 500)
    assert refused(tmp_path / "x.npy") == (
        f"{tmp_path / 'x.npy'}: x was cut short: 372 of 800 bytes of a float64 array "
        "of shape (10, 10) are there: write it again"
    )


def whole_files() -> dict[str, bytes]:
    found = {}
    for file in ("x.npy", "stored.npz", "compressed.npz"):
        buffer = io.BytesIO()
        if file == "x.npy":
            np.save(buffer, np.arange(40.0))
        elif file == "stored.npz":
            np.savez(buffer, x=np.arange(40.0), y=np.arange(40))
        else:
            np.savez_compressed(buffer, x=np.arange(40.0), y=np.arange(40))
        found[file] = buffer.getvalue()
    return found


@pytest.mark.parametrize("file", whole_files())
@pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required")
def test_every_file_cut_short_is_refused(tmp_path: Path, file: str) -> None:
    content = whole_files()[file]
    for length in range(0, len(content), 3):
        (tmp_path / file).write_bytes(content[:length])
        assert file in refused(tmp_path / file)


@pytest.mark.parametrize("file", whole_files())
@pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required")
@in_one_folder
@given(data=st.data())
def test_a_damaged_file_raises_nothing_but_data_errors(
    tmp_path: Path, file: str, data: st.DataObject
) -> None:
    content = bytearray(whole_files()[file])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(
            st.integers(0, 255)
        )
    (tmp_path / file).write_bytes(content)
    assert "\n" not in fault(tmp_path / file)


PEAK = """
import sys
from melisma.learning.files import read, check_labels
def peak():  # not ru_maxrss, which counts what the parent had when it forked
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(l for l in lines if l.startswith("VmHWM")).split()[1])
before = peak()
arrays = read(sys.argv[1])
check_labels(arrays["y"], 10, sys.argv[1])
print(len(arrays["x"]), peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("column_major", [False, True])
def test_checking_two_gigabytes_takes_little_memory(
    tmp_path: Path, column_major: bool
) -> None:
    rows = 2**31 // 4096
    for name, dtype, shape in (
        ("x", np.float32, (rows, 1024)),
        ("y", np.int64, (rows,)),
    ):
        np.lib.format.open_memmap(
            tmp_path / f"{name}.npy", "w+", dtype, shape, column_major
        )
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    found, grown_bytes = map(int, done.stdout.split())
    assert found == rows
    assert grown_bytes < 150 * 2**20


SERVED = """
import sys
from melisma.learning import samples, shards
from melisma.learning.files import read
samples.MAPPED_BYTES, samples.RELEASED_BYTES = 1 << 20, 1 << 24
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * int(next(l for l in lines if l.startswith("VmHWM")).split()[1])
store = shards.ShardStore(samples.samples_of(read(sys.argv[1])), 1000)
before = peak()
for key in store.all():
    (shard,) = store.take([key])
    shard["x"].sum()
print(len(store.all()), peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_serving_all_of_a_large_set_takes_little_memory(tmp_path: Path) -> None:
    rows = 300_000  # of 1,024 bytes: 307 MB
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.uint8, (rows, 1024))
    done = subprocess.run(
        [sys.executable, "-c", SERVED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    found, grown_bytes = map(int, done.stdout.split())
    assert found == 300
    assert grown_bytes < 100 * 2**20
