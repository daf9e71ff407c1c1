import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from melisma.errors import DataError
from melisma.learning.formats import (
    Bytes,
    cifar_examples,
    cifar_set,
    csv_examples,
    holds_cifar,
    holds_idx,
    idx_examples,
    read_idx,
)

IMAGES = np.arange(3 * 784, dtype=np.uint8).reshape(3, 28, 28)
LABELS = np.array([7, 0, 9], dtype=np.uint8)


def idx(values: Bytes) -> bytes:
    header = struct.pack(f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return header + values.tobytes()


def cifar(labels: list[int]) -> bytes:
    return b"".join(bytes([y]) + bytes([y + 1]) * 3072 for y in labels)


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.file"
        path.write_bytes(content)
        return path

    return write


Write = Callable[[bytes], Path]


@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
def test_idx_is_read_raw_and_gzipped(
    file: Write, wrap: Callable[[bytes], bytes]
) -> None:
    x, y = idx_examples(file(wrap(idx(IMAGES))), file(wrap(idx(LABELS))))
    assert x.shape == (3, 1, 28, 28)
    np.testing.assert_array_equal(x[:, 0], IMAGES)
    assert y.tolist() == [7, 0, 9]


@given(st.integers(1, 4).flatmap(lambda n: arrays(np.uint8, (n, 28, 28))))
def test_idx_comes_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, images: Bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "images"
    path.write_bytes(idx(images))
    np.testing.assert_array_equal(read_idx(path, (28, 28)), images)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"begins with \[\], expected \[00 00 08 03\]"),
        (b"<html>404</html>", r"begins with \[3c 68 74 6d\]"),
        (b"\0\0\x0d" + idx(IMAGES)[3:], "IDX type 0x0d, expected 0x08"),
        (idx(LABELS), "has 1 dimensions, expected 3"),
        (idx(IMAGES)[:10], "ends after 10 bytes, inside its header of 16"),
        (idx(IMAGES[:, 1:]), "holds 3 × 27 × 28 values, expected N × 28 × 28"),
        (idx(IMAGES[:0]), "holds 0 × 28 × 28 values, expected .* N above 0"),
        (idx(IMAGES)[:-1], "3 × 28 × 28 values, but 2351 bytes .* not 2352"),
        (idx(IMAGES) + b"\0", "3 × 28 × 28 values, but 2353 bytes .* not 2352"),
    ],
)
def test_a_damaged_idx_file_is_named_with_its_numbers(
    file: Write, content: bytes, message: str
) -> None:
    path = file(content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path, (28, 28))
    assert str(path) in str(caught.value)


def test_every_shortened_idx_file_is_refused(file: Write) -> None:
    whole = idx(IMAGES[:1])
    for length in range(len(whole)):
        with pytest.raises(DataError):
            read_idx(file(whole[:length]), (28, 28))


ZIPPED = gzip.compress(idx(IMAGES), mtime=0)


@pytest.mark.parametrize(
    "content",
    [
        ZIPPED[:-20],
        ZIPPED[:2],
        ZIPPED[:-8] + b"\0" * 8,
        ZIPPED[:30] + b"\xff" * 9 + ZIPPED[39:],
        ZIPPED + b"garbage",
    ],
    ids=["cut short", "magic alone", "wrong sum", "wrong bytes", "too long"],
)
def test_a_damaged_gzip_file_is_refused(file: Write, content: bytes) -> None:
    with pytest.raises(DataError, match="is a damaged gzip file"):
        read_idx(file(content), (28, 28))


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent cannot be read: No such file"):
        read_idx(tmp_path / "absent", ())


def test_images_and_labels_must_be_equally_many(file: Write) -> None:
    with pytest.raises(DataError, match=r"holds 3 images and .* holds 2 labels"):
        idx_examples(file(idx(IMAGES)), file(idx(LABELS[:2])))


def test_a_label_out_of_range_is_named(file: Write) -> None:
    labels = np.array([1, 10, 3], dtype=np.uint8)
    with pytest.raises(DataError, match=r"label of row 1 is 10, expected 0 to 9"):
        idx_examples(file(idx(IMAGES)), file(idx(labels)))


def test_an_idx_set_is_there_when_all_four_files_are(tmp_path: Path) -> None:
    for name in ("train-images-idx3", "train-labels-idx1.gz", "t10k-images-idx3.gz"):
        stem, dot, end = name.partition(".")
        (tmp_path / f"{stem}-ubyte{dot}{end}").touch()
        assert not holds_idx(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").touch()
    assert holds_idx(tmp_path)


def test_cifar_rows_are_a_label_and_three_planes(file: Write) -> None:
    row = bytes([6]) + b"r" * 1024 + b"g" * 1024 + b"b" * 1024
    x, y = cifar_examples(file(row + cifar([2])))
    assert x.shape == (2, 3, 32, 32)
    assert bytes(x[0, :, 31, 31]) == b"rgb"
    assert y.tolist() == [6, 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds 0 bytes"),
        (cifar([1, 2])[:-1], "holds 6145 bytes, .* rows of 3073 bytes"),
        (cifar([1, 12]), "label of row 1 is 12, expected 0 to 9"),
    ],
)
def test_a_damaged_cifar_batch_is_refused(
    file: Write, content: bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        cifar_examples(file(content))


def test_cifar_works_with_the_batches_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "data_batch_4.bin").write_bytes(cifar([4, 5]))
    assert not holds_cifar(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(cifar([9]))
    assert holds_cifar(tmp_path)
    (tmp_path / "data_batch_2.bin").write_bytes(cifar([2]))
    train_x, train_y, _, test_y = cifar_set(tmp_path)
    assert (train_y.tolist(), test_y.tolist()) == ([2, 4, 5], [9])
    assert train_x[:, 0, 0, 0].tolist() == [3, 5, 6]


def test_csv_rows_are_pixels_and_a_label(file: Write) -> None:
    lines = [",".join(map(str, [*IMAGES[i].flat, LABELS[i]])) for i in range(3)]
    x, y = csv_examples(file(gzip.compress("\n".join([*lines, ""]).encode())))
    np.testing.assert_array_equal(x[:, 0], IMAGES)
    assert y.tolist() == [7, 0, 9]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "holds 0 values"),
        (b"1,2,3\n", "holds 3 values, .* rows of 784 pixels and a label"),
        (b"1,two,3\n", "is not a table of whole numbers"),
        (b"0," * 784 + b"11\n", "label of row 0 is 11"),
    ],
)
def test_a_damaged_table_is_refused(file: Write, text: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        csv_examples(file(text))
