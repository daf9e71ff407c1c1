"""Do the checks tell liars from honest learners, and what do they cost?

    python benchmarks/bench_checks.py
    python benchmarks/bench_checks.py --optimiser adam --rate 0.001
    python benchmarks/bench_checks.py --models FogCNN --seeds 1    # over five minutes

Real training on mnist-5k: 8 learners with 4 to 20 shards of 50 samples, aggregated by
their weighted mean after two steps a cycle. In cycles 1, 5 and 20 each learner trains
1, 2 and 5 steps, honestly, with other arithmetic, and with each lie in turn, among
honest peers. A row is one way to answer; its columns:

    redo      share whose distance is FALSE_FROM or more, with its 95 % interval
    distance  least, median and greatest
    suspect   share whose suspicion is over what 1 % of the honest pass, in this run
    chance    mean chance of a redo at a share of 5 %

Costs are ratios to the learner's own training, within the same run. With a GPU there
are two rows more. Skips leave out the last batches, at least one; so many of a short
plan are a larger share, and rows go by the real one. Rows are sorted by the median.
"""

import copy
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor, nn
from torch.func import functional_call

from melisma.learning import models
from melisma.learning.aggregation import WeightedMean
from melisma.learning.checks import (
    FALSE_FROM,
    Gap,
    Losses,
    distance,
    gap,
    honest,
    losses,
    redo_chance,
    redone,
    suspicion,
    usual,
)
from melisma.learning.data import load
from melisma.learning.losses import loss_of, numbers
from melisma.learning.parameters import Parameters, parameters_of, put, stacked
from melisma.learning.samples import Arrays, Part, Samples, pairs
from melisma.learning.settings import Training
from melisma.learning.training import batch_plan, train
from melisma.maths.arrays import Floats, Ints
from melisma.provenance import provenance

LEARNERS, SHARD, FEWEST, MOST = 8, 50, 4, 20
SKIPPED = (0.01, 0.05, 0.1, 0.3, 0.5)  #: shares of the batches
EDGES = (0, 0.02, 0.05, 0.1, 0.2, 0.4, 1)  #: between which they really lie
SHARE = 0.05  #: of ordinary updates that are redone
FALSE_ALARMS = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What all learners of a run have in common."""

    model: nn.Module
    samples: Samples
    training: Training
    seed: int
    learners: int = LEARNERS


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What one learner is to do in one cycle."""

    before: Parameters
    rows: Ints
    plan: Ints
    steps: int


