"""Gradient codes: how exact and how fast, and what they save on the paper's testbed.

    python benchmarks/bench_coding.py                       everything, some minutes
    python benchmarks/bench_coding.py --only testbed,many   some of it
    python benchmarks/bench_coding.py --epochs 200          fewer epochs
    python benchmarks/bench_coding.py --workers 10 --patterns 40 --parameters 100000

``decode``: weights for n workers of which s are missing, in random patterns and, each
fourth time, neighbours; the error is that of the decoded sum of random gradients, in
float64. "tandon" is the cyclic code as its authors draw it (rows from the null space of
a random H), decoded by least squares.

``combine``: encoding and decoding 10 million float32 parameters, beside plain weighted
sums in torch on one thread.

``testbed``: 6 workers with 2, 2, 4, 4, 8 and 8 cores in virtual time. Each epoch one or
two of them, drawn at random, are 8 times slower, or dead; everybody's speed varies by
5 % (log-normal). Times are in units of the ideal iteration: all workers fine, all work
shared out perfectly. Codes that do not know speeds get workers in random order.

``many``: the same with hundreds of workers, whose speeds are 1 to 4.

``persistent``: stragglers stay for about five epochs, and nobody tells speeds.

Shown here on one of two shared cores of a Xeon; tables in ``docs/coding.md``.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
import typer
from threadpoolctl import threadpool_limits

from melisma.coding import (
    CODES,
    Code,
    History,
    Plan,
    TwoStage,
    choose,
    combine,
    cyclic,
    earliest,
    fractional,
    genie_s,
    hetero,
    iterate,
    iterate_in_stages,
    two_stage,
    uncoded,
)
from melisma.coding.choice import timed
from melisma.maths.arrays import Floats
from melisma.maths.statistics import mean_interval
from melisma.provenance import provenance

CORES = np.array([2.0, 2.0, 4.0, 4.0, 8.0, 8.0])
SPEEDS = CORES / CORES.sum()  # the ideal iteration takes 1
JITTER = 0.05
MANY = [(100, 5), (100, 20), (1000, 50)]  #: workers, and how many of them are late


def best_seconds(tasks: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Each task's best time of several, in turns, so that noise hits all alike."""
    best = dict.fromkeys(tasks, np.inf)
    for _ in range(rounds):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


# --- decode ---------------------------------------------------------------------------


def missing(n: int, s: int, count: int) -> Iterator[Any]:
    """Masks of those alive."""
    rng = np.random.default_rng(0)
    for i in range(count):
        gone = rng.permutation(n)[:s]
        if i % 4 == 0:
            gone = (rng.integers(n) + np.arange(s)) % n
        alive = np.ones(n, dtype=np.bool_)
        alive[gone] = False
        yield alive


def tandon(n: int, s: int, seed: int) -> Floats:
    """B of the cyclic code as in Tandon et al., algorithm 2."""
    H = np.random.default_rng(seed).standard_normal((s, n))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    B = np.zeros((n, n))
    for i in range(n):
        columns = (i + np.arange(s + 1)) % n
        B[i, columns[0]] = 1.0
        B[i, columns[1:]] = -np.linalg.solve(H[:, columns[1:]], H[:, columns[0]])
    return B


def least_squares(B: Floats, alive: Any) -> Floats:
    """Weights as one would find them from B alone."""
    weights = np.zeros(len(B))
    weights[alive] = np.linalg.lstsq(B[alive].T, np.ones(B.shape[1]))[0]
    return weights


def amplification(B: Floats, weights: Floats) -> float:
    """What ``Code.amplification`` gives, from B alone."""
    return float(np.linalg.norm(weights * np.linalg.norm(B, axis=1)) / np.sqrt(len(B)))


Decoder = tuple[Any, Callable[[Any], Floats], Callable[[Floats], float]]


def built_code(name: str, n: int, s: int) -> Decoder:
    """B, what decodes it and what tells the amplification."""
    if name == "tandon":
        B = tandon(n, s, 0)
        return B, partial(least_squares, B), partial(amplification, B)
    speeds = np.random.default_rng(5).uniform(1.0, 4.0, n)
    known = {} if name == "cyclic" else {"speeds": speeds}
    code = CODES[name](workers=n, stragglers=s, **known)
    return code.matrix, code.decode, code.amplification


