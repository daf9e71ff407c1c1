"""How fast do browsers train, beside PyTorch on one core?

    python benchmarks/bench_browser.py
    npm install --prefix peers @tensorflow/tfjs-core@4.22.0 \\
        @tensorflow/tfjs-backend-{cpu,wasm,webgl,webgpu}@4.22.0 @jax-js/jax@0.1.25
    python benchmarks/bench_browser.py --peers peers/node_modules

Samples a second in a headless Chromium, in batches of 32 as the default job's, with
momentum for ours and PyTorch's: bare steps of it, and a Session, which is what a
learner runs. Rounds of all
rows take turns. Steps are timed twenty at a time, and the fastest twenty count: what
else a machine does only slows them down. The median of all shows by how much. Peers
train TwoNN by plain SGD, with less to do. Their WebGL and WebGPU run on SwiftShader,
which emulates a GPU on the CPU.

The bar: TwoNN by wasm reaches 0.3 of PyTorch's samples a second.
"""

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
import typer
from aiohttp import web
from rich.console import Console
from rich.table import Table
from tests.browser import pages
from tests.web.browser import Page, browsing
from torch.nn.functional import cross_entropy

from melisma import rpc
from melisma.learning.models import build
from melisma.learning.optimisers import optimiser_for
from melisma.learning.outline import outline_of
from melisma.learning.parameters import parameters_of
from melisma.learning.samples import pairs
from melisma.learning.settings import Training
from melisma.learning.training import Session, use_threads
from melisma.provenance import provenance

BAR = 0.3  #: of PyTorch's samples a second, that TwoNN by wasm has to reach
SAMPLE = [1, 28, 28]
TRAINING = Training(batch=32, rate=0.05, arguments={"momentum": 0.9}, shuffle=False)
HERE = Path(__file__).parent / "browser"
#: What has a page draw, and compute, without a GPU.
EMULATED = {
    "webgl": ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"],
    "webgpu": ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"],
}
#: Seconds of twenty steps each, for about so many seconds.
SCRIPT = """(async (given) => {
  const { prepared } = await import(given.module);
  globalThis.step ??= {};
  const step = (globalThis.step[given.row] ??= await prepared(given));
  const took = [], end = performance.now() + 1000 * given.seconds;
  while (took.length < 2 || performance.now() < end) {
    const begun = performance.now();
    for (let i = 0; i < 20; i++) await step(i === 19);
    took.push((performance.now() - begun) / 1000);
  }
  return took.slice(1);
})"""
#: Steps that are timed together.
STEPS = 20
PYTORCH = "PyTorch, one core"


def main(
    seconds: Annotated[float, typer.Option(help="Of each row in a round.")] = 1.0,
    rounds: int = 5,
    peers: Annotated[
        Path | None, typer.Option(help="node_modules with TensorFlow.js and jax-js.")
    ] = None,
) -> None:
    """Measure, print a table; exit with 1 if the bar is missed."""
    out = Console(width=100)
    out.print(provenance(), soft_wrap=True)
    use_threads(1)
    with ExitStack() as stack:
        server = stack.enter_context(_serving(peers))
        open_page = _opener(stack, server)
        plain = open_page()
        rows: dict[tuple[str, str], Callable[[], list[float]]] = {}
        for model in ("TwoNN", "ConvNet"):
            rows[model, PYTORCH] = _torch(_bare(model), seconds)
            rows[model, "PyTorch, a learner's"] = _torch(_learners(model), seconds)
            for backend in ("wasm", "js"):
                row = _in_page(plain, "/bench/ours.js", backend, model, seconds)
                rows[model, f"ours, {backend}"] = row
        for name, file in (("TensorFlow.js", "tfjs"), ("jax-js", "jaxjs")):
            for backend in ("wasm", *EMULATED) if peers else ():
                page = open_page(*EMULATED.get(backend, ()))
                row = _in_page(page, f"/bench/{file}.js", backend, "TwoNN", seconds)
                rows["TwoNN", f"{name}, {backend}"] = row
        found: dict[tuple[str, str], list[float]] = {row: [] for row in rows}
        for _ in range(rounds):
            for place, measured in rows.items():
                found[place] += measured()
    table = Table("network", "engine", "samples/s", "of PyTorch's", "median")
    fastest = {row: _speed(min(took)) for row, took in found.items()}
    for (model, engine), took in found.items():
        speed = fastest[model, engine]
        share = speed / fastest[model, PYTORCH]
        usual = _speed(median(took))
        table.add_row(model, engine, f"{speed:,.0f}", f"{share:.3f}", f"{usual:,.0f}")
    out.print(table)
    reached = fastest["TwoNN", "ours, wasm"] / fastest["TwoNN", PYTORCH]
    if reached < BAR:
        out.print(f"missed: TwoNN by wasm has {reached:.2f} of PyTorch's, not {BAR}")
        raise typer.Exit(1)