@dataclass(slots=True)
class Results:
    """All that was measured, by the way of answering or the number of steps."""

    distances: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    suspicions: dict[str, list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    seconds: dict[tuple[str, int], float] = field(
        default_factory=lambda: defaultdict(float)
    )


def rows_of(shards: Ints) -> Ints:
    """Rows of whole shards."""
    return (shards[:, None] * SHARD + np.arange(SHARD)).ravel()


def shared_out(pieces: int, learners: int, rng: np.random.Generator) -> list[Ints]:
    """Shards of each learner, the next ones of a shuffled round of all."""
    amounts = rng.integers(FEWEST, MOST + 1, learners)
    turns, ends = rng.permutation(pieces), amounts.cumsum()
    return [
        turns[np.arange(end - amount, end) % pieces]
        for amount, end in zip(amounts, ends, strict=True)
    ]


def works(
    scene: Scene, before: Parameters, shards: Sequence[Ints], cycle: int, steps: int
) -> list[Work]:
    """Everybody's work, with the batch plans that the orchestrator knows."""
    made = []
    for k, own in enumerate(shards):
        rng = np.random.default_rng([scene.seed, cycle, steps, k])
        rows = rows_of(own)
        plan = batch_plan(rows, steps, scene.training, rng)
        made.append(Work(before, rows, plan, steps))
    return made


def trained(scene: Scene, before: Parameters, plan: Ints) -> Parameters:
    """Train on the CPU, as a learner does."""
    put(before, scene.model)
    train(scene.model, scene.samples, plan, scene.training)
    return parameters_of(scene.model)


def halted(scene: Scene, work: Work, at: Sequence[int]) -> list[Parameters]:
    """Parameters after so many batches of the plan, from one training."""
    seen: dict[int, Parameters] = {}
    batches = 0

    def snapshot() -> bool:
        nonlocal batches
        if batches in at:
            seen[batches] = parameters_of(scene.model)
        batches += 1
        return False

    put(work.before, scene.model)
    train(scene.model, scene.samples, work.plan, scene.training, snapshot)
    return [seen[n] for n in at]


def lies(
    scene: Scene, work: Work, own: Parameters, other: Work, earlier: Work | None
) -> Iterator[tuple[str, Parameters]]:
    """Every way to cheat."""
    rng = np.random.default_rng([scene.seed, len(work.plan), int(work.rows[0])])

    def on(rows: Ints) -> Parameters:
        plan = batch_plan(rows, work.steps, scene.training, rng)
        return trained(scene, work.before, plan)

    yield "old parameters", work.before
    yield "old + noise", noisy(work.before, own, rng)
    shards = len(work.rows) // SHARD
    yield "a tenth of its shards", on(work.rows[: max(1, shards // 10) * SHARD])
    yield "half of its shards", on(work.rows[: shards // 2 * SHARD])
    yield "another learner's shards", on(other.rows)
    yield "own shards, own order", on(work.rows)
    if earlier:
        sent = trained(scene, earlier.before, earlier.plan)
        yield "the last cycle's answer", sent
        yield "the last cycle's move", moved(work.before, earlier.before, sent)
    batches = len(work.plan)
    left = {batches - n: skipped(n / batches) for n in skips(batches)}
    if work.steps > 1:
        left[batches // work.steps] = "one step"
    yield from zip(left.values(), halted(scene, work, list(left)), strict=True)
    (part,) = halted(scene, work, [done := math.ceil(0.7 * batches)])
    yield "skips 30%, stretched", stretched(work.before, part, batches / done)


def skips(batches: int) -> list[int]:
    """How many batches to leave out; none twice."""
    return sorted({max(1, round(share * batches)) for share in SKIPPED})


def skipped(share: float) -> str:
    """Name a share of the batches that were left out."""
    low, high = next((a, b) for a, b in pairwise(EDGES) if share < b)
    return f"skips {low:.0%} to {high:.0%}"


def noisy(before: Parameters, own: Parameters, rng: np.random.Generator) -> Parameters:
    """Random parameters as far from ``before`` as ``own``."""
    source = torch.Generator().manual_seed(int(rng.integers(2**31)))
    noise = {n: torch.randn(v.shape, generator=source) for n, v in before.items()}
    scale = norm(own, before) / norm(noise)
    return {name: value + scale * noise[name] for name, value in before.items()}


def moved(before: Parameters, start: Parameters, end: Parameters) -> Parameters:
    """``before``, moved from ``start`` to ``end``."""
    return {name: value + end[name] - start[name] for name, value in before.items()}


def stretched(before: Parameters, part: Parameters, by: float) -> Parameters:
    """``before`` with the move to ``part`` made longer, to look like all the work."""
    return {name: value + by * (part[name] - value) for name, value in before.items()}


def norm(one: Parameters, other: Parameters | None = None) -> float:
    """Euclidean length, of a difference where there are two."""
    parts = [v - other[n] if other else v for n, v in one.items()]
    return math.sqrt(sum(float(part.double().square().sum()) for part in parts))


Forward = Callable[[nn.Module, Tensor], Tensor]


class Other(nn.Module):
    """A model under another arithmetic."""

    def __init__(self, model: nn.Module, forward: Forward) -> None:
        super().__init__()
        self.model, self._forward_of = model, forward

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self._forward_of(self.model, x)


def autocast(model: nn.Module, x: Tensor) -> Tensor:
    """Mixed precision as torch does it: products and their results in bfloat16."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits: Tensor = model(x)
    return logits.float()


def rounded(bits: int) -> Forward:
    """Emulate hardware that keeps so many fraction bits of a product's operands.

    10 is TF32, 7 is bfloat16 with float32 sums. Weights and inputs of the forward
    products are rounded; gradients pass through, their own products see the rounded.
    """
    drop = 23 - bits

    def short(value: Tensor) -> Tensor:
        raw = value.detach().contiguous().view(torch.int32)
        near = ((raw + (1 << (drop - 1))) >> drop << drop).view(torch.float32)
        return value + (near - value.detach())

    def forward(model: nn.Module, x: Tensor) -> Tensor:
        weights = {n: short(p) for n, p in model.named_parameters() if p.ndim > 1}
        logits: Tensor = functional_call(model, weights, (x,))
        return logits

    def prepared(model: nn.Module, x: Tensor) -> Tensor:
        hooks = [
            layer.register_forward_pre_hook(lambda _, inputs: (short(inputs[0]),))
            for layer in model.modules()
            if isinstance(layer, nn.Linear | nn.Conv2d)
        ]
        logits = forward(model, x)
        for hook in hooks:
            hook.remove()
        return logits

    return prepared


def other_devices(
    scene: Scene, work: Work, threads: bool
) -> Iterator[tuple[str, Parameters]]:
    """Honest work under other floating-point arithmetic.

    A second thread is slow where others use the cores: only where ``threads`` says so.
    """
    samples = scene.samples[:]

    def by(
        forward: Forward | None = None,
        plan: Ints = work.plan,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> Parameters:
        twin = copy.deepcopy(scene.model)
        put(work.before, twin)
        twin = twin.to(device, dtype)
        there = pairs(samples["x"].to(device, dtype), samples["y"].to(device))
        train(Other(twin, forward) if forward else twin, there, plan, scene.training)
        return {name: v.float().cpu() for name, v in parameters_of(twin).items()}

    yield "honest: same machine", by()
    if threads:
        torch.set_num_threads(2)
        yield "honest: 2 threads", by()
        torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    yield "honest: sums reordered", by(plan=rng.permuted(work.plan, axis=1))
    yield "honest: float64", by(dtype=torch.float64)
    yield "TF32 emulated", by(rounded(10))
    yield "bf16 emulated", by(rounded(7))
    yield "bf16 autocast", by(autocast)
    if torch.cuda.is_available():
        torch.backends.cudnn.allow_tf32 = False
        yield "honest: a GPU", by(device="cuda")
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cuda.matmul.allow_tf32 = True
        yield "TF32, a GPU", by(device="cuda")
        torch.backends.cuda.matmul.allow_tf32 = False


class Suspect:
    """Compares one learner's samples with as many that it was not sent."""

    def __init__(self, scene: Scene, work: Work) -> None:
        rng = np.random.default_rng([scene.seed, len(work.rows)])
        rest = np.setdiff1d(np.arange(len(scene.samples)), work.rows)
        others = rng.choice(rest, min(len(work.rows), len(rest)), replace=False)
        self._scene, self._work, self._rows = scene, work, (work.rows, others)
        self._before = self._losses(work.before)

    def gap(self, update: Parameters) -> Gap:
        """What the forward passes tell of an update."""
        own, others = map(Losses, self._before, self._losses(update))
        return gap(own, others, self._work.steps)

    def _losses(self, parameters: Parameters) -> list[Floats]:
        scene, loss = self._scene, loss_of(self._scene.training)
        return [
            losses(scene.model, parameters, Part(scene.samples, rows), loss)
            for rows in self._rows
        ]


def check(
    scene: Scene, mine: Sequence[Work], earlier: Sequence[Work], results: Results
) -> None:
    """Answer in every way, for each learner of a cycle; add to ``results``."""
    gaps: list[Gap] = []
    answered: list[tuple[int, str, Gap]] = []
    for k, work in enumerate(mine):
        own, again, suspect, seconds = timed(scene, work)
        for what, took_s in seconds.items():
            results.seconds[what, work.steps] += took_s
        gaps.append(suspect.gap(own))
        other = mine[(k + 1) % len(mine)]
        answers = lies(scene, work, own, other, earlier[k] if earlier else None)
        for answering in (other_devices(scene, work, k == 0), answers):
            for name, update in answering:
                away = distance(update, again, work.before)
                results.distances[name].append(away)
                answered.append((k, name, suspect.gap(update)))
    for k, name, own_gap in answered:
        peers = usual([*gaps[:k], own_gap, *gaps[k + 1 :]])
        results.suspicions[name].append(suspicion(own_gap, peers))


def timed(
    scene: Scene, work: Work
) -> tuple[Parameters, Parameters, Suspect, dict[str, float]]:
    """The honest update, its redo and its suspect, and the seconds of each."""
    samples = scene.samples
    start = time.perf_counter()
    own = trained(scene, work.before, work.plan)
    between = time.perf_counter()
    again = redone(scene.model, work.before, samples, work.plan, scene.training)
    done = time.perf_counter()
    suspect = Suspect(scene, work)
    suspect.gap(own)
    end = time.perf_counter()
    seconds = {"own": between - start, "redo": done - between, "suspect": end - done}
    return own, again, suspect, seconds


def run(
    scene: Scene, cycles: Sequence[int], all_steps: Sequence[int], results: Results
) -> None:
    """Train honestly up to the last of ``cycles``; check each of them."""
    rng = np.random.default_rng(scene.seed)
    before = parameters_of(scene.model)
    pieces = len(scene.samples) // SHARD
    last: tuple[Parameters, list[Ints]] | None = None
    for cycle in range(1, max(cycles) + 1):
        shards = shared_out(pieces, scene.learners, rng)
        for steps in all_steps if cycle in cycles else ():
            mine = works(scene, before, shards, cycle, steps)
            earlier = works(scene, *last, cycle - 1, steps) if last else []
            check(scene, mine, earlier, results)
        last = before, shards
        before = aggregated(scene, works(scene, before, shards, cycle, 2))


def warm_up(scene: Scene) -> None:
    """Let no learner pay for what is done once in a process."""
    first = works(scene, parameters_of(scene.model), [np.arange(FEWEST)], 0, 1)
    timed(scene, first[0])


def aggregated(scene: Scene, work: Sequence[Work]) -> Parameters:
    """One honest cycle."""
    mean = WeightedMean()
    updates = [trained(scene, one.before, one.plan) for one in work]
    mean.add(stacked(updates), [len(one.rows) for one in work])
    return mean.result()


def wilson(hits: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a rate."""
    middle, wide = (
        (hits + z * z / 2),
        z * math.sqrt(hits * (trials - hits) / trials + z * z / 4),
    )
    return (middle - wide) / (trials + z * z), (middle + wide) / (trials + z * z)


def line(name: str, results: Results, alarm: float) -> str:
    """A row of the table."""
    far = np.array(results.distances[name])
    suspect = np.array(results.suspicions[name])
    caught = sum(not honest(float(away)) for away in far)
    low, high = wilson(caught, len(far))
    chance = np.mean([redo_chance(SHARE, float(one)) for one in suspect])
    return (
        f"{name:<26}{len(far):>6}{caught / len(far):>8.1%}"
        f"{f'({max(low, 0):.1%} to {min(high, 1):.1%})':>20}"
        f"{far.min():>10.2g}{np.median(far):>9.2g}{far.max():>9.2g}"
        f"{np.mean(suspect > alarm):>9.0%}{chance:>8.0%}"
    )


def report(title: str, results: Results) -> None:
    """Print the tables of one model."""
    print(
        f"{title}\n\n{'answer':<26}{'trials':>6}{'redo':>8}{'95 %':>20}"
        f"{'distance':>10}{'median':>9}{'most':>9}{'suspect':>9}{'chance':>8}"
    )
    plain = results.suspicions["honest: same machine"]
    alarm = float(np.quantile(plain, 1 - FALSE_ALARMS, method="higher"))
    for name, _ in sorted(results.distances.items(), key=lambda row: np.median(row[1])):
        print(line(name, results, alarm))
    print(f"\nfalse from {FALSE_FROM}; alarm over a suspicion of {alarm:.3f}\n")
    for steps in sorted({steps for _, steps in results.seconds}):
        own_s = results.seconds["own", steps]
        redo, suspect = (results.seconds[w, steps] / own_s for w in ("redo", "suspect"))
        print(f"{steps} steps: redo {redo:.2f} x, suspect {suspect:.2f} x its training")


def main(
    names: Annotated[str, typer.Option("--models", help="Commas between.")] = "TwoNN",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 2,
    optimiser: Annotated[str, typer.Option()] = "sgd",
    rate: Annotated[float, typer.Option(help="Of learning.")] = 0.05,
    learners: Annotated[int, typer.Option(min=2)] = LEARNERS,
    cycles: Annotated[str, typer.Option(help="That are checked.")] = "1,5,20",
    steps: Annotated[str, typer.Option(help="Of each learner.")] = "1,2,5",
) -> None:
    """Print a table for each model."""
    print(provenance(), flush=True)
    torch.set_num_threads(1)
    training = Training(optimiser=optimiser, rate=rate)
    checked, all_steps = ([int(n) for n in one.split(",")] for one in (cycles, steps))
    samples = Arrays(numbers(load("mnist-5k").train[:]))
    for name in names.split(","):
        start, results = time.perf_counter(), Results()
        warm_up(Scene(models.build(name, 0), samples, training, 0))
        for seed in range(seeds):
            scene = Scene(models.build(name, seed), samples, training, seed, learners)
            run(scene, checked, all_steps, results)
        report(f"{name}, {training.optimiser}, rate {training.rate:g}", results)
        print(f"took {time.perf_counter() - start:.0f} s\n")


if __name__ == "__main__":
    typer.run(main)
