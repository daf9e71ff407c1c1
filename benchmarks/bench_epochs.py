"""How many local epochs in a cycle are worth their time, under `csa`.

Few samples and a long deadline, so that the cap decides: the same cycles with 5 to
500 epochs at most, on the demo's ten learners with data sent to them, and with data
of their own of unlike classes. Accuracies are means of ``--seeds`` runs after
``--cycles`` cycles.

    python benchmarks/bench_epochs.py --data mnist-5k
"""

import argparse
import logging
from typing import Any

import msgspec

import melisma as mel
from melisma.jobs.data_table import DataTable, Split
from melisma.provenance import provenance
from melisma.system.law import Mode
from melisma.units import Deadline

CAPS = (5, 20, 50, 100, 200, 500)
SAMPLES = (90, 450, 1500)
DEADLINE = Deadline(1000.0)  # never in the way: the cap decides


def job_of(data: str, samples: int, cap: int, seed: int, *, own: bool) -> mel.Job:
    """One run; with data of ``own``, learners have classes in unlike shares."""
    table: dict[str, Any] = {"name": data}
    if own:
        table |= {"split": Split.DIRICHLET, "alpha": 0.5}
    return msgspec.structs.replace(
        mel.Job(scheme="csa", deadline=DEADLINE),
        name="epochs",
        mode=Mode.FEDERATED if own else Mode.PARALLEL,
        samples=samples,
        epochs_at_most=cap,
        seed=seed,
        data=DataTable(**table),
    )


def main() -> None:
    """Print a row for each number of samples, and a column for each cap."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist-5k")
    parser.add_argument("--cycles", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=1)
    words = parser.parse_args()
    logging.disable(logging.WARNING)
    print(provenance(), flush=True)
    print(f"{words.data}, {words.cycles} cycles, {words.seeds} seeds")
    print("samples, data", *(f"{cap:>6}" for cap in CAPS))
    for own in (False, True):
        for samples in SAMPLES:
            row = []
            for cap in CAPS:
                runs = []
                for seed in range(words.seeds):
                    job = job_of(words.data, samples, cap, seed, own=own)
                    job = msgspec.structs.replace(job, cycles=words.cycles)
                    runs.append(mel.simulate(job, runs=None).history.metric[-1])
                row.append(f"{100 * sum(runs) / len(runs):6.1f}")
            print(f"{samples:6} {'own ' if own else 'sent'}  ", *row, flush=True)


if __name__ == "__main__":
    main()
