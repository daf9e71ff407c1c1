"""Running the engines in turn, each time in a process of its own."""

import importlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from peers.environments import lack_of
from peers.meter import Measured, Meter

Weights = dict[str, NDArray[np.float32]]

LIMIT_S = 1800.0  #: of one run


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One way to simulate."""

    name: str
    title: str
    module: str  #: in ``peers``
    #: What it imports, and the package that has it, which may not be installed.
    packages: Mapping[str, str] = field(default_factory=dict)
    repeats: int | None = None  #: at most, where a run takes long
    cores: int = 1  #: that it keeps busy
    family: bool = False  #: whether it works in several processes
    bar: float = 1.0  #: best cycle, at least, in those of ours on as many cores


@dataclass(slots=True, eq=False)
class Runs:
    """All runs of one engine with the same number of learners."""

    engine: Engine
    lack: str = ""  #: of packages, without which there are none
    failure: str = ""  #: what the engine said when it broke off
    measured: list[Measured] = field(default_factory=list)
    weights: list[Weights] = field(default_factory=list)

    @property
    def can_run(self) -> bool:
        """Whether another run is worth a try."""
        return not (self.lack or self.failure)

    @property
    def first_s(self) -> float:
        """Of the first cycle, which includes the engine's start."""
        return min(run.wall_s[0] for run in self.measured)

    @property
    def best_s(self) -> float:
        """Of the best cycle."""
        return min(min(run.wall_s) for run in self.measured)

    @property
    def best_cpu_s(self) -> float:
        """Of the best cycle, by the processors; NaN where they cannot be asked."""
        return min(min(run.cpu_s or [np.nan]) for run in self.measured)

    @property
    def total_s(self) -> float:
        """Of all cycles together."""
        return min(sum(run.wall_s) for run in self.measured)

    @property
    def peak_bytes(self) -> int:
        """Of the run that took most."""
        return max(run.peak_bytes for run in self.measured)

    def difference(self, reference: "Runs") -> float:
        """How far any weight of any run is from the first run of ``reference``."""
        expected = reference.weights[0]
        offs = [
            np.abs(weights[name] - expected[name]).max()
            for weights in self.weights
            for name in expected
        ]
        return float(np.max(offs))  # NaN if there is one, as Python's max is not


def run_in_turn(
    engines: Sequence[Engine],
    learners: int,
    cycles: int,
    repeats: int,
    say: Callable[[str], None],
) -> list[Runs]:
    """Repeat all engines in turn, so that the machine's load falls on all alike."""
    all_runs = [Runs(engine, lack=lack_of(engine.packages)) for engine in engines]
    for runs in all_runs:
        if runs.lack:
            say(f"{runs.engine.title} is left out: {runs.lack}")
    for repeat in range(1, repeats + 1):
        for runs in all_runs:
            if runs.can_run and repeat <= (runs.engine.repeats or repeats):
                say(f"{learners} learners, run {repeat}: {runs.engine.title}")
                _add_run(runs, learners, cycles)
    return all_runs


def _add_run(runs: Runs, learners: int, cycles: int) -> None:
    script = Path(__file__).parents[1] / "bench_simulation.py"
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        arguments = [f"--learners={learners}", f"--cycles={cycles}"]
        arguments += [f"--engines={runs.engine.name}", f"--into={folder}"]
        runs.failure = _call([sys.executable, str(script), *arguments], folder)
        if not runs.failure:
            content = Path(folder, "measured.json").read_bytes()
            runs.measured.append(msgspec.json.decode(content, type=Measured))
            runs.weights.append(load_file(Path(folder, "weights.safetensors")))


def _call(command: list[str], folder: str) -> str:
    """Run a command in a process group that ends with it; return why it failed."""
    with subprocess.Popen(
        command,
        env=os.environ | _quiet(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            _, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"not done after {LIMIT_S:.0f} s"
        finally:
            # Some of Ray's processes live on when it is killed.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return errors.strip() if process.returncode else ""


def _quiet(folder: str) -> dict[str, str]:
    """Keep Flower and Ray from calling home, and from leaving files behind."""
    return {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_HOME": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": folder,
    }


def run_here(engine: Engine, learners: int, cycles: int, folder: Path) -> None:
    """Run once, in this process, and leave times and weights in ``folder``."""
    import torch

    from melisma.learning.parameters import save
    from peers.workload import Workload

    torch.set_num_threads(1)
    meter = Meter(family=engine.family)
    module = importlib.import_module(f"peers.{engine.module}")
    weights = module.run(Workload(learners=learners, cycles=cycles), meter)
    save(weights, folder / "weights.safetensors")
    (folder / "measured.json").write_bytes(msgspec.json.encode(meter.result()))
