"""What a benchmark promises on a busy machine, and what is then done.

A device benchmarks itself on eight samples again and again, by one size and by two,
first alone and then beside processes that take all cores. Of each benchmark the
promised time of nine samples and 500 epochs is compared with the time that they take
in the same load: 1 is right, 0.01 a hundred times too little. It lasts 20 s.

    python benchmarks/bench_busy.py

With another version of the package in PYTHONPATH it measures that one.
"""

import multiprocessing
import os
import platform
import subprocess
import time
from pathlib import Path

import numpy as np
import torch

from melisma.learning import models
from melisma.learning.benchmark import time_cycle, time_training
from melisma.learning.samples import pairs
from melisma.learning.settings import Training

SHARDS, SAMPLES, EPOCHS, CHECKED = 8, 9, 500, 100
#: Seconds of benchmarks for each row.
ROW_S = 4.0


def burn() -> None:
    """Keep a core busy until killed."""
    while True:
        sum(range(10_000))


def promises(sizes: list[int]) -> list[float]:
    """Return promised over true seconds of one benchmark after another."""
    torch.set_num_threads(1)
    images = torch.rand(64, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    samples = pairs(images, torch.arange(64) % 10)
    few = pairs(images[:SAMPLES], torch.arange(SAMPLES) % 10)
    model, training = models.build("TwoNN", seed=0), Training()
    found, ends = [], time.perf_counter() + ROW_S
    while time.perf_counter() < ends:
        line = time_training(model, samples, training, sizes=sizes)
        true_s = time_cycle(model, few, training, steps=CHECKED) / CHECKED
        found.append(line.seconds(SAMPLES * EPOCHS) / (true_s * EPOCHS))
    return found


def shown(name: str, sizes: list[int]) -> None:
    """Print a row."""
    found = promises(sizes)
    low, middle, high = np.quantile(found, [0.0, 0.5, 1.0])
    print(f"{name:22} {len(found):10} {low:8.3f} {middle:8.2f} {high:8.2f}", flush=True)


def commit() -> str:
    """Return the commit of the package that is measured."""
    import melisma

    folder = Path(melisma.__file__).parent
    words = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def processor() -> str:
    """Return the name of the processor, where the system has it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    """Print a row for each way of benchmarking, alone and beside other work."""
    cores = os.cpu_count() or 1
    print(f"{processor()}, {cores} cores, commit {commit() or 'unknown'}")
    columns = ("least", "median", "most")
    print(f"{'promised / true':22} {'benchmarks':>10}", *(f"{c:>8}" for c in columns))
    shown("one size, alone", [SHARDS])
    shown("two sizes, alone", [SHARDS // 2, SHARDS])
    burners = [
        multiprocessing.Process(target=burn, daemon=True) for _ in range(2 * cores)
    ]
    for burner in burners:
        burner.start()
    try:
        shown("one size, busy", [SHARDS])
        shown("two sizes, busy", [SHARDS // 2, SHARDS])
    finally:
        for burner in burners:
            burner.kill()


if __name__ == "__main__":
    main()
