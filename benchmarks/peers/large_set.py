"""A training set of any size whose rows are known without reading it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from melisma.learning.shards import Shard

SHAPE = (1, 28, 28)  #: of a sample: 3,136 bytes of float32
ROW_BYTES = 4 * 784
#: One row in so many has random numbers, the others zeros, which take no disk.
RANDOM = 250
CLASSES = 10


def write(folder: Path, rows: int) -> None:
    """Write x, y and the place of each row, as files that are mapped."""
    folder.mkdir()
    x: Any = open_memmap(folder / "x.npy", "w+", np.float32, (rows, *SHAPE))
    for place in range(0, rows, RANDOM):
        x[place] = random_row(place)
    x.flush()
    places = np.arange(rows)
    np.save(folder / "place.npy", places)
    np.save(folder / "y.npy", places % CLASSES)


def random_row(place: int) -> NDArray[np.float32]:
    """Return the numbers of a row that has some."""
    return np.random.default_rng(place).standard_normal(SHAPE, np.float32)


def wrong_rows(shard: Shard) -> int:
    """Return how many rows of a shard are not, bit for bit, what was written."""
    places, x = shard["place"], shard["x"]
    bits = x.view(torch.int32).flatten(1)
    wrong = shard["y"] != places % CLASSES
    wrong |= (places % RANDOM != 0) & (bits != 0).any(dim=1)
    for at in torch.nonzero(places % RANDOM == 0).flatten().tolist():
        expected = torch.from_numpy(random_row(int(places[at])))
        wrong[at] |= not torch.equal(bits[at], expected.view(torch.int32).flatten())
    return int(wrong.sum())
