"""Names in a job: of its folder, and of its learners."""

import re
from collections.abc import Sequence
from typing import Protocol

from melisma.errors import ConfigError


class Group(Protocol):
    """A group of equal learners."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def count(self) -> int: ...  # noqa: D102


class Grouped(Protocol):
    """A job, as far as its learners' names go."""

    @property
    def learners(self) -> Sequence[Group]: ...  # noqa: D102


#: Bytes of a run's name: folders, files and addresses of pages are made of it.
LONGEST_NAME = 100


def check_folder_name(name: str) -> None:
    """Raise ConfigError unless a folder can have the name."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise ConfigError(
            f"name {name!r} is to be a folder: use letters, digits, . _ -"
        )
    if (size := len(name.encode())) > LONGEST_NAME:
        raise ConfigError(
            f"name {name[:20]}… has {size} bytes, and is to be a folder: give at most "
            f"{LONGEST_NAME}"
        )


def names_of(job: Grouped) -> list[str]:
    """Return the learners' names, numbered where several are alike."""
    return [
        group.name if group.count == 1 else f"{group.name}-{i}"
        for group in job.learners
        for i in range(1, group.count + 1)
    ]
