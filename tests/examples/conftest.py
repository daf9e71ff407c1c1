"""The examples as a user has copied them: in a folder of their own."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.examples.own import NAMES

EXAMPLES = Path(__file__).parents[2] / "examples" / "own"


@pytest.fixture(scope="session")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("own")
    for file in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.toml")]:
        shutil.copy(file, folder)
    yield folder
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def folder(
    copied: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """The current folder; each test has a cache of its own."""
    monkeypatch.chdir(copied)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    return copied
