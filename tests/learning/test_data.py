import gzip
import hashlib
import io
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler
from http.server import ThreadingHTTPServer as Server
from pathlib import Path

import numpy as np
import pytest
import torch

from melisma.errors import ConfigError, DataError
from melisma.learning import data, samples
from melisma.learning.data import Dataset, load, load_own, save_own
from melisma.learning.formats import CIFAR_FILES, IDX_FILES, Bytes

REAL = os.environ.get("MELISMA_DATA", "")


def needs_real(name: str) -> pytest.MarkDecorator:
    there = bool(REAL) and data.SOURCES[name].holds(Path(REAL, name))
    reason = f"needs the real files: set MELISMA_DATA to a folder with {name}/"
    return pytest.mark.skipif(not there, reason=reason)


def idx(values: Bytes) -> bytes:
    header = struct.pack(f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return header + values.tobytes()


def made_up_files(grey: int = 255) -> dict[str, bytes]:
    """Four IDX files in small: six training images of one grey, two test images."""
    files = []
    for n in (6, 2):
        images = np.full((n, 28, 28), grey, dtype=np.uint8)
        files += [idx(images), idx(np.arange(n, dtype=np.uint8))]
    zipped = (gzip.compress(file, mtime=0) for file in files)
    return dict(zip(IDX_FILES, zipped, strict=True))


def put(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def grey_of(dataset: Dataset) -> float:
    return float(dataset.train[:1]["x"][0, 0, 0, 0])


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture(autouse=True)
def no_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deaf_port: int) -> None:
    """No data set is anywhere, and every home is unreachable."""
    monkeypatch.delenv("MELISMA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    for name, source in data.SOURCES.items():
        away = replace(source, home=f"http://127.0.0.1:{deaf_port}/")
        monkeypatch.setitem(data.SOURCES, name, away)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class CutShort(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 400)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address at which its files are served."""
    folder = tmp_path / "served"
    folder.mkdir()
    with Server(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def publish(
    monkeypatch: pytest.MonkeyPatch, name: str, home: str, files: dict[str, bytes]
) -> None:
    """Make ``files`` the official archives of a data set, with their true MD5."""
    sums = {file: md5(content) for file, content in files.items()}
    source = replace(data.SOURCES[name], home=home, md5=sums)
    monkeypatch.setitem(data.SOURCES, name, source)


def test_the_embedded_set_needs_nothing() -> None:
    dataset = load("mnist-5k")
    assert dataset.train[:]["x"].shape == (4000, 1, 28, 28)
    assert dataset.test[:]["x"].shape == (1000, 1, 28, 28)
    assert dataset.train[:]["x"].dtype == torch.uint8
    assert dataset.train[:]["y"].dtype == torch.uint8
    assert dataset.train[:]["x"].min().item() == 0
    assert dataset.train[:]["x"].max().item() == 255


def test_the_embedded_set_is_stratified_and_mixed() -> None:
    dataset = load("mnist-5k")
    assert dataset.train[:]["y"].bincount().tolist() == [400] * 10
    assert dataset.test[:]["y"].bincount().tolist() == [100] * 10
    assert dataset.train[:]["y"][:500].bincount().min() > 25
    assert dataset.train[:]["y"][::10].bincount().min() > 20


def test_the_embedded_split_is_the_same_everywhere() -> None:
    dataset = load("mnist-5k")
    assert dataset.train[:]["y"][:8].tolist() == [1, 1, 7, 0, 5, 8, 4, 7]
    again = load("mnist-5k")
    assert torch.equal(dataset.train[:]["x"], again.train[:]["x"])
    assert torch.equal(dataset.test[:]["y"], again.test[:]["y"])


def test_who_changes_the_embedded_set_changes_only_its_own() -> None:
    mine, before = load("mnist-5k"), load("mnist-5k").train[:]["x"].clone()
    mine.train[:]["x"].zero_()
    assert not mine.train[:]["x"].any()
    assert torch.equal(load("mnist-5k").train[:]["x"], before)


def test_no_embedded_test_image_is_trained_on() -> None:
    dataset = load("mnist-5k")
    trained = {image.numpy().tobytes() for image in dataset.train[:]["x"]}
    assert not any(image.numpy().tobytes() in trained for image in dataset.test[:]["x"])


def test_another_embedded_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.zeros((3, 1, 28, 28), dtype=np.uint8), np.zeros(3, dtype=np.uint8)
    monkeypatch.setattr(data, "csv_examples", lambda _: images)
    data._embedded_images.cache_clear()
    with pytest.raises(
        DataError, match=r"holds \[3, 0, .*\] images per class, not 500"
    ):
        load("mnist-5k")


@pytest.mark.slow
def test_the_embedded_set_loads_without_pandas_and_sklearn() -> None:
    program = (
        "import sys; from melisma.learning.data import load; load('mnist-5k');"
        "print({'pandas', 'sklearn'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "set()"


def test_a_set_knows_its_labels_and_the_size_of_a_sample(tmp_path: Path) -> None:
    dataset = load("mnist", put(tmp_path, made_up_files()))
    assert dataset.labels().tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.sample_bytes == 784
    assert dataset.input_shape == (1, 28, 28)
    assert (dataset.train[:]["x"] == 255).all()


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"'fashion_mnist'.* 'fashion-mnist'.*mnist-5k"
    ):
        load("fashion_mnist")


def test_a_folder_of_its_own_comes_before_the_flat_one(tmp_path: Path) -> None:
    put(tmp_path / "mnist", made_up_files(grey=1))
    put(tmp_path, made_up_files(grey=2))
    assert grey_of(load("mnist", tmp_path)) == 1
    assert grey_of(load("fashion-mnist", tmp_path)) == 2


def test_folder_then_cache_and_the_variable_only_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "named" / "mnist", made_up_files(grey=1))
    monkeypatch.setenv("MELISMA_DATA", str(put(tmp_path / "env", made_up_files(2))))
    put(tmp_path / "cache" / "melisma" / "mnist", made_up_files(grey=3))
    assert grey_of(load("mnist", tmp_path / "named")) == 1
    assert grey_of(load("mnist")) == 2
    assert grey_of(load("mnist", tmp_path / "lacking")) == 3
    monkeypatch.delenv("MELISMA_DATA")
    assert grey_of(load("mnist")) == 3


def test_a_home_in_the_folder_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path / "sets" / "mnist", made_up_files(grey=9))
    assert grey_of(load("mnist", Path("~/sets"))) == 9


def test_without_xdg_the_cache_is_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path / ".cache" / "melisma" / "mnist", made_up_files(grey=4))
    assert grey_of(load("mnist")) == 4


def test_a_damaged_file_is_an_error_not_a_reason_to_look_on(tmp_path: Path) -> None:
    files = made_up_files() | {"t10k-labels-idx1-ubyte.gz": b"\0\0\x08\x01"}
    put(tmp_path / "cache" / "melisma" / "mnist", made_up_files())
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz ends after 4"):
        load("mnist", put(tmp_path / "named", files))


def test_nothing_anywhere_is_told_in_one_line(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(DataError) as caught:
        load("mnist", tmp_path / "named")
    assert time.monotonic() - began < 2.0
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        'data set "mnist" is not in',
        f"{tmp_path}/named/mnist, {tmp_path}/named, {tmp_path}/cache/melisma/mnist",
        "Connection refused",
        "train-images-idx3-ubyte.gz",
        "MELISMA_DATA",
        '"mnist-5k" needs no download',
    ):
        assert part in message


def test_a_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        home = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        publish(monkeypatch, "mnist", home, made_up_files())
        with pytest.raises(DataError, match="timed out"):
            load("mnist")


def test_a_download_is_kept_in_the_cache(
    tmp_path: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, home = served
    put(folder, made_up_files(grey=77))
    publish(monkeypatch, "mnist", home, made_up_files(grey=77))
    assert grey_of(load("mnist", tmp_path / "lacking")) == 77
    shutil.rmtree(folder)
    assert grey_of(load("mnist")) == 77
    cached = tmp_path / "cache" / "melisma" / "mnist"
    assert sorted(path.name for path in cached.iterdir()) == sorted(IDX_FILES)


def test_a_wrong_checksum_is_told_and_nothing_kept(
    tmp_path: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, home = served
    good, bad = made_up_files(grey=1), made_up_files(grey=2)
    put(folder, bad)
    publish(monkeypatch, "mnist", home, good)
    sums = f"has MD5 {md5(bad[IDX_FILES[0]])}, expected {md5(good[IDX_FILES[0]])}"
    with pytest.raises(DataError, match=sums):
        load("mnist")
    assert not (tmp_path / "cache").exists()


def test_a_missing_archive_is_told(
    served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, "mnist", served[1], made_up_files())
    with pytest.raises(DataError, match=r"ubyte\.gz answers 404 File not found"):
        load("mnist")


def test_a_transfer_cut_short_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(("127.0.0.1", 0), CutShort) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        home = f"http://127.0.0.1:{server.server_port}/"
        publish(monkeypatch, "mnist", home, made_up_files())
        with pytest.raises(DataError, match=r"400 of 1000 bytes|IncompleteRead"):
            load("mnist")
        server.shutdown()
        thread.join()


def test_a_download_has_a_size_limit(
    served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, home = served
    put(folder, made_up_files())
    publish(monkeypatch, "mnist", home, made_up_files())
    monkeypatch.setattr(data, "LARGEST_BYTES", 20)
    with pytest.raises(DataError, match="sends more than 20 bytes"):
        load("mnist")


def test_a_cache_that_cannot_be_written_is_told(
    tmp_path: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, home = served
    put(folder, made_up_files())
    publish(monkeypatch, "mnist", home, made_up_files())
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match="Not a directory"):
        load("mnist")


def cifar_archive(*, without: str = "", link: str = "") -> bytes:
    """A small CIFAR-10 tar file, and beside the batches what should not come out."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for label, file in enumerate(["../escaped", *CIFAR_FILES, "readme.html"]):
            if file == without:
                continue
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{file}")
            if file == link:
                member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(member)
                continue
            row = bytes([label]) + bytes(3072)
            member.size = len(row)
            tar.addfile(member, io.BytesIO(row))
    return packed.getvalue()


def publish_cifar(
    monkeypatch: pytest.MonkeyPatch, served: tuple[Path, str], content: bytes
) -> None:
    archive = {"cifar-10-binary.tar.gz": content}
    put(served[0], archive)
    publish(monkeypatch, "cifar10", served[1], archive)


def test_only_the_batches_come_out_of_cifars_archive(
    tmp_path: Path, served: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_cifar(monkeypatch, served, cifar_archive())
    dataset = load("cifar10")
    assert dataset.train[:]["y"].tolist() == [1, 2, 3, 4, 5]
    assert dataset.test[:]["y"].tolist() == [6]
    assert dataset.sample_bytes == 3072
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == sorted(CIFAR_FILES)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (cifar_archive(without="data_batch_3.bin"), "'.*data_batch_3.bin' not found"),
        (cifar_archive(link="data_batch_3.bin"), "data_batch_3.bin is not a plain"),
        (b"no archive", "is not CIFAR-10's archive"),
        (cifar_archive()[:200], "is not CIFAR-10's archive"),
    ],
    ids=["a batch lacking", "a link", "no archive", "cut short"],
)
def test_a_wrong_cifar_archive_leaves_nothing_behind(
    tmp_path: Path,
    served: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    message: str,
) -> None:
    publish_cifar(monkeypatch, served, content)
    with pytest.raises(DataError, match=message):
        load("cifar10")
    assert not (tmp_path / "cache").exists()


def test_fashion_is_not_taken_for_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.arange(6, dtype=np.uint8)
    monkeypatch.setitem(data._TRAIN_LABELS_MD5, md5(labels.tobytes()), "fashion-mnist")
    put(tmp_path, made_up_files())
    assert load("fashion-mnist", tmp_path).name == "fashion-mnist"
    message = (
        f'{re.escape(str(tmp_path))} holds the files of "fashion-mnist", not of "mn'
    )
    with pytest.raises(DataError, match=message):
        load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("name", "sum_of_pixels"),
    [
        pytest.param("mnist", 1567298545, marks=needs_real("mnist")),
        pytest.param("fashion-mnist", 3431114169, marks=needs_real("fashion-mnist")),
    ],
)
def test_the_real_idx_sets_load_whole_and_fast(name: str, sum_of_pixels: int) -> None:
    began = time.monotonic()
    dataset = load(name, Path(REAL))
    assert time.monotonic() - began < 5.0
    assert dataset.train[:]["x"].shape == (60_000, 1, 28, 28)
    assert dataset.test[:]["x"].shape == (10_000, 1, 28, 28)
    assert set(dataset.labels().tolist()) == set(range(10))
    assert dataset.train[:]["x"].sum(dtype=torch.int64) == sum_of_pixels


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs_real(n)) for n in ("mnist", "fashion-mnist")]
)
def test_a_real_set_named_as_the_other_is_refused(name: str) -> None:
    other = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}[name]
    with pytest.raises(DataError, match=f'holds the files of "{name}"'):
        load(other, Path(REAL, name))


