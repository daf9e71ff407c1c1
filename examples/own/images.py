"""Images in a folder for each class: 1,797 digits of 8 × 8 pixels.

cd examples/own
python images.py                # writes digits/0/0000.png, digits/1/0001.png, …
melisma simulate images.toml    # pip install 'melisma[images]'
"""

from pathlib import Path

from torch import nn


def write(folder: Path) -> None:
    """Write scikit-learn's digits as PNG files, each into the folder of its class."""
    from PIL import Image
    from sklearn.datasets import load_digits

    found = load_digits()
    for n, (image, label) in enumerate(zip(found.images, found.target, strict=True)):
        place = folder / str(label)
        place.mkdir(parents=True, exist_ok=True)
        pixels = (image * 255 / 16).astype("u1")
        Image.fromarray(pixels).save(place / f"{n:04}.png")


def net() -> nn.Module:
    """Make a small convolutional network."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, kernel_size=3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(16 * 4 * 4, 10)),
    )


if __name__ == "__main__":
    write(Path("digits"))
