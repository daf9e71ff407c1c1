"""Deadlines kept and times foreseen on emulated devices: real sockets, real quotas.

    python benchmarks/bench_testbed.py            as root; about a quarter of an hour
    python benchmarks/bench_testbed.py --devices pi1,pi2 --data mnist-5k --model TwoNN

Four unlike devices in network namespaces with their own rate limits and CPU quotas
(docs/testbed.md) train the ConvNet on MNIST, one pass a cycle, in shards of 500.
Nobody halts: the cycle lasts until the last is done, and truancy is how far past the
deadline that is, as a share of it. DAB's learners decide for themselves how much they
take; the thesis's "CSA" (csa-testbed) hands out a fixed number of samples.

Foreseen: in each place alone, the subset benchmark on eight shards and the FLOPS score,
then the cycle itself. FLOPS is read two ways: operations over FLOP/s, and by the time
of a reference device, this machine without a quota.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from melisma.jobs.files import dump
from melisma.jobs.schema import DataTable, Job, TrainingTable
from melisma.launch.local import run_on_testbed
from melisma.learning.benchmark import predicted_by_flops
from melisma.learning.settings import Late
from melisma.provenance import provenance
from melisma.runs import records
from melisma.testbed import DEVICES, Testbed
from melisma.units import Deadline

DEVICES_TRIED = ("pi1", "pi2", "pi3", "jetson-nano")
REFERENCE = "2070-super"
TRUANCY_BAR = 0.10

out = Console(width=100)


def job_of(data: str, model: str, **changes: Any) -> Job:
    """The work that all are to do."""
    job = Job(
        name="testbed",
        model=model,
        shard=500,
        steps=1,
        late=Late.WAIT,
        data=DataTable(name=data),
        training=TrainingTable(rate=0.1),
    )
    return msgspec.structs.replace(job, **changes)


def foreseen(
    job: Job, devices: Sequence[str], folder: Path
) -> dict[str, dict[str, Any]]:
    """Return what `melisma benchmark --check` says in the place of each device."""
    file = folder / "job.toml"
    file.write_text(dump(job))
    command = [sys.executable, "-m", "melisma", "benchmark", str(file), "--check"]
    answers = {}
    with Testbed("foreseen") as testbed:
        for name in (REFERENCE, *devices):
            place = testbed.place(DEVICES[name], name)
            with place.popen([*command, "--json"], stdout=subprocess.PIPE) as process:
                answers[name] = msgspec.json.decode(process.communicate()[0])
    return answers


def truancy(job: Job, devices: Sequence[str], folder: Path) -> list[records.Aggregated]:
    """Run a job on the devices; return what its cycles came to."""
    folder.mkdir()
    happened = run_on_testbed(job, folder, devices)
    return [record for record in happened if isinstance(record, records.Aggregated)]


def main(
    deadlines: Annotated[str, typer.Option(help="Seconds, commas between.")] = "4,6,8",
    cycles: Annotated[int, typer.Option(min=1)] = 5,
    samples: Annotated[int, typer.Option(help="That csa-testbed hands out.")] = 60_000,
    data: Annotated[str, typer.Option(help="mnist-5k needs no download.")] = "mnist",
    model: Annotated[str, typer.Option()] = "ConvNet",
    devices: Annotated[str, typer.Option(help="Commas between.")] = ",".join(
        DEVICES_TRIED
    ),
    foresee: Annotated[int, typer.Option(help="Samples of the benchmark's check.")] = (
        10_000
    ),
    shard: Annotated[int, typer.Option(min=1, help="Samples in one.")] = 500,
) -> None:
    """Measure truancy and foresight; exit code 1 if a bar is missed."""
    print(provenance(), flush=True)
    names = devices.split(",")
    job = job_of(data, model, cycles=cycles, shard=shard)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        checked = msgspec.structs.replace(job, samples=foresee)
        foresight = _print_foresight(foreseen(checked, names, folder))
        table = Table("deadline (s)", "scheme", "truancy (%)", "each cycle (%)")
        table.add_column("samples a cycle", justify="right")
        worst: dict[str, list[float]] = {"dab-adaptive": [], "csa-testbed": []}
        for deadline_s in map(float, deadlines.split(",")):
            for scheme, means in worst.items():
                merged = truancy(
                    msgspec.structs.replace(
                        job,
                        scheme=scheme,
                        deadline=Deadline(deadline_s),
                        samples=samples if scheme != "dab-adaptive" else None,
                    ),
                    names,
                    folder / f"{scheme}-{deadline_s:g}",
                )
                late = [record.truancy for record in merged]
                means.append(mean(late))
                table.add_row(
                    f"{deadline_s:g}",
                    scheme,
                    f"{100 * mean(late):.1f}",
                    " ".join(f"{100 * share:.0f}" for share in late),
                    f"{mean(record.samples for record in merged):,.0f}",
                )
    out.print(table)
    bidding, told = worst["dab-adaptive"], worst["csa-testbed"]
    kept = max(bidding) <= TRUANCY_BAR and bidding[0] < told[0]
    sys.exit(0 if foresight and kept else 1)


def _print_foresight(answers: dict[str, dict[str, Any]]) -> bool:
    """Print the errors; return whether the subset's is at most half of FLOPS's."""
    table = Table(
        "device", "trained (s)", "subset (%)", "FLOPS (%)", "by reference (%)"
    )
    base = answers.pop(REFERENCE)
    errors = []
    for name, one in answers.items():
        by_reference_s = predicted_by_flops(
            base["trained_s"], base["flops"], one["flops"]
        )
        row = [
            one["errors_percent"]["subset"],
            one["errors_percent"]["flops"],
            100 * (by_reference_s / one["trained_s"] - 1),
        ]
        errors.append([abs(value) for value in row])
        table.add_row(
            name, f"{one['trained_s']:.2f}", *(f"{value:+.1f}" for value in row)
        )
    means: list[float] = [mean(column) for column in zip(*errors, strict=True)]
    table.add_row("mean, absolute", "", *(f"{value:.1f}" for value in means))
    out.print(table)
    return means[0] <= means[1] / 2


if __name__ == "__main__":
    typer.run(main)