@needs_real("mnist")
def test_the_embedded_images_are_mnists() -> None:
    digits = load("mnist", Path(REAL)).train[:5848]["x"]
    known = {image.numpy().tobytes() for image in digits}
    embedded = load("mnist-5k")
    images = [*embedded.train[:]["x"], *embedded.test[:]["x"]]
    assert all(image.numpy().tobytes() in known for image in images)


@needs_real("cifar10")
def test_the_real_cifar10_loads() -> None:
    dataset = load("cifar10", Path(REAL))
    batches = len(list(Path(REAL, "cifar10").glob("data_batch_?.bin")))
    assert dataset.train[:]["x"].shape == (10_000 * batches, 3, 32, 32)
    assert dataset.test[:]["y"].bincount().tolist() == [1000] * 10
    assert set(dataset.labels().tolist()) == set(range(10))


def write_own(folder: Path, x: object, y: object) -> Path:
    np.save(folder / "x.npy", np.asarray(x))
    np.save(folder / "y.npy", np.asarray(y))
    return folder


def test_own_data_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    digits = load("mnist-5k")
    save_own(digits.train[:7], tmp_path)
    found = load_own(tmp_path)
    assert torch.equal(found.train[:]["x"], digits.train[:7]["x"])
    assert torch.equal(found.train[:]["y"], digits.train[:7]["y"])
    assert len(found.test) == 0
    assert found.fields == digits.fields


