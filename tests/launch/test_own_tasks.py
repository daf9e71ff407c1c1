"""Every family trains a task of one's own, simulated and live, and judges it so."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.launch.regression import line

import melisma as mel
from melisma.jobs.files import job_of
from melisma.runs.store import MODEL

TASK = "tests.launch.regression:line"
ONE = {"task": TASK, "cycles": 6, "shard": 5, "deadline": "2 s"}
FAMILIES: dict[str, dict[str, Any]] = {
    "averaging": ONE | {"scheme": "csa"},
    "decentralised": ONE | {"scheme": "dab"},
    "federated": ONE | {"scheme": "csa", "mode": "federated"},
    "coded": ONE | {"scheme": "coded", "code": "cyclic", "stragglers": 1, "cycles": 30},
    "fog": ONE
    | {"scheme": "fog", "mode": "federated", "steps": 5, "cycles": 12}
    | {"fog": {"period": 4, "links": "full", "discard": 1000}},
    "tasks": {
        "scheme": "mmtt",
        "cycles": 6,
        "shard": 5,
        "budget": 1000,
        "tasks": [
            {"name": "line", "task": TASK, "samples": 100, "deadline": "20 s"},
            {"name": "digits", "samples": 100, "deadline": "20 s"},
        ],
    },
}
#: What is changed to learn as much in fewer cycles, each of which takes its time live.
LIVE: dict[str, dict[str, Any]] = {
    "averaging": {"cycles": 3},
    "coded": {},
    "fog": {"cycles": 6, "steps": 10},
    "tasks": {"cycles": 3},
}
LEARNERS = [{"name": "pi", "count": 3, "rate": "600 samples/s", "bandwidth": "4 MB/s"}]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_trains_it_simulated(family: str, tmp_path: Path) -> None:
    own = {"deadline": "0.5 s"} if "deadline" in FAMILIES[family] else {}
    mel.simulate(_job(family, **own), runs=tmp_path)
    _judged(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", LIVE)
def test_a_family_trains_it_live(family: str, tmp_path: Path) -> None:
    mel.run(_job(family, **LIVE[family]), runs=tmp_path)
    _judged(tmp_path)


def _job(family: str, **changes: Any) -> mel.Job:
    given = FAMILIES[family] | {"name": family, "learners": LEARNERS} | changes
    return job_of(given, "here")


def _judged(runs: Path) -> None:
    """The metrics are the task's, and are those of the model that was written."""
    folder = next(path.parent for path in sorted(runs.rglob(MODEL)) if _is_line(path))
    done = mel.open(folder)
    assert list(done.history.metrics) == ["r2", "mae"]
    assert done.history.metrics["r2"][-1] > 0.9
    model = line().build(0)
    frozen = model[0].weight.clone()  # type: ignore[index]
    model.load_state_dict(load_file(folder / MODEL))
    assert torch.equal(model[0].weight, frozen)  # type: ignore[index]
    test = line().dataset("line").test[:]
    with torch.no_grad():
        missed = (model(test["x"]).squeeze(1) - test["y"]).abs().mean()
    assert float(missed) == pytest.approx(done.history.metrics["mae"][-1], rel=1e-4)


def _is_line(path: Path) -> bool:
    state = load_file(path)
    return "0.weight" in state and state["0.weight"].shape == (3, 3)
