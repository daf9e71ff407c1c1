"""Reading one's own data, for tests to share."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from melisma.errors import DataError
from melisma.learning.files import read


def arrays_of(place: Path, **columns: Any) -> dict[str, NDArray[Any]]:
    found = read(place, **columns)
    assert isinstance(found, dict)
    assert all(isinstance(array, np.ndarray) for array in found.values())
    return found  # type: ignore[return-value]


def refused(place: Path, **columns: Any) -> str:
    """What is said of data that are refused."""
    with pytest.raises(DataError) as refusal:
        read(place, **columns)
    return str(refusal.value)


def fault(place: Path) -> str:
    """What is wrong with data; empty if nothing is."""
    try:
        read(place)
    except DataError as error:
        return str(error)
    return ""
