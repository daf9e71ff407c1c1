"""Trials over an engine, each kept in a folder as it ends.

A run may spread several times, so a trial is known by the number of the spread and its
place in it, and by what it was to do.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, get_type_hints

from melisma.comparison import Engine, Parts, Tick, encoded
from melisma.errors import LostError

from .kit import Result, Spread, Todo

#: Told of how many trials there are, gives what is to be called as each ends.
Begin = Callable[[int], Tick]


def spread_over(engine: Engine, folder: Path, begin: Begin) -> Spread:
    """Spread trials over an engine; those that are in the folder are not done again.

    What a trial raises ends the others, and so does one that is lost for good.
    """
    numbers = count()

    def spread(trial: Callable[[Todo], Result], todo: Sequence[Todo]) -> list[Result]:
        parts: Parts[Result] | None = _parts(folder, trial)
        number = next(numbers)
        names = [_name(number, place, trial, one) for place, one in enumerate(todo)]
        found = {n: parts.read(n) for n in names if n in parts} if parts else {}
        missing = [place for place, name in enumerate(names) if name not in found]
        tick = begin(len(missing))
        some = [todo[place] for place in missing]
        for at, result in engine(partial(_without_ticks, trial), some):
            if isinstance(result, LostError):
                raise result
            name = names[missing[at]]
            if parts:
                parts.write(name, result)
            found[name] = result
            tick()
        return [found[name] for name in names]

    return spread


def _parts(folder: Path, trial: Callable[..., Result]) -> Parts[Result] | None:
    try:
        return Parts(folder, get_type_hints(trial)["return"])
    except TypeError:  # TSDCFL's plans are several types in one: they are made again
        return None


def _without_ticks(trial: Callable[[Todo], Result], one: Todo, tick: Tick) -> Result:
    return trial(one)


def _name(number: int, place: int, trial: Callable[..., Any], one: object) -> str:
    """Another thing to do has another name, as far as it can be written down."""
    told = encoded(
        [trial.__qualname__, one], otherwise=lambda value: type(value).__name__
    )
    return f"{number}-{place}-{hashlib.sha256(told).hexdigest()[:12]}"
