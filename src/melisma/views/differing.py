"""What of a job is not the default: what a reader of it wants to know."""

import tomllib
from typing import Any

import msgspec
import tomli_w

from melisma.jobs.files import dump, job_of
from melisma.jobs.schema import Job

#: Without these nobody knows what was run, whatever their values are; the last two
#: are a task's own where there are several.
ALWAYS = ("name", "scheme", "cycles", "learners", "model", "deadline")


def differing(job: Job) -> str:
    """Return a job as TOML: what is not the default, and `ALWAYS`."""
    plain = tomllib.loads(dump(job))
    changed = _changed(job, plain)
    kept = {
        name: _within(getattr(job, name), plain[name])
        for name in ALWAYS[: 4 if job.tasks else 6]
        if name in plain and name not in changed
    }
    return tomli_w.dumps(kept | changed)


def differing_of(config: str) -> str:
    """Return the same of a job's TOML."""
    return differing(job_of(tomllib.loads(config), "the job"))


def _changed(table: msgspec.Struct, plain: dict[str, Any]) -> dict[str, Any]:
    """Return what of ``plain``, a table as it is written, is not the default."""
    changed = {}
    for field in msgspec.structs.fields(table):
        value, written = getattr(table, field.name), plain.get(field.encode_name)
        if written is not None and value != _default(field):
            changed[field.encode_name] = _within(value, written)
    return changed


def _within(value: Any, written: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _changed(value, written) or written
    if isinstance(value, tuple | list):
        return [_within(*pair) for pair in zip(value, written, strict=True)]
    return written


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
