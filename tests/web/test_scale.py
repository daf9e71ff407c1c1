"""200 learners × 1,000 cycles: read in a time that grows with the records, in bounds.

`pytest tests/web/test_scale.py -s -m slow` prints what it measures.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from melisma.jobs.files import dump
from melisma.jobs.schema import Job
from melisma.runs import records
from melisma.runs.store import CONFIG, RECORDS

MEASURE = """
import gzip, json, re, sys, time
from pathlib import Path
import msgspec
from melisma.views.document import Document
def peak():  # in MB; getrusage would tell the parent's too
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) / 1024
before_mb, began = peak(), time.process_time()
run = Document(Path(sys.argv[1]))
run.refresh()
read_s, began = time.process_time() - began, time.process_time()
body = msgspec.json.encode(run.since(0))
small = gzip.compress(body, 1)
encode_s, began = time.process_time() - began, time.process_time()
change = run.since(run.rows.position - 500, run.epoch)
change_s = time.process_time() - began
print(json.dumps({
    "records": run.rows.position, "read_s": read_s, "encode_s": encode_s,
    "change_s": change_s, "changed": len(change["turns"]["task"]),
    "body_mb": len(body) / 1e6, "gzip_mb": len(small) / 1e6,
    "memory_mb": peak() - before_mb,
}))
"""


def write(folder: Path, learners: int, cycles: int) -> Path:
    """Records as a live run leaves them; one in a hundred updates is lost."""
    folder.mkdir()
    (folder / CONFIG).write_text(dump(Job(name="big", cycles=cycles)))
    names = [f"learner-{k}" for k in range(learners)]
    rng = np.random.default_rng(0)
    with (folder / RECORDS).open("wb") as file:

        def note(kind: Any, time_s: float, **facts: Any) -> None:
            records.write(kind(time_s=time_s, task="big", **facts), file)

        for cycle in range(1, cycles + 1):
            for name in names:
                about = {"cycle": cycle, "learner": name}
                samples, predicted_s = int(rng.integers(50, 500)), rng.uniform(0.7, 1)
                work = {"samples": samples, "steps": 3, "predicted_s": predicted_s}
                note(records.Allocated, 1.1 * cycle, **about, **work)
            for k, name in enumerate(names):
                about = {"cycle": cycle, "learner": name}
                spread = 0.3 * rng.random()
                if (k + cycle) % 100 == 0:
                    why = "not there by the deadline"
                    note(records.Dropped, 1.1 * cycle + 1.0, **about, reason=why)
                    continue
                note(records.Downloaded, 1.1 * cycle + 0.1 + spread, **about)
                did = {"samples": 50 + k, "batches": 9, "loss": 1.0}
                note(records.Trained, 1.1 * cycle + 0.6 + spread, **about, **did)
                note(records.Uploaded, 1.1 * cycle + 0.7 + spread, **about)
            end = {"cycle": cycle}
            note(
                records.Aggregated,
                1.1 * cycle + 1.0,
                learners=learners,
                samples=50 * learners,
                cycle_s=1.0,
                max_staleness=1,
                mean_staleness=0.5,
                truancy=0.1,
                utilisation=0.9,
                **end,
            )
            quality = 1.0 / (cycle + 1)
            note(
                records.Evaluated,
                1.1 * cycle,
                metrics={"accuracy": 1 - quality},
                loss=quality,
                **end,
            )
    return folder


def measured(folder: Path) -> dict[str, float]:
    command = [sys.executable, "-c", MEASURE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    print({name: round(value, 4) for name, value in figures.items()})
    return figures


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_long_run_of_many_learners_is_told_in_bounds(tmp_path: Path) -> None:
    tenth = measured(write(tmp_path / "tenth", 200, 100))
    whole = measured(write(tmp_path / "whole", 200, 1000))
    assert whole["records"] > 9.9 * tenth["records"]
    # Ten times the records: about ten times the time; a square would be a hundred.
    assert whole["read_s"] < 30 * tenth["read_s"]
    # What changed is a cycle's rows, however long the run is.
    assert whole["changed"] == tenth["changed"] <= 400
    assert 20 < whole["memory_mb"] < 400
    assert whole["body_mb"] < 25
    assert whole["gzip_mb"] < 4
