"""`melisma.compare`: the comparison for scripts, notebooks and the command line."""

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from melisma.comparison import report
from melisma.comparison.outcomes import Begin, Comparison
from melisma.comparison.outcomes import compare as run_all
from melisma.comparison.sweeps import Engine, in_turn
from melisma.errors import ConfigError
from melisma.jobs.families import family_of
from melisma.jobs.files import dump
from melisma.jobs.schema import Job
from melisma.launch.api import RUNS, job_of
from melisma.launch.loops import anywhere, in_thread
from melisma.runs.store import run_folder
from melisma.schemes import name_of


def compare(
    job: Job | Path | str | None = None,
    schemes: Sequence[Any] | None = None,
    *,
    seeds: int = 5,
    runs: Path | str = RUNS,
    folder: Path | str | None = None,
    engine: Engine = in_turn,
    begin: Begin = lambda cycles: lambda: None,
) -> Comparison:
    """Run a job under several schemes and seeds: means with 95 % intervals.

    ``schemes`` are names or functions; by default the family's usual ones. Every run is
    saved as it ends, in a new folder in ``runs``; give the ``folder`` of a comparison
    that was stopped to resume it. ``engine`` decides where runs are done: one after
    another here, or by `melisma.comparison.sweeps.over_processes`.
    """
    given = job_of(job)
    names = [name_of(scheme) for scheme in schemes or family_of(given).usual]
    if len(set(names)) < len(names):
        raise ConfigError(f"schemes {', '.join(names)}: give different ones")
    new = run_folder(Path(runs), f"{given.name}-compared")
    with nullcontext(Path(folder)) if folder else new as own:
        stopped = threading.Event()
        begin = _until(stopped, begin)
        comparison = anywhere(
            stopped.set, run_all, given, names, seeds, own, engine, begin
        )
        comparison = msgspec.structs.replace(comparison, folder=str(own))
        report.write(comparison, dump(given), own)
    return comparison


def _until(stopped: threading.Event, begin: Begin) -> Begin:
    """Return what ends a comparison with the cycle that is under way."""

    def begun(cycles: int) -> Callable[[], None]:
        tick = begin(cycles)

        def until() -> None:
            if stopped.is_set():
                raise KeyboardInterrupt
            tick()

        return until

    return begun


async def compare_async(
    job: Job | Path | str | None = None,
    schemes: Sequence[Any] | None = None,
    **options: Any,
) -> Comparison:
    """Run `compare` in a thread, so that the event loop stays free.

    When its task is cancelled, it ends with the cycle that is under way.
    """
    stopped = threading.Event()
    begin = _until(stopped, options.pop("begin", lambda cycles: lambda: None))
    work = partial(compare, job, schemes, begin=begin, **options)
    return await in_thread(work, stopped.set)
