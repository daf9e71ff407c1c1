"""Calls per second and megabytes per second of melisma.rpc, beside its peers.

    python benchmarks/bench_rpc.py                        all, with the bars
    python benchmarks/bench_rpc.py --quick                two rounds in place of five
    python benchmarks/bench_rpc.py --only raw,melisma     some
    python benchmarks/bench_rpc.py --array-mb 8           in place of 64

A server in one process sends back what a client in another sends it, over loopback:
eight bytes, one call after another and with 64 calls under way; and arrays of float32,
which must arrive as equal arrays. MB/s is the size over the time of the round trip, so
that each byte crosses twice; 1 MB is 10⁶ bytes. Async clients have 64 coroutines on one
connection; the others have 64 threads, each with a connection unless one can be shared.
Last, small calls are made while an array of 256 MB, four times the large one, goes to
and fro on the same connection.

Stacks take turns, round by round, and the table has the median over rounds. A ratio is
taken within each round, and its median is held against the bar, for what else runs on
the machine then slows down both. Exit code 1 if a bar is missed.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer
from peers.environments import lack_of
from peers.rpc_measure import LARGE_BYTES, Amount, Calls, Measured
from peers.rpc_running import BrokeOffError, Stack, run_round, server
from rich.console import Console
from rich.table import Table

from melisma.provenance import provenance

STACKS = {
    stack.name: stack
    for stack in (
        Stack(name="raw", title="raw TCP socket", module="rpc_raw"),
        Stack(name="melisma", title="melisma", module="rpc_melisma", uvloop=True),
        Stack(
            name="grpc",
            title="gRPC aio",
            module="rpc_grpc",
            packages={"grpc": "grpcio"},
        ),
        Stack(
            name="axon",
            title="Axon",
            module="rpc_axon",
            packages={"axon": "axon-ecrg"},
            shared=True,
            large=1,
        ),
        Stack(
            name="melisma-tls",
            title="melisma, TLS + token",
            module="rpc_melisma",
            serve="serve_secure",
            uvloop=True,
        ),
        Stack(
            name="melisma-blocking",
            title="melisma, blocking",
            module="rpc_melisma",
            connect="connect_blocking",
            shared=True,
        ),
        Stack(
            name="melisma-device",
            title="melisma, device",
            module="rpc_melisma",
            connect="connect_back",
            uvloop=True,
        ),
        Stack(
            name="pyro5",
            title="Pyro5, msgpack",
            module="rpc_pyro5",
            packages={"Pyro5": "Pyro5", "msgpack": "msgpack"},
        ),
        Stack(
            name="rpyc",
            title="RPyC",
            module="rpc_rpyc",
            packages={"rpyc": "rpyc"},
            large=1,
            slow_bulk=True,
        ),
        Stack(
            name="ray",
            title="Ray",
            module="rpc_ray",
            packages={"ray": "ray"},
            shared=True,
            apart=True,
        ),
    )
}
ALL = ",".join(STACKS)
NOTES = {
    "melisma-blocking": "threads wait for a plain function; the rest of melisma's rows"
    " are coroutines at both ends",
    "melisma-device": "the device dials out, and the server calls it over that line",
    "pyro5": "its default, serpent, would send bytes as base64 text",
    "rpyc": "large arrays once; it compresses, and copies what is left at each send",
    "ray": "measured after all others, since its daemons are never idle; on one machine"
    " arrays go through shared memory, no socket, and arrive read-only",
}

QUICK_ROUNDS = 2
MIX_BAR_MS = 20.0
IDLE_LOAD = 0.5  #: of the last minute, up to which a machine is idle

out, err = Console(width=110), Console(stderr=True)

Rounds = Annotated[int, typer.Option(min=1, help="TaskClock of each stack.")]
Quick = Annotated[bool, typer.Option("--quick", help=f"{QUICK_ROUNDS} rounds.")]
Only = Annotated[str, typer.Option(help="Which stacks, with commas between.")]
Seconds = Annotated[float, typer.Option(min=0.05, help="Of small calls, each kind.")]
Megabytes = Annotated[int, typer.Option(min=1, help="Of large arrays.")]

Rows = dict[str, list[Measured]]
Figure = Callable[[Measured], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """How many times a peer's figure ours is to be, at least."""

    what: str
    figure: Figure
    peer: str
    ratio: float


def _sequential(measured: Measured) -> float:
    return measured.sequential.per_s


def _at_once(measured: Measured) -> float:
    return measured.at_once.per_s


def _large(measured: Measured) -> float | None:
    return measured.large_Bps


BARS = (
    Bar(what="one call after another", figure=_sequential, peer="axon", ratio=36.0),
    Bar(what="one call after another", figure=_sequential, peer="grpc", ratio=4.8),
    Bar(what="64 calls under way", figure=_at_once, peer="grpc", ratio=6.5),
    Bar(what="64 MB", figure=_large, peer="axon", ratio=37.0),
    Bar(what="64 MB", figure=_large, peer="grpc", ratio=3.7),
    Bar(what="64 MB", figure=_large, peer="raw", ratio=0.53),
)


