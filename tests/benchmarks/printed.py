"""Run a benchmark as its user does, and read figures from what it prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
#: Longest that a benchmark of a tiny size takes on a busy machine.
LIMIT_S = 280.0
PROVENANCE = r"commit \S+ · .+, \d+ cores · (?:.+ · )?torch \d\S+ · \d{4}-\d\d-\d\d"


def python(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python with ``benchmarks`` and the project on its path, to its end."""
    path = [str(BENCHMARKS), str(BENCHMARKS.parent), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
    )


def run(benchmark: str, *arguments: object) -> str:
    """Run ``benchmarks/BENCHMARK`` and return its output; fail if it breaks off.

    Exit code 1 without a traceback is a bar that was missed, as on a busy machine.
    """
    done = python(BENCHMARKS / benchmark, *arguments)
    broke_off = done.returncode not in (0, 1) or "Traceback" in done.stderr
    assert not broke_off, done.stdout + done.stderr
    first, rest = done.stdout.split("\n", 1)
    assert re.fullmatch(PROVENANCE, first)
    return rest


def output(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a benchmark printed here, after its provenance."""
    first, rest = capsys.readouterr().out.split("\n", 1)
    assert re.fullmatch(PROVENANCE, first)
    return rest


def numbers(line: str) -> list[float]:
    """Return all numbers in a line: 1,000 and 1e-3 are one each.

    >>> numbers("K = 1,000: 2.5e-3 s, 40%")
    [1000.0, 0.0025, 40.0]
    """
    found = re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?", line)
    return [float(number.replace(",", "")) for number in found]


def row(text: str, *words: str) -> list[float]:
    """Return the numbers of the one line that has all these words."""
    lines = [line for line in text.splitlines() if all(word in line for word in words)]
    assert len(lines) == 1, f"{len(lines)} lines with {words} in:\n{text}"
    return numbers(lines[0])
