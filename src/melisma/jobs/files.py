"""Job files: TOML in, a strict `Job` out.

An unknown key, a wrong type or a bad unit is a ConfigError that names the file, the key
and the fix.
"""

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli_w

from melisma.errors import ConfigError
from melisma.jobs.schema import Job, StatesFile, TrainingTable
from melisma.jobs.table import Table, explain, quantity
from melisma.units import Deadline

File = TypeVar("File", Job, StatesFile)


def load(path: Path | str) -> Job:
    """Read a job file; ConfigError in one line if it is not one."""
    return _load(Path(path), Job, "a job file")


def job_of(raw: Mapping[str, object], where: str) -> Job:
    """Convert a job read from ``where``; ConfigError in one line if it is not one."""
    return _convert(raw, Job, where)


def load_states(path: Path) -> StatesFile:
    """Read a file of states; ConfigError in one line if it is not one."""
    return _load(path, StatesFile, "a file of states")


def _load(path: Path, kind: type[File], what: str) -> File:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: give {what}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    return _convert(raw, kind, str(path))


def _as_of_today(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a job with tasks and arguments where they belong.

    Version 0.2 wrote several tasks as ``[[task]]``. An optimiser's arguments may stand
    in ``[training]`` itself.
    """
    job = dict(raw)
    if isinstance(job.get("task"), list):
        job["tasks"] = job.pop("task")
    tables = [job, *(t for t in job.get("tasks", ()) if isinstance(t, dict))]
    for table in tables:
        if isinstance(table.get("training"), dict):
            table["training"] = _with_arguments(table["training"])
    return job


def _with_arguments(training: dict[str, Any]) -> dict[str, Any]:
    """Return a table in which what is no key of it is an argument of the optimiser.

    What looks like a misspelt key stays, to be refused.
    """
    known = TrainingTable.__struct_fields__
    arguments = {
        key: value
        for key, value in training.items()
        if key not in known and not difflib.get_close_matches(key, known, 1, 0.7)
    }
    if not arguments:
        return training
    kept = {key: value for key, value in training.items() if key not in arguments}
    return kept | {"arguments": kept.get("arguments", {}) | arguments}


def _convert(raw: Mapping[str, object], kind: type[File], where: str) -> File:
    try:
        return msgspec.convert(_as_of_today(raw), kind, dec_hook=quantity)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {explain(error, kind)}") from error


def dump(table: Table) -> str:
    """Return a job as TOML, every key that has a value included."""
    plain = msgspec.to_builtins(table, enc_hook=_written)
    return tomli_w.dumps(_without_none(plain))


def _written(value: Any) -> float | str:
    return "auto" if isinstance(value, Deadline) and value.is_auto else float(value)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value