def row_of_decode(name: str, n: int, s: int, patterns: int) -> str:
    """Build a code and decode where workers are missing; return the row."""
    start = time.perf_counter()
    B, decode, amplified_by = built_code(name, n, s)
    built = time.perf_counter() - start
    g = np.random.default_rng(1).standard_normal((B.shape[1], 100))
    answers, whole = B @ g, g.sum(axis=0)
    errors, times, amplified = [], [], []
    for alive in missing(n, s, patterns):
        start = time.perf_counter()
        weights = decode(alive)
        times.append(time.perf_counter() - start)
        off = np.linalg.norm(weights @ answers - whole) / np.linalg.norm(whole)
        errors.append(off)
        amplified.append(amplified_by(weights))
    return (
        f"{n:>6,}{s:>5}  {name:<11}{B.shape[1]:>6,}{built:>9.3f} s"
        f"{1e3 * np.median(times):>10.2f} ms{np.median(errors):>10.0e}"
        f"{max(errors):>9.0e}{np.median(amplified):>9.1f}{max(amplified):>9.0f}"
    )


def decode(workers: int, patterns: int) -> None:
    """Print the table of decoding weights, for so many workers at most."""
    print(
        f"{'n':>6}{'s':>5}  {'code':<11}{'K':>6}{'build':>11}{'weights':>13}"
        f"{'error':>10}{'worst':>9}{'ampl.':>9}{'worst':>9}"
    )
    for n, s in [(10, 1), (10, 3), (100, 10), (100, 30), (1000, 10), (1000, 100)]:
        for name in ("fractional", "cyclic", "hetero", "tandon"):
            if n <= (min(workers, 100) if name == "tandon" else workers):
                tried = patterns if n <= 100 else patterns // 50
                print(row_of_decode(name, n, s, tried), flush=True)


# --- combine --------------------------------------------------------------------------


def row_of_combine(what: str, weights: Floats, parameters: int) -> str:
    """Time one weighted sum of long rows, ours and torch's."""
    k = len(weights)
    rows = np.random.default_rng(0).standard_normal((k, parameters), dtype=np.float32)
    stacked, w32 = torch.from_numpy(rows), torch.from_numpy(weights).float()

    def plain() -> torch.Tensor:
        terms = (float(w) * g for w, g in zip(weights, stacked, strict=True))
        return sum(terms, start=torch.zeros(()))

    def in_place() -> torch.Tensor:
        total: torch.Tensor = stacked[0] * float(weights[0])
        for w, g in zip(weights[1:], stacked[1:], strict=True):
            total.add_(g, alpha=float(w))
        return total

    tasks: dict[str, Callable[[], Any]] = {
        "ours": lambda: combine(weights, list(rows)),
        "sum(w * g)": plain,
        "add_(g, alpha=w)": in_place,
        "w @ G": lambda: w32 @ stacked,
    }
    part = slice(0, 100_000)
    exact = weights @ rows[:, part].astype(np.float64)
    times = best_seconds(tasks, 15)
    lines = [f"{what}: {k} rows of {parameters:,} float32"]
    for name, task in tasks.items():
        off = np.asarray(task())[part] - exact
        error = np.linalg.norm(off) / np.linalg.norm(exact)
        lines.append(
            f"  {name:<18}{1e3 * times[name]:>8.3g} ms{error:>10.1e}"
            f"{times[name] / times['ours']:>8.2f} of our time"
        )
    return "\n".join(lines)


def combining(parameters: int) -> None:
    """Print encoding and decoding of a large gradient."""
    code = cyclic(workers=12, stragglers=4)
    print(row_of_combine("encode", code.row(0), parameters))
    weights = code.decode(np.arange(12) >= 4)
    print(row_of_combine("decode", weights[weights != 0], parameters))


# --- testbed --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """How many straggle, and how."""

    late: int
    factor: float

    def epochs(self, count: int, seed: int) -> Floats:
        """Seconds of each worker for all data, epochs × workers."""
        rng = np.random.default_rng([seed, self.late])
        whole_s = np.exp(JITTER * rng.standard_normal((count, 6))) / SPEEDS
        late = rng.permuted(np.tile(np.arange(6) < self.late, (count, 1)), axis=1)
        return np.asarray(np.where(late, whole_s * self.factor, whole_s))


