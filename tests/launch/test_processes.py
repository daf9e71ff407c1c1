"""Learner processes of this machine, forked where that can be."""

import sys
from pathlib import Path

import pytest
from tests.launch.chaos.processes import learners_in, running_in, until

from melisma.errors import MelismaError
from melisma.launch.processes import learners

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own, by which processes are found."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_learners_show_their_names_and_no_token_and_end_with_the_block(
    here: Path,
) -> None:
    # Nobody answers there: they dial until they are ended.
    join = ["join", "melisma://secret@127.0.0.1:1", "--until-eof", "--name"]
    mine = running_in(here)
    with learners() as start:
        for name in ("a", "b"):
            start([*join, name])
        until(lambda: {"a", "b"} <= learners_in(here).keys(), "two learners")
        for pid in running_in(here):
            assert b"secret" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert running_in(here) == mine


def test_what_cannot_be_forked_from_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(sys, "platform", "linux")

    def many() -> None:
        with learners() as start:
            for _ in range(100_000):
                start(["join"])

    with pytest.raises(MelismaError, match="has ended, with exit code 1"):
        many()
