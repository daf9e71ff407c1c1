import io
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.learning.reading import arrays_of, fault, refused

from melisma.errors import ConfigError
from melisma.learning import images
from melisma.learning.files import read

Image = pytest.importorskip("PIL.Image", reason="needs melisma[images]")

in_one_folder = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30
)


def put(path: Path, pixels: NDArray[np.uint8], mode: str | None = None) -> Path:
    """Write an image of height × width (× channels)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path)
    return path


def grey(level: int, height: int = 4, width: int = 3) -> NDArray[np.uint8]:
    return np.full((height, width), level, np.uint8)


@in_one_folder
@given(
    channels=st.sampled_from([1, 3, 4]),
    height=st.integers(1, 6),
    width=st.integers(1, 6),
    suffix=st.sampled_from([".png", ".tif", ".PNG"]),
    seed=st.integers(0, 99),
)
def test_images_come_back_pixel_for_pixel(
    tmp_path_factory: pytest.TempPathFactory,
    channels: int,
    height: int,
    width: int,
    suffix: str,
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("photos")
    shape = (5, height, width, channels)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    for n, (image, name) in enumerate(
        zip(pixels, ("dog", "cat", "cat", "eel", "dog"), strict=True)
    ):
        put(folder / name / f"{n}{suffix}", image[..., 0] if channels == 1 else image)
    found = arrays_of(folder)
    assert found["y"].tolist() == [0, 0, 1, 1, 2]
    assert found["y"].dtype == np.int64
    expected = pixels[[1, 2, 0, 4, 3]].transpose(0, 3, 1, 2)
    assert np.array_equal(found["x"], expected)
    assert found["x"].dtype == np.uint8


def test_large_sets_lie_in_a_file_that_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(6):
        put(tmp_path / "photos" / f"{n % 2}" / f"{n}.png", grey(n))
    in_memory = arrays_of(tmp_path / "photos")["x"]
    (tmp_path / "rooms").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "rooms"))
    monkeypatch.setattr(images, "IN_MEMORY_BYTES", 10)
    mapped = arrays_of(tmp_path / "photos")["x"]
    assert isinstance(mapped, np.memmap)
    assert not isinstance(in_memory, np.memmap)
    assert np.array_equal(mapped, in_memory)
    assert list((tmp_path / "rooms").iterdir()) == []


def test_no_room_for_images_is_told_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "cat" / "1.png", grey(1))
    monkeypatch.setattr(images, "IN_MEMORY_BYTES", 10)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert "12 bytes of images cannot be written to" in refused(tmp_path)
    assert "set TMPDIR to a folder with more room" in refused(tmp_path)


def test_folders_named_by_numbers_are_these_classes(tmp_path: Path) -> None:
    for name in ("10", "2", "9"):  # a device that has only some of the classes
        put(tmp_path / name / "a.png", grey(int(name)))
    found = arrays_of(tmp_path)
    assert found["y"].tolist() == [2, 9, 10]
    assert found["x"][:, 0, 0, 0].tolist() == [2, 9, 10]
    put(tmp_path / "02" / "a.png", grey(2))
    assert "folders 02, 10, 2, 9, of which two are the same number" in refused(tmp_path)


def test_hidden_files_and_notes_beside_the_classes_are_no_images(
    tmp_path: Path,
) -> None:
    put(tmp_path / "cat" / "1.png", grey(1))
    (tmp_path / "cat" / ".DS_Store").write_text("")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "README").write_text("")
    assert arrays_of(tmp_path)["y"].tolist() == [0]


def test_images_must_be_of_one_size_and_mode(tmp_path: Path) -> None:
    first = put(tmp_path / "cat" / "1.png", grey(1))
    other = put(tmp_path / "dog" / "2.png", grey(1, height=5))
    assert refused(tmp_path) == (
        f"{other} has 3 × 5 × 1 values, and {first} 3 × 4 × 1 (width × height × "
        "channels): bring all images to one size and mode"
    )
    put(other, np.zeros((4, 3, 3), np.uint8))
    assert f"{other} has 3 × 4 × 3 values" in refused(tmp_path)


@pytest.mark.parametrize("mode", ["1", "P", "LA"])
def test_a_mode_without_bytes_for_channels_is_refused(
    tmp_path: Path, mode: str
) -> None:
    path = put(tmp_path / "cat" / "1.png", grey(1), mode)
    assert f"{path} is of mode {mode}" in refused(tmp_path)
    assert "convert all images to one of L, RGB, RGBA" in refused(tmp_path)


def test_what_is_missing_or_misplaced_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path} holds no data: put x.npy and y.npy there" in refused(tmp_path)
    stray = put(tmp_path / "1.png", grey(1))
    assert f"{stray} is in no class: put images into a folder" in refused(tmp_path)
    stray.unlink()
    put(tmp_path / "cat" / "1.png", grey(1))
    (tmp_path / "dog").mkdir()
    assert f"{tmp_path / 'dog'} has no images: add some, or remove" in refused(tmp_path)
    (tmp_path / "dog" / "notes.txt").write_text("")
    assert "notes.txt is no image that can be read: give .png" in refused(tmp_path)
    (tmp_path / "dog" / "notes.txt").unlink()
    (tmp_path / "dog" / "puppies.png").mkdir()
    assert "puppies.png is no image that can be read" in refused(tmp_path)


@pytest.mark.parametrize("format", ["png", "jpeg", "bmp", "webp", "tiff", "ppm"])
@pytest.mark.filterwarnings("ignore")  # Pillow warns of metadata
@in_one_folder
@given(data=st.data())
def test_a_damaged_image_raises_nothing_but_data_errors(
    tmp_path: Path, format: str, data: st.DataObject
) -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(buffer, format)
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    length = data.draw(st.integers(0, len(content)))
    (tmp_path / "cat").mkdir(exist_ok=True)
    (tmp_path / "cat" / f"1.{format}").write_bytes(content[:length])
    told = fault(tmp_path)
    assert not told or (f"1.{format}" in told and "\n" not in told)


def test_an_image_cut_short_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = put(tmp_path / "cat" / "1.png", rng.integers(0, 256, (40, 40), np.uint8))
    path.write_bytes(path.read_bytes()[:900])
    assert f"{path} cannot be read: " in refused(tmp_path)
    assert "replace it, or remove it" in refused(tmp_path)


def test_without_pillow_the_command_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "cat" / "1.png", grey(1))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError, match=r"pip install 'melisma\[images\]'"):
        read(tmp_path)
