"""The runs of a comparison: done in any process, saved in its folder as they end.

FOLDER/sweep.toml                    job, schemes and seeds that are compared
       SCHEME-seedN/                 a run, as `melisma simulate` writes it, but
                                     without checkpoints
       SCHEME-seedN/result.msgpack   its result; a run without it did not end

A run is returned as the bytes of its files, since the machine that did it may not be
able to write here. They take less memory than the run itself did.
"""

import logging
import math
import shutil
import socket
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import tomli_w

from melisma import __version__
from melisma.comparison.sweeps import Parts, Tick
from melisma.errors import ConfigError, DataError, MelismaError
from melisma.jobs.files import dump
from melisma.jobs.schema import Job, tasks_of
from melisma.launch.simulate import build
from melisma.runs.files import CHECKPOINT, PREVIOUS
from melisma.runs.records import Evaluated, Metric, Record
from melisma.views import scores
from melisma.views.history import History, history
from melisma.views.tasks import COLUMNS, Served, end_title, served, together

SWEEP = "sweep.toml"
_RESULT = "result"


class TaskFigure(NamedTuple):
    """A figure of several tasks: of all together, or of one where they differ."""

    title: str
    value: float  #: NaN: there is none
    digits: int  #: to print


#: A run's history, or the figures of several tasks.
Result = History | list[TaskFigure]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended or failed."""

    files: dict[str, bytes]  #: by path in the run's folder
    result: Result | None = None  #: None: it failed
    failed: str = ""  #: why


def simulated(job: Job, tick: Tick) -> Trial:
    """Run a job, with a tick for every cycle; DataError if this machine has no data.

    Any other MelismaError becomes the trial's ``failed``.
    """

    def watch(record: Record) -> None:
        if isinstance(record, Evaluated):
            tick()

    with TemporaryDirectory(prefix="melisma-") as own:
        folder = Path(own)
        try:
            with _without_hints():
                result = _figures(job, build(job).run(folder, watch))
        except DataError as error:
            raise DataError(
                f"on {socket.gethostname()}: {error}; every machine that runs trials "
                "needs the data sets in its MELISMA_DATA folder"
            ) from error
        except MelismaError as error:
            return Trial(files=_files(folder), failed=str(error))
        if isinstance(result, str):
            return Trial(files=_files(folder), failed=result)
        return Trial(files=_files(folder), result=result)


@contextmanager
def _without_hints() -> Iterator[None]:
    """Leave out what a run says of its job: every trial would say it."""
    logger = logging.getLogger("melisma.orchestrator")

    def is_none(record: logging.LogRecord) -> bool:
        return not getattr(record, "hint", False)

    logger.addFilter(is_none)
    try:
        yield
    finally:
        logger.removeFilter(is_none)


def _figures(job: Job, records: list[Record]) -> Result | str:
    """Return a run's result, or which tasks were refused."""
    if not job.tasks:
        return history(records)
    jobs = tasks_of(job)
    tasks, refused = served(jobs, records)
    if refused:
        return "; ".join(f"{name} was refused: {why}" for name, why in refused.items())
    every = together(jobs, records)
    return [
        *_metrics("", every, every.kinds),
        *(
            figure
            for name, task in tasks.items()
            for own in [[kind for kind in task.kinds if kind not in every.kinds]]
            for figure in _metrics(f"{name}: ", task, own)
        ),
        *(TaskFigure(c.title, c.of(every), c.digits) for c in COLUMNS),
    ]


def _metrics(
    prefix: str, served: Served, kinds: Sequence[Metric]
) -> Iterator[TaskFigure]:
    for kind in kinds:
        value = served.metrics[kind.name]
        shown = math.nan if value is None else scores.scale(kind) * value
        yield TaskFigure(prefix + end_title(kind), shown, scores.digits(kind, shown))


def _files(folder: Path) -> dict[str, bytes]:
    """Return a run's files but its checkpoints: trials are repeated, not resumed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (CHECKPOINT, PREVIOUS)
    }


def save(trial: Trial, folder: Path) -> None:
    """Write a run into its folder, all of it or nothing."""
    if not trial.files:
        return
    half = folder.with_name(f".{folder.name}")
    shutil.rmtree(half, ignore_errors=True)
    for name, data in trial.files.items():
        (half / name).parent.mkdir(parents=True, exist_ok=True)
        (half / name).write_bytes(data)
    if trial.result is not None:
        _parts(half).write(_RESULT, trial.result)
    shutil.rmtree(folder, ignore_errors=True)
    half.rename(folder)


def saved(folder: Path) -> Result | None:
    """Return the result of the run in a folder; None if it did not end, or failed."""
    parts = _parts(folder)
    return parts.read(_RESULT) if _RESULT in parts else None


def _parts(folder: Path) -> Parts[Result]:
    return Parts(folder, Result)


def open_sweep(folder: Path, job: Job, schemes: Sequence[str], seeds: int) -> None:
    """Write down what ``folder`` compares; ConfigError if it compares other things."""
    text = tomli_w.dumps(
        {
            "melisma": __version__,
            "schemes": list(schemes),
            "seeds": seeds,
            "job": tomllib.loads(dump(job)),
        }
    )
    file = folder / SWEEP
    if not file.exists():
        file.write_text(text, encoding="utf-8")
        return
    try:
        before, given = (
            _flat(tomllib.loads(t)) for t in (file.read_text("utf-8"), text)
        )
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}: begin anew") from error
    differ = [
        f"{name} is {_short(given.get(name))}, was {_short(before.get(name))}"
        for name in {**given, **before}
        if given.get(name) != before.get(name)
    ]
    if differ:
        raise ConfigError(
            f"{folder} is another comparison: {'; '.join(differ)}. Give what it was "
            "begun with, or leave --resume out"
        )


def _flat(sweep: dict[str, Any]) -> dict[str, Any]:
    job = sweep.pop("job", {})
    return sweep | {f"job.{key}": value for key, value in job.items()}


def _short(value: object) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) < 60 else f"{text[:60]}…"
