"""What a benchmark promises on a busy machine, and what is then done.

A device benchmarks itself on eight samples again and again, by one size and by two,
first alone and then beside processes that take all cores. Of each benchmark the
promised time of nine samples and 500 epochs is compared with the time that they take
in the same load: 1 is right, 0.01 a hundred times too little.

    python benchmarks/bench_busy.py

With another version of the package in PYTHONPATH it measures that one. Its first line
is the provenance.
"""

import argparse
import multiprocessing
import os
import time

import numpy as np
import torch

from melisma.learning import models
from melisma.learning.benchmark import time_cycle, time_training
from melisma.learning.samples import pairs
from melisma.learning.settings import Training
from melisma.provenance import provenance

SHARDS, SAMPLES, EPOCHS, CHECKED = 8, 9, 500, 100


def burn() -> None:
    """Keep a core busy until killed."""
    while True:
        sum(range(10_000))


def promises(sizes: list[int], row_s: float) -> list[float]:
    """Return promised over true seconds of one benchmark after another."""
    torch.set_num_threads(1)
    images = torch.rand(64, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    samples = pairs(images, torch.arange(64) % 10)
    few = pairs(images[:SAMPLES], torch.arange(SAMPLES) % 10)
    model, training = models.build("TwoNN", seed=0), Training()
    time_training(model, samples, training, sizes=sizes)  # loads what it needs
    found, ends = [], time.perf_counter() + row_s
    while time.perf_counter() < ends:
        line = time_training(model, samples, training, sizes=sizes)
        true_s = time_cycle(model, few, training, steps=CHECKED) / CHECKED
        found.append(line.seconds(SAMPLES * EPOCHS) / (true_s * EPOCHS))
    return found


def shown(name: str, sizes: list[int], row_s: float) -> None:
    """Print a row."""
    found = promises(sizes, row_s)
    low, middle, high = np.quantile(found, [0.0, 0.5, 1.0])
    print(f"{name:22} {len(found):10} {low:8.3f} {middle:8.3f} {high:8.3f}", flush=True)


def main() -> None:
    """Print a row for each way of benchmarking, alone and beside other work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each row")
    row_s = parser.parse_args().seconds
    cores = os.cpu_count() or 1
    print(provenance(), flush=True)
    columns = ("least", "median", "most")
    print(f"{'promised / true':22} {'benchmarks':>10}", *(f"{c:>8}" for c in columns))
    shown("one size, alone", [SHARDS], row_s)
    shown("two sizes, alone", [SHARDS // 2, SHARDS], row_s)
    burners = [
        multiprocessing.Process(target=burn, daemon=True) for _ in range(2 * cores)
    ]
    for burner in burners:
        burner.start()
    try:
        shown("one size, busy", [SHARDS], row_s)
        shown("two sizes, busy", [SHARDS // 2, SHARDS], row_s)
    finally:
        for burner in burners:
            burner.kill()


if __name__ == "__main__":
    main()