def test_own_images_without_a_channel_are_given_one(tmp_path: Path) -> None:
    found = load_own(write_own(tmp_path, np.zeros((2, 3, 4), np.uint8), [1, 0]))
    assert found.train[:]["x"].shape == (2, 1, 3, 4)
    assert found.train[:]["x"].dtype == torch.uint8
    assert found.train[:]["y"].tolist() == [1, 0]


def test_own_data_may_be_any_numbers(tmp_path: Path) -> None:
    x = np.linspace(-2.0, 300.0, 24).reshape(2, 3, 4)
    found = load_own(write_own(tmp_path, x, [1, 0]))
    assert found.train[:]["x"].tolist() == x.tolist()
    assert found.train[:]["y"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((2, 3, 4), np.uint8), [0], "x has 2 samples and y has 1"),
        (np.zeros((0, 3, 4), np.uint8), np.zeros(0, int), "samples|shape"),
        (np.full((2, 3, 4), np.nan), [0, 1], r"x\[0, 0, 0\] is nan"),
    ],
)
def test_own_data_that_is_none_is_named(
    tmp_path: Path, x: object, y: object, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        load_own(write_own(tmp_path, x, y))


def test_own_data_is_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}]), allow_pickle=True)
    np.save(tmp_path / "y.npy", np.array([0]))
    with pytest.raises(DataError, match="never unpickled"):
        load_own(tmp_path)


