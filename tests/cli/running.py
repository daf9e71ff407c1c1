"""The command line as tests run it, and jobs for it."""

import re
from pathlib import Path
from typing import NamedTuple, Protocol


class Result(NamedTuple):
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str


class Melisma(Protocol):
    def __call__(self, *words: str) -> Result: ...


def quick_job(folder: Path, text: str = "") -> str:
    """Write a job of two short cycles, where the text does not say otherwise."""
    little = {"samples": "400", "deadline": "'0.3 s'"}
    given = re.findall(r"^(\w+) =", text, flags=re.MULTILINE)
    keys = "".join(f"{k} = {v}\n" for k, v in little.items() if k not in given)
    (folder / "job.toml").write_text(f"name = 'quick'\ncycles = 2\n{keys}{text}")
    return "job.toml"


#: Two tasks on the demo's learners.
TASKS = """
scheme = "med"
shard = 20
deadline = "60 s"
[[tasks]]
name = "one"
samples = 200
[[tasks]]
name = "two"
samples = 100
"""

#: The demo's learners as coded workers, on batteries.
BATTERIES = """
scheme = "coded"
code = "uncoded"
samples = 200
shard = 20
deadline = "600 s"
[transmission]
harvest = "4 W"
"""

#: Three devices that collect data and move it.
FOG = """
scheme = "fog:known"
mode = "federated"
model = "FogMLP"
samples = 120
deadline = "2 s"
[fog]
period = 2
costs = "uniform"
[[learners]]
name = "d"
rate = "1000 samples/s"
bandwidth = "1 MB/s"
count = 3
"""
