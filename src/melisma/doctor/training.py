"""What training needs: torch and its products, GPUs, data sets, and a job of one's."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from melisma.doctor.finding import Finding, note, ok, trouble
from melisma.doctor.machine import gigabytes, nearest
from melisma.errors import MelismaError
from melisma.provenance import gpu_names

if TYPE_CHECKING:
    from melisma.jobs.schema import Job
    from melisma.learning.products import Products


def torch() -> Iterator[Finding]:
    """Say whether torch can be imported; without it nothing else here is looked at."""
    try:
        from melisma.learning import products
    except ImportError as error:
        yield trouble(
            "torch",
            f"cannot be imported: {_one_line(error)}",
            f"{sys.executable} -m pip install {(error.name or 'torch').split('.')[0]}",
        )
        return
    except OSError as error:  # a library of its own that the system does not load
        yield trouble(
            "torch",
            f"is broken: {_one_line(error)}",
            f"{sys.executable} -m pip install --force-reinstall torch",
        )
        return
    yield from _products(products.products(), products.backend())
    yield from _accelerators(products.accelerators())
    if products.bfloat16_here():
        yield ok("bf16", "this CPU has bfloat16 products: --precision bf16 works")
    else:
        yield ok("bf16", "this CPU has no bfloat16 products: fp32 trains")


def _products(measured: "Products", backend: str) -> Iterator[Finding]:
    from melisma.learning.kernels import SLOW_FROM
    from melisma.learning.products import SLOWER_BELOW, UNEVEN_FROM

    flops = measured.flops
    speeds = ", ".join(f"{name} {f / 1e9:.3g}" for name, f in flops.items())
    says = f"GFLOP/s by layout: {speeds} ({backend}, {measured.threads} threads)"
    facts = {
        "backend": backend,
        "threads": measured.threads,
        "seconds": measured.seconds,
        "flops": flops,
        "speedup": measured.speedup,
        "onednn_slowdown": measured.onednn_slowdown,
    }
    if measured.speedup < SLOWER_BELOW:
        yield note(
            "products",
            f"{says}: one thread is {1 / measured.speedup:.3g} times as fast as all",
            "set OMP_NUM_THREADS=1, or end what else computes: threads wait for "
            "one another",
            **facts,
        )
    elif measured.unevenness >= UNEVEN_FROM:
        slowest = min(flops, key=flops.__getitem__)
        yield note(
            "products",
            f"{says}: {slowest} takes {measured.unevenness:.3g} times as long",
            "try OMP_NUM_THREADS=1, or another build of torch for this CPU",
            **facts,
        )
    else:
        yield ok("products", says, **facts)
    if measured.onednn_slowdown >= SLOW_FROM:
        yield ok(
            "onednn",
            f"small products take {measured.onednn_slowdown:.3g} times as long "
            "through it: melisma trains without it where that is faster",
        )


def _accelerators(found: dict[str, float]) -> Iterator[Finding]:
    from melisma.learning.products import try_out

    for name, size in found.items():
        device = name.split()[0]
        try:
            try_out(device)
        except (RuntimeError, NotImplementedError) as error:
            fix = "update its driver, or install the build of torch for it"
            yield note("gpu", f"{name} does not compute: {_one_line(error)}", fix)
        else:
            memory = f", {gigabytes(size)}" if size else ""
            says = f"{name}{memory}: --device {device} trains on it"
            yield ok("gpu", says, device=device, memory_bytes=size)
    if found:
        return
    if names := gpu_names():
        yield note(
            "gpu",
            f"{', '.join(names)} is there, and this torch cannot use it",
            "install a CUDA build of torch: https://pytorch.org/get-started",
            gpus=names,
        )
    else:
        yield ok("gpu", "none: the CPU trains")


def data() -> Iterator[Finding]:
    """Say which data sets are here, and which would be downloaded."""
    from melisma.learning.data import (
        EMBEDDED,
        FOLDER_VARIABLE,
        SOURCES,
        cache_folder,
        held,
    )

    here = {name: str(place) for name in SOURCES if (place := held(name))}
    absent = [name for name in SOURCES if name not in here]
    cache = cache_folder()
    free = shutil.disk_usage(nearest(cache)).free
    says = f"{', '.join([EMBEDDED, *here])} here"
    if absent:
        says += (
            f"; a job downloads {', '.join(absent)} into {cache} "
            f"({gigabytes(free)} free), or give its folder by {FOLDER_VARIABLE}"
        )
    yield ok("data", says, here=here, absent=absent, cache=str(cache), free_bytes=free)


def job(file: Path) -> Iterator[Finding]:
    """Say whether a job can be read, and what it trains made here."""
    from melisma.jobs.effects import check_effects
    from melisma.jobs.families import family_of
    from melisma.jobs.files import load

    try:
        read = load(file)
        family_of(read).checked(read)
        check_effects(read)
    except MelismaError as error:
        yield trouble("job", str(error), "see docs/jobs.md")
        return
    if read.tasks:
        says = f"{file}: {read.scheme}, {len(read.tasks)} tasks"
        yield ok("job", says, scheme=read.scheme, tasks=len(read.tasks))
        return
    yield from _ready(file, read)


def _ready(file: Path, read: "Job") -> Iterator[Finding]:
    """Say whether what a job trains, and its data, can be made here."""
    from melisma.jobs.building import task_of
    from melisma.learning.data import SOURCES, held

    named, folder = read.data.name, read.data.folder
    place = Path(folder) if folder else None
    ours = read.data.train is None and named in SOURCES
    if ours and held(named, place) is None:
        says = f"{file}: its data set {named} is not here"
        yield note("job", says, "it is downloaded when the job starts; be online")
        return
    try:
        task = task_of(read)
    except MelismaError as error:
        yield trouble("job", f"{file}: {error}", "see docs/jobs.md and docs/tasks.md")
        return
    count = sum(value.numel() for value in task.model.parameters())
    samples = len(task.data.train)
    yield ok(
        "job",
        f"{file}: {read.scheme}, {count:,} parameters, {samples:,} samples of "
        f"{task.data.name}",
        scheme=read.scheme,
        parameters=count,
        samples=samples,
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