def of_code(code: Code, epochs: Floats, shuffled: bool = False) -> Floats:
    """Durations of a code in one stage."""
    order = np.random.default_rng(9).permuted(
        np.tile(np.arange(6), (len(epochs), 1)), axis=1
    )
    if shuffled:
        epochs = np.take_along_axis(epochs, order, axis=1)
    return np.array([iterate(code, row).duration_s for row in epochs])


def of_plans(plans: list[Plan], epochs: Floats) -> Floats:
    """Durations of two-stage schemes, one after the other in turn."""
    return np.array(
        [
            iterate_in_stages(
                (plan := plans[i % len(plans)]).scheme, plan.t_comp_s, row
            ).duration_s
            for i, row in enumerate(epochs)
        ]
    )


def surprised(plan: Plan, epochs: Floats, part: float) -> Floats:
    """Durations where, in a part of epochs, a helper turns 8 times slower at T_comp."""
    rng = np.random.default_rng(7)
    durations = []
    for row in epochs:
        outcome = iterate_in_stages(plan.scheme, plan.t_comp_s, row)
        durations.append(outcome.duration_s)
        if outcome.rest is None or outcome.second_s is None or rng.random() >= part:
            continue
        answered_s, helper = outcome.second_s.copy(), rng.choice(outcome.rest.helpers)
        answered_s[helper] += 7.0 * (answered_s[helper] - plan.t_comp_s)
        durations[-1] = earliest(outcome.rest.code, answered_s)[0]
    return np.array(durations)


def papers(s: int, scenarios: Floats) -> list[Plan]:
    """The paper's scheme: M₁ workers drawn at random, M₁ and T_comp the best."""
    best: list[Plan] = []
    for first in range(2, 6):
        plans = [
            timed(
                two_stage(
                    workers=6,
                    stragglers=s,
                    speeds=SPEEDS,
                    helpers="reserved",
                    first=first,
                    seed=seed,
                ),
                scenarios[:40],
            )
            for seed in range(8)
        ]
        if not best or expected_s(plans) < expected_s(best):
            best = plans
    return best


def waiting(s: int, first: int) -> list[Plan]:
    """The paper's scheme where stage one is waited for: 15 % longer than usual."""
    plans = []
    for seed in range(8):
        scheme = two_stage(
            workers=6,
            stragglers=s,
            speeds=SPEEDS,
            helpers="reserved",
            first=first,
            seed=seed,
        )
        usual_s = float((scheme.loads / scheme.partitions / SPEEDS).max())
        plans.append(Plan(scheme=scheme, t_comp_s=1.15 * usual_s, expected_s=np.nan))
    return plans


def expected_s(plans: list[Plan]) -> float:
    """Mean over plans."""
    return float(np.mean([plan.expected_s for plan in plans]))


def rows_of_testbed(
    trouble: Trouble, epochs: int, scenarios: int
) -> Iterator[tuple[str, Floats, str]]:
    """Name, durations and a note of each scheme; stragglers are known in number."""
    s = trouble.late
    planning, times = trouble.epochs(scenarios, 1), trouble.epochs(epochs, 2)
    known: dict[str, Any] = {"workers": 6, "stragglers": s, "speeds": SPEEDS}
    equal: dict[str, Any] = {"workers": 6, "stragglers": s}
    yield "genie's bound", np.array([genie_s(row) for row in times]), ""
    yield "uncoded", of_code(uncoded(**known), times), ""
    yield "cyclic", of_code(cyclic(**equal), times, True), ""
    yield "fractional, equal loads", of_code(fractional(**equal), times, True), ""
    yield "fractional, loads by speed", of_code(fractional(**known), times), ""
    yield "heterogeneity-aware", of_code(hetero(**known), times), ""
    plans = papers(s, planning)
    best = np.count_nonzero(plans[0].scheme.loads)
    waits = [plan.t_comp_s for plan in plans]
    note = f"M₁ = {best} at random, T_comp = {min(waits):.2f} to {max(waits):.2f}"
    yield "two-stage, the paper's", of_plans(plans, times), note
    for first in (3, 4):
        name, note = (
            f"  M₁ = {first}",
            "at random, T_comp 15 % after stage one's usual end",
        )
        yield name, of_plans(waiting(s, first), times), note
    plan = choose(planning, stragglers=s, speeds=SPEEDS, helpers="reserved")
    cores = CORES[plan.scheme.loads > 0].astype(int).tolist()
    note = f"T_comp = {plan.t_comp_s:.2f}, {cores} start"
    yield "  who starts chosen too", of_plans([plan], times), note
    scheme = two_stage(workers=6, stragglers=s, speeds=SPEEDS, coded="ring")
    plan = timed(scheme, planning)
    note = f"T_comp = {plan.t_comp_s:.2f}"
    yield "  finished help, ring", of_plans([plan], times), note
    plan = choose(planning, stragglers=s, speeds=SPEEDS)
    note = f"T_comp = {plan.t_comp_s:.2f}"
    yield "two-stage, ours", of_plans([plan], times), note
    note = "in 10 % of epochs, on top of the s"
    yield "  a helper turns slow", surprised(plan, times, 0.1), note
    for trusting in (False, True):
        name = f"  told s = {s + 1}" + trusting * ", trusting"
        plan = choose(planning, stragglers=s + 1, speeds=SPEEDS, trusting=trusting)
        yield name, of_plans([plan], times), f"T_comp = {plan.t_comp_s:.2f}"
        if not trusting:
            yield (
                f"  told s = {s + 1}, a helper slow",
                surprised(plan, times, 0.1),
                note,
            )


