"""A folder of images by class: a folder within it for each class.

    photos/cat/one.png      x: uint8, samples × channels × height × width
    photos/dog/two.png      y: int64, the class of each: cat 0, dog 1

Classes are numbered by the names of their folders, in order; where all names are
whole numbers, these are the classes, so a device may hold some of them only. Images
are of one size and mode, and taken as they are stored: nothing is scaled or rotated.
"""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from melisma.errors import ConfigError, DataError, readable
from melisma.learning.validation import Arrays

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
MODES = {"L": 1, "RGB": 3, "RGBA": 4}  #: channels of each
#: Decoded images beyond this lie in a temporary file, which is mapped.
IN_MEMORY_BYTES = 256 * 2**20


def holds_images(folder: Path) -> bool:
    """Whether a folder has images, or folders in which they may be."""
    return any(path.is_dir() or _is_image(path) for path in _visible(folder))


def read_images(folder: Path) -> Arrays:
    """Decode all images of a folder; DataError names the file that does not fit."""
    files: list[Path] = []
    labels: list[int] = []
    for label, place in classes_in(folder):
        images = _images_in(place)
        files += images
        labels += [label] * len(images)
    return {"x": _decoded(files), "y": np.array(labels, np.int64)}


def classes_in(folder: Path) -> list[tuple[int, Path]]:
    """Return the folders of the classes, each with its number; DataError if none."""
    places = []
    for path in _visible(folder):
        if path.is_dir():
            places.append(path)
        elif _is_image(path):
            raise DataError(
                f"{path} is in no class: put images into a folder for each class, "
                f"e.g. {folder / 'cat' / path.name}"
            )
    names = [place.name for place in places]
    if all(name.isdecimal() and name.isascii() for name in names):
        numbers = [int(name) for name in names]
        if len(set(numbers)) < len(numbers):
            raise DataError(
                f"{folder} has folders {', '.join(names)}, of which two are the same "
                "number: give each class one"
            )
        return sorted(zip(numbers, places, strict=True))
    return list(enumerate(places))


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.is_dir()


def _images_in(folder: Path) -> list[Path]:
    files = _visible(folder)
    if not files:
        raise DataError(f"{folder} has no images: add some, or remove the folder")
    for path in files:
        if not _is_image(path):
            raise DataError(
                f"{path} is no image that can be read: give {', '.join(SUFFIXES)}, and "
                "keep other files elsewhere"
            )
    return files


def _decoded(files: list[Path]) -> NDArray[np.uint8]:
    """Decode images into one array, in memory or in a file that has no name."""
    first = _pixels(files[0], None)
    shape = (len(files), *first.shape)
    images = (_pixels(file, (files[0], first.shape)) for file in files)
    if first.nbytes * len(files) <= IN_MEMORY_BYTES:
        array = np.empty(shape, np.uint8)
        for row, image in enumerate(images):
            array[row] = image
        return array
    try:
        with tempfile.TemporaryFile() as file:
            for image in images:
                file.write(image.tobytes())
            return np.memmap(file, np.uint8, "r", shape=shape)
    except OSError as error:
        raise DataError(
            f"{first.nbytes * len(files)} bytes of images cannot be written to "
            f"{tempfile.gettempdir()}: {error.strerror}: set TMPDIR to a folder with "
            "more room"
        ) from error


def _pixels(path: Path, like: tuple[Path, tuple[int, ...]] | None) -> NDArray[np.uint8]:
    """Decode an image, channels first; DataError if it is not like the first one."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{path}: Pillow is not installed: pip install 'melisma[images]'"
        ) from error
    try:
        with Image.open(path) as image:
            _check_like(path, image, like)
            image.load()
            pixels = np.asarray(image)
    except DataError:
        raise
    except Exception as error:  # a damaged file makes decoders raise anything
        raise DataError(
            f"{path} cannot be read: {readable(str(error))}: replace it, or remove it"
        ) from error
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _check_like(path: Path, image: "Image", like: Any) -> None:
    """Raise DataError unless an image has a mode that fits, and the first one's."""
    if image.mode not in MODES:
        raise DataError(
            f"{path} is of mode {image.mode}: convert all images to one of "
            f"{', '.join(MODES)}"
        )
    if like is None:
        return
    shape = (MODES[image.mode], image.height, image.width)
    if shape != like[1]:
        found, expected = (f"{w} × {h} × {c}" for c, h, w in (shape, like[1]))
        raise DataError(
            f"{path} has {found} values, and {like[0]} {expected} (width × height × "
            "channels): bring all images to one size and mode"
        )