def _speed(took_s: float) -> float:
    """Return samples a second, of the seconds of STEPS."""
    return STEPS * TRAINING.batch / took_s


def _torch(steps: Callable[[], None], seconds: float) -> Callable[[], list[float]]:
    """Return what makes STEPS again and again, and returns the seconds of each."""

    def measured() -> list[float]:
        took, end = list[float](), time.perf_counter() + seconds
        while len(took) < 2 or time.perf_counter() < end:
            begun = time.perf_counter()
            steps()
            took.append(time.perf_counter() - begun)
        return took[1:]

    return measured


def _learners(name: str) -> Callable[[], None]:
    """Return what a learner does: rows of its samples, and its Session."""
    x = torch.rand(STEPS * TRAINING.batch, *SAMPLE)
    samples = pairs(x, torch.arange(len(x)) % 10)
    session = Session(build(name, 0), TRAINING)
    plan = np.arange(len(x)).reshape(STEPS, TRAINING.batch)
    return lambda: session.train(samples, plan)


def _bare(name: str) -> Callable[[], None]:
    """Return what PyTorch's tutorials do, with one batch."""
    model = build(name, 0)
    x = torch.rand(TRAINING.batch, *SAMPLE)
    y = torch.arange(len(x)) % 10
    optimiser = optimiser_for(model.parameters(), TRAINING)

    def steps() -> None:
        for _ in range(STEPS):
            optimiser.zero_grad()
            cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    return steps


def _in_page(
    page: Page, module: str, backend: str, model: str, seconds: float
) -> Callable[[], list[float]]:
    """Return what trains in a page, and returns the seconds of STEPS each."""
    made = build(model, 0)
    given: dict[str, Any] = {
        "module": module,
        "row": f"{module} {model} {backend}",
        "backend": backend,
        "layers": msgspec.to_builtins(outline_of(made, SAMPLE)),
        "training": msgspec.to_builtins(TRAINING),
        "shapes": [(name, list(p.shape)) for name, p in parameters_of(made).items()],
        "sample": SAMPLE,
        "seconds": seconds,
    }
    call = f"{SCRIPT}({json.dumps(given)})"
    return lambda: [float(took) for took in page.look(call)]


def _serving(peers: Path | None) -> Any:
    def routes(app: web.Application, identify: Any) -> None:
        pages.routes(app, identify)
        app.router.add_static("/bench", HERE)
        if peers:
            app.router.add_static("/peers", peers)

    silent: dict[str, Any] = {"say": lambda text: None, "secure": False, "port": 0}
    return rpc.serve(routes=routes, **silent)


def _opener(stack: ExitStack, server: rpc.Server) -> Callable[..., Page]:
    """Return what opens a page, in a browser of its own for each set of flags."""
    held: dict[tuple[str, ...], Page] = {}

    def opened(*flags: str) -> Page:
        if flags not in held:
            held[flags] = stack.enter_context(browsing(*flags))
            pages.opened(held[flags], server)
        return held[flags]

    return opened


if __name__ == "__main__":
    typer.run(main)
