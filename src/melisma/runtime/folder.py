"""A run on disk: its configuration, what happened, and the model.

runs/<name>/config.toml          everything that decides the run, its seed included
            records.jsonl        one event a line
            model.safetensors    the parameters at the end
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

CONFIG, RECORDS, MODEL = "config.toml", "records.jsonl", "model.safetensors"


@contextmanager
def run_folder(root: Path, name: str) -> Iterator[Path]:
    """Make ``root/name``, or ``name-2``, ``name-3``… where runs of that name are.

    A folder that is still empty at the end is taken away again.
    """
    folder = _first_free(root, name)
    try:
        yield folder
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()


def _first_free(root: Path, name: str) -> Path:
    for number in count(1):
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        break
    return folder