def testbed(stragglers: Sequence[int], epochs: int, scenarios: int) -> None:
    """Print mean iteration times with 95 % intervals."""
    for late in stragglers:
        for factor in (8.0, np.inf):
            how = "dead" if factor == np.inf else f"{factor:g} times slower"
            print(f"{late} of 6 workers {how}, {epochs:,} epochs")
            for name, durations, note in rows_of_testbed(
                Trouble(late=late, factor=factor), epochs, scenarios
            ):
                if np.isinf(durations).any():
                    part = np.isinf(durations).mean()
                    print(f"  {name:<28}{'never':>7} in {part:.1%} of epochs  {note}")
                    continue
                mean, half = mean_interval(durations)
                print(f"  {name:<28}{mean:>7.3f} ± {half:.3f}  {note}", flush=True)


# --- many -----------------------------------------------------------------------------


def many(epochs: int, workers: int) -> None:
    """Print mean iteration times of hundreds of workers, so many at most."""
    cases = [case for case in MANY if case[0] <= workers]
    for n, s in cases or [(workers, workers // 5)]:
        rng = np.random.default_rng(n)
        speeds = rng.uniform(1.0, 4.0, n)
        speeds /= speeds.sum()
        whole_s = np.exp(JITTER * rng.standard_normal((epochs, n))) / speeds
        late = rng.permuted(np.tile(np.arange(n) < s, (epochs, 1)), axis=1)
        times = np.where(late, 8.0 * whole_s, whole_s)
        known: dict[str, Any] = {"workers": n, "stragglers": s, "speeds": speeds}
        schemes: dict[str, Callable[[Floats], float]] = {
            "genie's bound": genie_s,
            "uncoded": partial(duration_s, uncoded(**known)),
            "fractional, loads by speed": partial(duration_s, fractional(**known)),
            "heterogeneity-aware": partial(duration_s, hetero(**known)),
            "two-stage, ours": partial(staged_s, two_stage(**known)),
        }
        print(f"{s} of {n:,} workers 8 times slower, {epochs} epochs, T_comp = 1.15")
        for name, scheme in schemes.items():
            mean, half = mean_interval([scheme(row) for row in times])
            print(f"  {name:<28}{mean:>7.3f} ± {half:.3f}", flush=True)


def duration_s(code: Code, whole_s: Floats) -> float:
    """Duration of one stage."""
    return iterate(code, whole_s).duration_s


def staged_s(scheme: TwoStage, whole_s: Floats) -> float:
    """Duration of two, the second from 1.15 on: 3 sigma after the usual end."""
    return iterate_in_stages(scheme, 1.15, whole_s).duration_s


# --- persistent -----------------------------------------------------------------------


def chains(epochs: int, seed: int) -> Floats:
    """Seconds for all data where each worker straggles for five epochs at a time."""
    rng = np.random.default_rng(seed)
    late = np.zeros(6, dtype=np.bool_)
    rows = []
    for _ in range(epochs):
        late = np.where(late, rng.random(6) < 0.8, rng.random(6) < 0.04)
        whole_s = np.exp(JITTER * rng.standard_normal(6)) / SPEEDS
        rows.append(np.where(late, 8.0 * whole_s, whole_s))
    return np.array(rows)


def learned(times: Floats, scenarios: int) -> tuple[Floats, Floats]:
    """Durations, and s, of ours when it has to learn speeds: equal ones at first."""
    history, rng = History(6), np.random.default_rng(0)
    scheme, t_comp_s = two_stage(workers=6, stragglers=1), 4.0
    durations, predicted = [], []
    for row in times:
        outcome = iterate_in_stages(scheme, t_comp_s, row)
        durations.append(outcome.duration_s)
        history.see(
            scheme.loads / scheme.partitions, outcome.answered_s, outcome.duration_s
        )
        if not np.isnan(history.usual).any():
            s = min(history.stragglers(), 5)
            plan = choose(
                history.scenarios(scenarios, rng),
                stragglers=s,
                speeds=history.speeds,
                trusting=True,
            )
            scheme, t_comp_s = plan.scheme, plan.t_comp_s
            predicted.append(s)
    return np.array(durations), np.array(predicted)


def persistent(epochs: int, scenarios: int) -> None:
    """Print what learning brings where stragglers stay.

    The last two columns: epochs with the stragglers of the one before, and others.
    """
    times, planning = chains(epochs, 3), chains(scenarios, 4)
    late = times * SPEEDS > 3.0
    changed = (late[1:] != late[:-1]).any(axis=1)
    known: dict[str, Any] = {"workers": 6, "speeds": SPEEDS}
    print(f"stragglers that stay five epochs, one in six workers, {epochs} epochs")
    rows = {"genie's bound": np.array([genie_s(row) for row in times])}
    for s in (1, 2, 3):
        code = hetero(stragglers=s, **known)
        rows[f"heterogeneity-aware, s = {s}"] = of_code(code, times)
        plan = choose(planning, stragglers=s, speeds=SPEEDS, trusting=True)
        rows[f"two-stage, ours, s = {s}"] = of_plans([plan], times)
    rows["two-stage, ours, learned"], predicted = learned(times, min(24, scenarios))
    for name, durations in rows.items():
        # Neighbouring epochs are alike, means of twenty of them hardly.
        mean, half = mean_interval(durations.reshape(-1, 20).mean(axis=1))
        print(
            f"  {name:<28}{mean:>7.3f} ± {half:.3f}"
            f"{durations[1:][~changed].mean():>9.3f}{durations[1:][changed].mean():>9.3f}"
        )
    print(
        f"  s as predicted: {predicted.min()} to {predicted.max()}, "
        f"{predicted.mean():.1f} on average"
    )


def main(
    only: Annotated[
        str, typer.Option(help="of decode,combine,testbed,many,persistent")
    ] = "decode,combine,testbed,many,persistent",
    epochs: Annotated[int, typer.Option(help="epochs of the testbed")] = 2000,
    stragglers: Annotated[str, typer.Option(help="in the testbed")] = "1,2",
    scenarios: Annotated[int, typer.Option(help="by which T_comp is chosen")] = 100,
    workers: Annotated[int, typer.Option(help="at most, in decode and many")] = 1000,
    patterns: Annotated[int, typer.Option(help="of workers missing, decode")] = 2000,
    parameters: Annotated[int, typer.Option(help="in combine")] = 10_000_000,
) -> None:
    """Print the tables."""
    print(provenance(), flush=True)
    torch.set_num_threads(1)
    threadpool_limits(1)  # numpy's, for the least squares of "tandon"
    late = [int(number) for number in stragglers.split(",")]
    parts: dict[str, Callable[[], None]] = {
        "decode": lambda: decode(workers, patterns),
        "combine": lambda: combining(parameters),
        "testbed": lambda: testbed(late, epochs, scenarios),
        "many": lambda: many(max(epochs // 50, 5), workers),
        "persistent": lambda: persistent(max(epochs // 100, 2) * 20, scenarios),
    }
    for name in only.split(","):
        parts[name]()
        print()


if __name__ == "__main__":
    typer.run(main)
