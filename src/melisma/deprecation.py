"""Names and keys that go: each is told for one release, and then it is gone."""

import warnings


def deprecated(what: str, instead: str, *, gone_in: str, depth: int = 2) -> None:
    """Warn that something goes with the release ``gone_in``, as "0.4".

    The warning names the line that is ``depth`` calls up. A test fails once this
    package has that version and still calls this (docs/releasing.md).

    >>> with warnings.catch_warnings(record=True) as told:
    ...     warnings.simplefilter("always")
    ...     deprecated("halt = true", 'late = "halt"', gone_in="99.0")
    >>> print(told[0].message)
    halt = true goes with melisma 99.0: use late = "halt"
    """
    warnings.warn(
        f"{what} goes with melisma {gone_in}: use {instead}",
        DeprecationWarning,
        stacklevel=depth + 1,
    )