def main(
    rounds: Rounds = 5,
    quick: Quick = False,
    only: Only = ALL,
    calls_s: Seconds = 0.6,
    array_mb: Megabytes = 64,
) -> None:
    """Time remote calls; exit code 1 if a bar is missed or a stack breaks off."""
    print(provenance(), flush=True)
    stacks = [stack for name in only.split(",") if (stack := _stack(name))]
    rounds = QUICK_ROUNDS if quick else rounds
    load = os.getloadavg()[0]
    if load > IDLE_LOAD:
        err.print(f"this machine is busy (load {load:.1f}): all figures will be low")
    rows: Rows = {stack.name: [] for stack in stacks}
    together = [stack for stack in stacks if not stack.apart]
    amount = Amount(calls_s=calls_s, large_bytes=array_mb * 10**6)
    sound = run_in_turn(together, rounds, amount, rows)
    for stack in stacks:
        if stack.apart:
            sound &= run_in_turn([stack], rounds, amount, rows)
    measured = {name: row for name, row in rows.items() if row}
    out.print(_table(measured, rounds, array_mb))
    for name in measured:
        if name in NOTES:
            out.print(f"{STACKS[name].title}: {NOTES[name]}", highlight=False)
    if any(map(_mixed, measured.values())):
        out.print(_mixed_table(measured, array_mb))
    if array_mb == LARGE_BYTES // 10**6:  # the bars are for arrays of this size
        sound &= all([_judge(bar, measured) for bar in BARS])
        sound &= _judge_mixed(measured)
    raise typer.Exit(0 if sound else 1)


def _stack(name: str) -> Stack | None:
    """Return a stack by its name; None if its packages are not installed."""
    if name not in STACKS:
        raise typer.BadParameter(f"{name} is none of {', '.join(STACKS)}")
    lack = lack_of(STACKS[name].packages)
    if lack:
        err.print(f"{name} is left out: {lack}", markup=False)
    return None if lack else STACKS[name]


def run_in_turn(
    stacks: Sequence[Stack], rounds: int, amount: Amount, rows: Rows
) -> bool:
    """Add to ``rows``, round by round; return whether all got to their end."""
    broken: set[str] = set()
    with ExitStack() as servers:
        addresses = {}
        for stack in stacks:
            try:
                addresses[stack.name] = servers.enter_context(server(stack))
            except BrokeOffError as error:
                broken.add(_tell_broken(stack, error))
        for turn in range(rounds):
            for stack in stacks:
                if stack.name in broken:
                    continue
                err.print(f"round {turn + 1} of {rounds}: {stack.name}")
                plan = stack.plan(amount, first=turn == 0)
                try:
                    measured = run_round(stack, addresses[stack.name], plan)
                    rows[stack.name].append(measured)
                except BrokeOffError as error:
                    broken.add(_tell_broken(stack, error))
    return not broken


def _tell_broken(stack: Stack, error: BrokeOffError) -> str:
    err.print(f"{stack.name} broke off:\n{error}", markup=False, highlight=False)
    return stack.name


def _table(rows: Rows, rounds: int, array_mb: int) -> Table:
    table = Table(title=f"median of {rounds} rounds")
    table.add_column("stack", no_wrap=True)
    for column in (
        "one by one\n(calls/s)",
        "p50\n(ms)",
        "p99\n(ms)",
        "64 at once\n(calls/s)",
        "p50\n(ms)",
        "p99\n(ms)",
        "1.5 MB\n(MB/s)",
        f"{array_mb} MB\n(MB/s)",
    ):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        table.add_row(
            STACKS[name].title,
            *_cells(m.sequential for m in row),
            *_cells(m.at_once for m in row),
            _rate(m.medium_Bps for m in row),
            _rate(m.large_Bps for m in row),
        )
    return table


def _mixed_table(rows: Rows, array_mb: int) -> Table:
    table = Table(title=f"small calls while {4 * array_mb} MB go to and fro")
    table.add_column("stack", no_wrap=True)
    for column in "calls/s", "p50 (ms)", "p99 (ms)":
        table.add_column(column, justify="right")
    for name, row in rows.items():
        mixed = _mixed(row)
        if mixed:
            table.add_row(STACKS[name].title, *_cells(mixed))
    return table


def _cells(calls: Iterable[Calls]) -> list[str]:
    row = list(calls)
    return [
        f"{np.median([c.per_s for c in row]):,.0f}",
        f"{np.median([c.p50_ms for c in row]):.3f}",
        f"{np.median([c.p99_ms for c in row]):.3f}",
    ]


def _rate(all_Bps: Iterable[float | None]) -> str:
    measured = [Bps for Bps in all_Bps if Bps is not None]
    if not measured:
        return "-"
    rate_MBps = float(np.median(measured)) / 1e6
    return f"{rate_MBps:,.{0 if rate_MBps >= 100 else 1}f}"


def _mixed(row: Sequence[Measured]) -> list[Calls]:
    return [measured.mixed for measured in row if measured.mixed]


def _judge(bar: Bar, rows: Rows) -> bool:
    """Print the verdict; a bar that could not be tried is not missed."""
    ratios = [
        ours / theirs
        for ours, theirs in zip(
            map(bar.figure, rows.get("melisma", [])),
            map(bar.figure, rows.get(bar.peer, [])),
            strict=False,  # one that broke off has fewer
        )
        if ours is not None and theirs is not None
    ]
    if not ratios:
        return True
    ratio = float(np.median(ratios))
    return _verdict(
        f"{bar.what}: at least {bar.ratio:g}× {STACKS[bar.peer].title}: {ratio:.3g}×"
        f" (rounds: {min(ratios):.3g} to {max(ratios):.3g})",
        ratio >= bar.ratio,
    )


def _judge_mixed(rows: Rows) -> bool:
    mixed = _mixed(rows.get("melisma", []))
    if not mixed:
        return True
    p50_ms = float(np.median([calls.p50_ms for calls in mixed]))
    return _verdict(
        f"a small call beside 256 MB: under {MIX_BAR_MS:g} ms: {p50_ms:.3g} ms",
        p50_ms < MIX_BAR_MS,
    )


def _verdict(claim: str, holds: bool) -> bool:
    out.print("[green]met   [/]" if holds else "[red]missed[/]", claim, highlight=False)
    return holds


if __name__ == "__main__":
    typer.run(main)
