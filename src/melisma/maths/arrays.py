"""The kinds of array this package passes around, and how given ones are checked."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from melisma.errors import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]

Shape = tuple[int, ...]


def numbers(
    name: str,
    values: ArrayLike,
    *,
    shape: Shape | None = None,
    least: float = 0.0,
    above: float | None = None,
    endless: bool = False,
    each: str = "",
) -> Floats:
    """Return ``values`` as a new array that cannot be written to.

    Raises ConfigError unless all are at least ``least``, or ``above`` that, and finite
    unless ``endless``. One number is repeated to fill ``shape``. ``each`` is what the
    first axis runs over, for messages.

    >>> numbers("power_w", [1.0, -2.0], each="learner")
    Traceback (most recent call last):
    melisma.errors.ConfigError: power_w of learner 1 is -2: give finite numbers of \
at least 0
    """
    array = _array(name, values, shape)
    low = array < least if above is None else array <= above
    bound = f"of at least {least:g}" if above is None else f"above {above:g}"
    kind = _number("" if endless else "finite ", shape)
    wrong = low | np.isnan(array) | (np.isinf(array) & (not endless))
    _refuse(name, array, wrong, f"{kind} {bound}", each)
    return _frozen(array, shape)


def counts(
    name: str,
    values: ArrayLike,
    *,
    shape: Shape | None = None,
    least: int = 0,
    most: int | None = None,
    each: str = "",
) -> Ints:
    """The same for whole numbers from ``least`` to ``most``.

    >>> counts("shards", 3, shape=(2,))
    array([3, 3])
    """
    array = _array(name, values, shape)
    last = 2**53 if most is None else most  # floats beyond are not exact
    wrong = ~((array >= least) & (array <= last) & (array == np.floor(array)))
    bound = f"of at least {least}" if most is None else f"from {least} to {most}"
    _refuse(name, array, wrong, f"{_number('whole ', shape)} {bound}", each)
    return _frozen(array.astype(np.int64), shape)


def set_numbers(owner: object, name: str, **limits: Any) -> Floats:
    """Check a field of a frozen dataclass with ``numbers`` and store the array."""
    array = numbers(name, getattr(owner, name), **limits)
    object.__setattr__(owner, name, array)
    return array


def set_counts(owner: object, name: str, **limits: Any) -> Ints:
    """Check a field of a frozen dataclass with ``counts`` and store the array."""
    array = counts(name, getattr(owner, name), **limits)
    object.__setattr__(owner, name, array)
    return array


def _array(name: str, values: ArrayLike, shape: Shape | None) -> Floats:
    """A new array; ConfigError unless it has the shape, or is one number."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: give numbers ({error})") from error
    if shape is not None and array.shape not in ((), shape):
        wanted = f"one number or {shape}" if shape else "one number"
        raise ConfigError(f"{name} has shape {array.shape}: give {wanted}")
    return array


def _number(kind: str, shape: Shape | None) -> str:
    return f"a {kind}number" if shape == () else f"{kind}numbers"


def _refuse(name: str, array: Floats, wrong: Bools, wanted: str, each: str) -> None:
    """Raise ConfigError with the first number that is wrong, and its place."""
    if not wrong.any():
        return
    where = tuple(np.argwhere(wrong)[0].tolist())
    place = f" of {each} {where[0]}" if each and where else str(list(where) or "")
    raise ConfigError(f"{name}{place} is {array[where]:g}: give {wanted}")


def _frozen(array: NDArray[Any], shape: Shape | None) -> NDArray[Any]:
    if shape is not None and array.shape != shape:
        array = np.broadcast_to(array, shape).copy()
    array.setflags(write=False)
    return array
