"""What the pages of runs are put together from."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from melisma import pages, plots


def picture(folder: Path, name: str, alt: str, draw: Callable[[Figure], None]) -> str:
    """Have a picture drawn into ``folder``; return it as a part of the page."""
    plots.save(folder / name, draw)
    return pages.picture((folder / name).read_bytes(), alt)


def text(
    value: float | None, digits: int = 0, *, scale: float = 1.0, unit: str = ""
) -> str:
    """Return a number as it is printed, or a dash if it is not known."""
    return "–" if value is None else f"{scale * value:,.{digits}f}{unit}"


def rest(shown: int, there: int, what: str) -> str:
    """How much is left out, if anything is."""
    return f"Shown are {shown:,} of {there:,} {what}. " if shown < there else ""


def cell(value: object) -> object:
    """Return a value as a spreadsheet's cell."""
    match value:
        case bool():
            return int(value)
        case float():
            return round(value, 6)
        case str() if value.startswith(("=", "+", "-", "@")):
            return f"'{value}"  # a spreadsheet would run a learner's name as a formula
    return value
