"""Problems of any size with the spec's rates, and how solvers are run on them."""

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from melisma.system import DelayLaw, MultiTaskProblem
from melisma.system.states import States, heated

#: The thesis's tasks: shards, passes, deadline (s), model (MB), idle rate (shards/s).
KINDS = [
    (60, 2, 55.0, 2.296, 5.6),
    (60, 1, 40.0, 0.409, 4.1),
    (20, 1, 40.0, 8.317, 2.7),
]
SHARD_MB = 1.568
TRAINING = 0.5  #: shards per second while the owner trains, whatever the task
BANDWIDTH = [20.0, 20.0, 8.0]  #: MB/s idle, training, downloading
HEAT = 0.5


def problem_of(learners: int, tasks: int, seed: int) -> MultiTaskProblem:
    """Expected delays of seeded learners; ``learners / 2.5`` shards' worth per task.

    At the thesis's size its own tasks, the fourth a copy of the third; beyond, tasks
    of the three kinds in turn, with as many shards a head.
    """
    rng = np.random.default_rng([seed, learners, tasks])
    kinds = [KINDS[min(i, 2) if tasks == 4 else i % 3] for i in range(tasks)]
    probability = heated(rng.integers(3, size=learners), 3, HEAT)
    network = rng.normal(1.0, 0.1, (learners, 1)).clip(0.6, 1.4) * BANDWIDTH
    laws = []
    for _, _, _, model, idle in kinds:
        rate = rng.normal(1.0, 0.05, (learners, 1)).clip(0.8, 1.2)
        laws.append(
            DelayLaw.from_rates(
                samples_per_s=rate * [idle, TRAINING, idle],
                bytes_per_s=network,
                sample_bytes=SHARD_MB,
                model_bytes=model,
            )
        )
    passes = [kind[1] for kind in kinds]
    states = States.of(laws, probability, shard=[1] * tasks, steps=passes)
    shard_s, fixed_s = states.expected()
    scale = 1.0 if learners <= 12 else learners / tasks / 2.5
    return MultiTaskProblem(
        shard_s=shard_s,
        fixed_s=fixed_s,
        shards=np.round(np.array([k[0] for k in kinds]) * scale),
        deadline_s=np.array([k[2] for k in kinds]) + (5.0 if tasks > 3 else 0.0),
        price=rng.normal(1.0, 0.5, learners).clip(0.1, 1.5),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one solver made of one problem."""

    seconds: float
    objective_s: float = np.inf  #: inf: nothing found
    bound_s: float = 0.0
    note: str = ""

    @property
    def gap(self) -> float:
        """(objective − bound) / objective."""
        if self.objective_s == np.inf:
            return np.inf
        return 1.0 - self.bound_s / self.objective_s


def run_peer(
    python: Path, module: str, problem: MultiTaskProblem, limit_s: float
) -> Outcome:
    """Run ``peers/<module>.py`` in a process of this Python."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        fields = ["shard_s", "fixed_s", "shards", "deadline_s", "price"]
        fields += ["budget", "least", "every"]
        np.savez(path, **{name: getattr(problem, name) for name in fields})
        script = Path(__file__).with_name(f"{module}.py")
        try:
            done = subprocess.run(
                [python, str(script), str(path), str(limit_s)],
                capture_output=True,
                text=True,
                timeout=3.0 * limit_s + 60.0,
            )
        except subprocess.TimeoutExpired:
            return Outcome(seconds=3.0 * limit_s + 60.0, note="did not stop")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return Outcome(seconds=np.nan, note=lines[-1])
    return Outcome(**json.loads(done.stdout.strip().splitlines()[-1]))