def test_a_folder_without_data_says_what_belongs_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"put x\.npy and y\.npy there"):
        load_own(tmp_path)


@pytest.mark.parametrize("test", [0.25, "test.csv"])
def test_files_that_are_sorted_by_class_are_mixed(
    tmp_path: Path, test: float | str
) -> None:
    rows = [f"{i},{i // 100}" for i in range(400)]
    for name in ("train.csv", "test.csv"):
        (tmp_path / name).write_text("\n".join(["x,y", *rows]))
    place = test if isinstance(test, float) else tmp_path / test
    train = data.load_files(tmp_path / "train.csv", place, target="y").train
    found = train[:]["y"]
    assert len(set(found[:40].tolist())) == 4  # of neighbours, as in a shard
    assert sorted(set(found.tolist())) == [0, 1, 2, 3]
    again = data.load_files(tmp_path / "train.csv", place, target="y").train
    assert torch.equal(found, again[:]["y"])
    kept = train[:]["x"].flatten() // 100
    assert torch.equal(kept.long(), found.long())  # each with its own


def test_files_that_memory_does_not_hold_are_read_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "MAPPED_BYTES", 1)
    np.savez(tmp_path / "set.npz", x=np.arange(400.0, dtype="f4"), y=np.arange(400) % 2)
    train = data.load_files(tmp_path / "set.npz", 0.25).train
    assert (train[:]["x"].diff() > 0).all()
