"""Seconds per cycle of simulated federated averaging, ours beside its peers.

    python benchmarks/bench_simulation.py                    K = 100: the bars
    python benchmarks/bench_simulation.py --learners 1000    ten minutes, for Flower
    python benchmarks/bench_simulation.py --big              melisma alone, K = 10,000
    python benchmarks/bench_simulation.py --models           melisma's own engines
    python benchmarks/bench_simulation.py --modules          any module, with AdamW

K learners have 100 samples of 784 features each. In every cycle each trains the
perceptron 784-50-20-10 on them, one epoch of SGD in batches of 32, 32, 32 and 4, and
the results are averaged by samples. All engines start from the same weights and must
end in the same; each run is a process of its own with one thread (Flower: two actors
with one each, and melisma once more with two), and engines take turns. The best cycle
of all runs counts. Melisma allocates, prices, reports and writes its records, as for
any user.

Shown here on two cores of a shared Xeon, torch 2.13.0, pfl 0.6.0, Flower 1.41.0 on
Ray 2.55.1:

    K = 100, best of 6 runs, Flower's of 1
                  first (s)  best (s)  CPU (s)  all 5 (s)  MB     × ours
    melisma       0.05       0.033     0.033    0.19       518
    plain loop    1.36       0.180     0.180    2.24       549    5.5
    pfl           1.31       0.233     0.233    2.63       619    7.1
    on two cores
    melisma       0.04       0.023     0.035    0.15       528
    Flower        11.9       0.988     1.560    16.4       2307   44

    K = 1000, best of 4 runs
    melisma       0.37       0.335     0.335    1.77       536
    plain loop    3.21       1.979     1.979    11.7       832    5.9
    pfl           4.67       2.676     2.676    17.0       909    8.0

    K = 10,000, one run
    melisma                  4.28      4.28     22.6       550

    --models      one by one (ms)  vmap (ms)  perceptrons (ms)
    TwoNN         52.5             24.4       8.1
    ThreeNN       151              117        60.8
    ConvNet       263              291
    FashionNet    939              1322

On two busy cores of a Neoverse-N1, in processor time, best of 10 runs at K = 100:
melisma 0.113 s, plain loop 0.90 s, 7.6 to 8.9 times ours; before melisma left oneDNN
out, 0.236 and 0.98 s, 4.2 times. ``--models``: perceptrons are 5.8 (TwoNN) and 1.9
times (ThreeNN) as fast as one by one, vmap no faster with convolutions.

``--modules``, and the end of every run with K = 100: modules that are no chain of
layers train for one epoch with AdamW, 100 learners with 40 to 160 samples each, by the
engine that melisma chooses, beside a plain loop over learners in the same process. By
processor time, on two busy cores of a Neoverse-N1, torch 2.13.0:

    100 learners             engine      ours (s)  loop (s)  × ours  same kernels
    transformer block        torch.func  1.33      3.98      3.0     1.7
    residual perceptron      torch.func  0.34      3.34      9.9     4.7
    batch normalisation      one by one  0.94      1.70      1.8     1.1
    tied autoencoder         torch.func  0.13      1.04      8.3     4.3
    residual convolutions    one by one  2.63      4.74      1.8     1.04
    recurrent                torch.func  0.96      7.42      7.7     3.4

The loop takes torch's kernels as they are, and again as `learning/kernels.py` chooses
them, which is the same on x86. In double precision all weights agree to 3e-11; in
single, Adam divides a gradient that is nothing but rounding by its own size, and
weights may be off by 7e-3 of the way that they went.

Load shows: while others kept both cores busy, single runs gave from 3.3 to 5.5 times
the loop, 4.1 to 7.1 times pfl and 23 to 58 times Flower. More ``--repeats`` help.
ThreeNN's weights may differ by 1e-4 between engines: a unit at the edge of its ReLU
rounds to either side. In double precision they agree to 3e-17.

On x86 all weights agree to 2e-7, but for Flower's at K = 1000, which end 6e-6 off: it
adds up its clients one by one in single precision. The same sum over melisma's updates
ends 6e-6 off as well. On ARM melisma's are 1.3e-6 from the loop's at K = 100: melisma
leaves oneDNN out (`learning/kernels.py`), and one unit of one learner rounds to the
other side of its ReLU.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from peers.running import Engine, Runs, run_here, run_in_turn
from rich.console import Console
from rich.table import Table

from melisma.provenance import provenance

OURS = Engine(name="melisma", title="melisma", module="ours")
TWO = Engine(
    name="melisma-2", title="melisma, 2 threads", module="ours_on_two", cores=2
)
PLAIN = Engine(name="plain", title="plain PyTorch loop", module="plain", bar=4.5)
PFL = Engine(
    name="pfl",
    title="pfl-research",
    module="pfl_research",
    packages={"pfl": "pfl"},
    bar=6.0,
)
FLOWER = Engine(
    name="flower",
    title="Flower simulation",
    module="flower",
    packages={"flwr": "flwr", "ray": "ray"},
    repeats=1,
    cores=2,
    family=True,
    bar=20.0,  # 44 on a Xeon, 22 on a Neoverse-N1, where our time is products
)
ENGINES = {engine.name: engine for engine in (OURS, TWO, PLAIN, PFL, FLOWER)}
ALL = ",".join(ENGINES)

BARS_AT = 100  #: learners
#: Weights that differ by more come from another computation. Kernels that round
#: otherwise may put a unit on the other side of its ReLU, which at K = 100 moves a
#: weight by 1e-6; one batch of four left out moves it by 4e-4.
TOLERANCE = 1e-5
MODULES_TOLERANCE = 1e-9  #: the same in double precision
BIG, BIG_BYTES = 10_000, 2e9  #: learners, and the memory they may take

out, err = Console(width=110), Console(stderr=True)

Learners = Annotated[
    list[int] | None, typer.Option(help="Several numbers give several tables. [100]")
]
Cycles = Annotated[int, typer.Option(min=1, help="Cycles of each run.")]
Repeats = Annotated[int, typer.Option(min=1, help="Runs of each; Flower has one.")]
Names = Annotated[str, typer.Option(help="Which engines, with commas between.")]
Big = Annotated[bool, typer.Option("--big", help=f"Melisma alone, K = {BIG:,}.")]
Models = Annotated[bool, typer.Option("--models", help="Melisma's own engines.")]
Modules = Annotated[bool, typer.Option("--modules", help="Any module, with AdamW.")]
Into = Annotated[Path | None, typer.Option(hidden=True)]


def main(
    learners: Learners = None,
    cycles: Cycles = 5,
    repeats: Repeats = 3,
    engines: Names = ALL,
    big: Big = False,
    models: Models = False,
    modules: Modules = False,
    into: Into = None,
) -> None:
    """Time simulated federated averaging; exit code 1 if the weights differ."""
    chosen = [_engine(name) for name in engines.split(",")]
    sizes = learners or [BARS_AT]
    if into is not None:  # this is the process of one engine
        run_here(chosen[0], sizes[0], cycles, into)
        return
    print(provenance(), flush=True)
    if models:
        show_models(repeats)
    elif big:
        show_big(cycles)
    else:
        held = [] if modules else sizes
        sound = [show_engines(chosen, K, cycles, repeats) for K in held]
        if modules or BARS_AT in sizes:
            sound.append(show_modules(BARS_AT, repeats))
        raise typer.Exit(0 if all(sound) else 1)


def _engine(name: str) -> Engine:
    if name not in ENGINES:
        raise typer.BadParameter(f"{name} is none of {', '.join(ENGINES)}")
    return ENGINES[name]


def show_engines(
    engines: Sequence[Engine], learners: int, cycles: int, repeats: int
) -> bool:
    """Print a table and verdicts; return whether all did the same computation."""
    all_runs = run_in_turn(engines, learners, cycles, repeats, err.print)
    for runs in all_runs:
        if runs.failure:
            err.print(f"{runs.engine.title} broke off:\n{runs.failure}", markup=False)
    done = [runs for runs in all_runs if runs.measured]
    if not done:
        out.print("nothing to compare: no engine is installed and ran to its end")
        return False
    ours = next((runs for runs in done if runs.engine is OURS), None)
    reference = next((runs for runs in done if runs.engine is PLAIN), done[0])
    out.print(_table(all_runs, ours, reference, f"K = {learners}, {cycles} cycles"))
    same = all(runs.difference(reference) <= TOLERANCE for runs in done)
    _verdict(f"all weights equal to {TOLERANCE:.0e}", same)
    if learners == BARS_AT:
        _judge_speed(done)
    return same and not any(runs.failure for runs in all_runs)


def _table(
    all_runs: Sequence[Runs], ours: Runs | None, reference: Runs, title: str
) -> Table:
    table = Table(title=title)
    table.add_column("engine", no_wrap=True)
    for column in (
        "first\ncycle (s)",
        "best\ncycle (s)",
        "same,\nCPU (s)",
        "all\ncycles (s)",
        "peak\n(MB)",
        "×\nours",
        "same,\nCPU",
        f"difference\nto {reference.engine.name}",
    ):
        table.add_column(column, justify="right")
    for runs in all_runs:
        if not runs.measured:
            why = "not installed" if runs.lack else "broke off"
            table.add_row(runs.engine.title, why)
            continue
        table.add_row(
            runs.engine.title,
            f"{runs.first_s:.3f}",
            f"{runs.best_s:.3f}",
            _number(runs.best_cpu_s, ".3f"),
            f"{runs.total_s:.2f}",
            f"{runs.peak_bytes / 1e6:.0f}",
            _number(runs.best_s / ours.best_s if ours else math.nan, ".1f"),
            _number(runs.best_cpu_s / ours.best_cpu_s if ours else math.nan, ".1f"),
            f"{runs.difference(reference):.1e}",
        )
    return table


def _number(value: float, form: str) -> str:
    return "n/a" if math.isnan(value) else format(value, form)


def _judge_speed(done: Sequence[Runs]) -> None:
    """Hold each peer against ours on as many cores."""
    ours = {r.engine.cores: r for r in done if r.engine in (OURS, TWO)}
    for runs in done:
        same = ours.get(runs.engine.cores)
        if same is None or runs is same:
            continue
        wall = runs.best_s / same.best_s
        cpu = _number(runs.best_cpu_s / same.best_cpu_s, ".1f")
        claim = f"at least {runs.engine.bar:g}× as fast as {runs.engine.title}"
        _verdict(f"{claim}: {wall:.1f}× (CPU: {cpu}×)", wall >= runs.engine.bar)


def _verdict(claim: str, holds: bool) -> None:
    out.print("[green]met   [/]" if holds else "[red]missed[/]", claim)


def show_big(cycles: int) -> None:
    """Print what melisma alone takes, and whether its memory is within the bar."""
    [runs] = run_in_turn([OURS], BIG, cycles, 1, err.print)
    if runs.failure:
        out.print(runs.failure, markup=False)
        raise typer.Exit(1)
    out.print(
        f"K = {BIG:,}: best cycle {runs.best_s:.2f} s ({runs.best_cpu_s:.2f} s CPU), "
        f"{cycles} cycles {runs.total_s:.1f} s"
    )
    peak = runs.peak_bytes
    _verdict(
        f"at most {BIG_BYTES / 1e9:g} GB of memory: {peak / 1e9:.2f} GB",
        peak <= BIG_BYTES,
    )


def show_models(repeats: int) -> None:
    """Print what batching gains, network by network."""
    from peers.models import BATCHES, LEARNERS, NETWORKS, compare

    table = Table("network", title=f"{LEARNERS} learners, {BATCHES} batches of 32 (ms)")
    for column in "one by one", "vmap", "perceptrons", "gain of the best", "difference":
        table.add_column(column, justify="right")
    for network in NETWORKS:
        c = compare(network, repeats)
        batched_s = c.functional_s if c.perceptrons_s is None else c.perceptrons_s
        table.add_row(
            network,
            f"{c.one_by_one_s * 1e3:.1f}",
            f"{c.functional_s * 1e3:.1f}",
            "-" if c.perceptrons_s is None else f"{c.perceptrons_s * 1e3:.1f}",
            f"{c.one_by_one_s / batched_s:.2f}×",
            f"{c.difference:.1e}",
        )
    out.print(table)


def show_modules(learners: int, repeats: int) -> bool:
    """Print ours beside a loop, module by module; return whether weights are equal."""
    from peers.modules import CASES, compare

    table = Table("module", title=f"{learners} learners, AdamW, processor time (s)")
    for column in (
        *("engine", "ours", "plain loop", "× ours"),
        *("loop, our kernels", "× ours", "difference"),
    ):
        table.add_column(column, justify="right")
    all_beside = []
    for case in CASES:
        err.print(f"{learners} learners: {case.title}")
        all_beside.append(beside := compare(case, learners, repeats))
        table.add_row(
            case.title,
            beside.engine,
            f"{beside.ours_s:.3f}",
            f"{beside.loop_s:.3f}",
            f"{beside.gain:.2f}",
            f"{beside.fast_loop_s:.3f}",
            f"{beside.fast_loop_s / beside.ours_s:.2f}",
            f"{beside.difference:.0e}",
        )
    out.print(table)
    same = all(beside.difference <= MODULES_TOLERANCE for beside in all_beside)
    _verdict(f"in double, all weights equal to {MODULES_TOLERANCE:.0e}", same)
    least = min(beside.gain for beside in all_beside)
    _verdict(f"no module slower than by a plain loop: {least:.2f}×", least >= 1)
    return same


if __name__ == "__main__":
    typer.run(main)
