"""A user's calls are checked by mypy as they are written in the documentation."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from melisma.jobs.schema import Job
from melisma.jobs.table import Table

ROOT = Path(__file__).parents[2]
#: Each line with a comment is refused for what it says.
USER = """
import melisma as mel


def fastest(problem: mel.Problem) -> mel.Allocation:
    raise NotImplementedError


job = mel.Job(cycles=5, deadline="1 s", overhead="10 ms", energy="30 J")
numbers = mel.Job(deadline=2, energy=3.5, carbon=None)
named = mel.Job(scheme=fastest, mode="federated", late="carry")
tables = mel.Job(
    learners=[{"name": "pi", "rate": "600 samples/s"}],
    data={"name": "mnist-5k"},
)
limit_s: float = job.deadline + numbers.overhead
chosen: bool = job.deadline.is_auto
most_j: float | None = job.energy
name: str = tables.learners[0].name
source: str = tables.data.name
scheme: str = named.scheme
mel.Job(deadline=[1])  # "list[int]"; expected "float | str"
mel.Job(deadline=None)  # "None"; expected "float | str"
mel.Job(energy=b"30 J")  # "bytes"; expected "float | str | None"
mel.Job(learners=3)  # "int"; expected "Sequence
mel.Job(data="mnist")  # "str"; expected
mel.Job(scheme=3)  # "int"; expected "str | Callable
mel.Job(dedline="1 s")  # Unexpected keyword argument "dedline"
text: str = job.deadline  # expression has type "Deadline", variable has type "str"
"""


@pytest.mark.slow
def test_what_a_user_may_write_is_told_from_what_not(tmp_path: Path) -> None:
    user = tmp_path / "user.py"
    user.write_text(USER)
    # In the checkout, whose settings and cache are those of `make check`.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", user],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    said = dict(re.findall(r"user\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE))
    wrong = {
        str(number): comment.strip()
        for number, line in enumerate(USER.splitlines(), start=1)
        if (comment := line.partition("  # ")[2])
    }
    assert said.keys() == wrong.keys(), done.stdout
    for number, comment in wrong.items():
        assert comment in said[number]


def test_only_the_type_that_is_read_is_left_at_run_time() -> None:
    assert not hasattr(Table, "__get__")
    job = Job(deadline="1 s")
    assert type(job.deadline).__name__ == "Deadline"
    assert not hasattr(type(job.deadline), "__set__")
