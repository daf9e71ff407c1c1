"""The runs behind DAB's figures: on a calibrated simulator, or on the emulated testbed.

Where a study says ``testbed``, learners are processes in network namespaces with rate
limits and CPU quotas, and times are measured; otherwise times are drawn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import msgspec
import numpy as np

import melisma as mel
from melisma.jobs import (
    DataTable,
    Job,
    LearnersTable,
    TrainingTable,
    WorkloadTable,
)
from melisma.learning import Late, benchmark
from melisma.maths import Floats
from melisma.units import Bytes, BytesPerSecond, Deadline, SamplesPerSecond

from . import dab_testbed
from .kit import Data, Spread, in_order

SCHEMES = ("dab", "csa-testbed")
PIXELS = 784  #: bytes of a sample on the wire
FLOAT = 4  #: bytes of a pixel in the thesis: its Nanos take 0.13 s for 12.5 Mbit


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How a simulated device's times vary; calibrated, not measured."""

    latency: float = 0.0  #: of a call, in times that one shard takes
    shard_noise: float = 0.0  #: spread of the time of one shard
    run_noise: float = 0.0  #: spread from one moment to another, of all shards alike
    flops_error: float = 0.0  #: of a time predicted by FLOPS, as a share

    def draw(self, shards: int, rng: np.random.Generator) -> float:
        """Time of so many shards, in times that one takes."""
        each = 1.0 + self.shard_noise * rng.standard_normal(shards)
        moment = math.exp(self.run_noise * rng.standard_normal())
        return (self.latency + float(each.sum())) * moment


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkStudy:
    """Every number that 3.2 or 3.3 depends on."""

    testbed: bool = False
    devices: tuple[str, ...]
    times: tuple[Times, ...] = ()  #: of the devices, where they are simulated
    sizes: tuple[int, ...] = (2, 4, 6, 8, 10)  #: shards of the benchmark
    predicted: tuple[int, ...]  #: shards whose time is predicted, of each device
    shard: int = 500
    trials: int = 30
    dataset: str = "mnist-5k"  #: to train on; how long that takes is all that counts


def errors(seconds: dict[int, float], sizes: Sequence[int], whole: int) -> Floats:
    """Errors in %, ways × sizes: by one size as in the paper, and by two.

    ``seconds`` are measured times by shards; the time of ``whole`` is predicted.
    """
    one = [seconds[n] * whole / n for n in sizes]
    two = [
        benchmark.fit([n // 2, n], [seconds[n // 2], seconds[n]]).seconds(whole)
        for n in sizes
    ]
    found: Floats = 100.0 * np.abs(np.array([one, two]) / seconds[whole] - 1.0)
    return found


def measured_sizes(study: BenchmarkStudy) -> list[int]:
    """Shards that are timed: every size and half of it."""
    return sorted({n for size in study.sizes for n in (size // 2, size)})


def run_benchmark(study: BenchmarkStudy, spread: Spread = in_order) -> Data:
    """3.2: errors of predicted training times, devices × ways × sizes × trials."""
    data = _known(study)
    if study.testbed:
        found, by_flops = dab_testbed.training_times(
            study.devices,
            sizes=measured_sizes(study),
            predicted=study.predicted,
            shard=study.shard,
            trials=study.trials,
            dataset=study.dataset,
        )
    else:
        found = _drawn_times(study)
        by_flops = {
            way: np.array([[t.flops_error] * study.trials for t in study.times])
            for way in ("flops",)
        }
    data["sb"] = _errors(study, found)
    data.update({way: 100.0 * np.abs(values) for way, values in by_flops.items()})
    return data


def run_download(study: BenchmarkStudy, spread: Spread = in_order) -> Data:
    """3.3: errors of predicted download times, links × ways × sizes × trials."""
    found = (
        dab_testbed.download_times(
            study.devices,
            sizes=[*measured_sizes(study), study.predicted[0]],
            shard_bytes=study.shard * PIXELS * FLOAT,
            trials=study.trials,
        )
        if study.testbed
        else _drawn_times(study)
    )
    return {**_known(study), "sb": _errors(study, found)}


def _known(study: BenchmarkStudy) -> Data:
    sizes = np.array(study.sizes, dtype=np.float64)
    return {"sizes": sizes, "testbed": np.array([float(study.testbed)])}


def _errors(study: BenchmarkStudy, found: list[list[dict[int, float]]]) -> Floats:
    return np.array(
        [
            [errors(seconds, study.sizes, whole) for seconds in trials]
            for trials, whole in zip(found, study.predicted, strict=True)
        ]
    ).transpose(0, 2, 3, 1)


def _drawn_times(study: BenchmarkStudy) -> list[list[dict[int, float]]]:
    """Times by shards, of each device in each trial."""
    rng = np.random.default_rng(0)
    return [
        [
            {n: times.draw(n, rng) for n in (*measured_sizes(study), whole)}
            for _ in range(study.trials)
        ]
        for times, whole in zip(study.times, study.predicted, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStudy:
    """Every number that 3.4 and 3.5 depend on."""

    testbed: bool = False
    dataset: str = "mnist"
    clusters: tuple[tuple[str, ...], ...] = (
        ("pi1", "jetson-nano"),
        ("pi1", "pi2", "pi3", "jetson-nano"),
    )
    #: Device, shards trained and shards downloaded a second, where simulated.
    rates: tuple[tuple[str, float, float], ...] = (
        ("jetson-nano", 60.0, 9.0),
        ("pi1", 20.0, 2.0),
        ("pi2", 30.0, 3.5),
        ("pi3", 25.0, 3.0),
    )
    softmax: bool = False  #: the network ends in softmax, as the author's
    deadline_s: float = 15.0  #: of a cycle
    cycles: int = 5
    passes: int = 5  #: μ
    shards: int = 120  #: that csa-testbed hands out
    shard: int = 500
    model_shards: float = 0.103  #: size of the model, in shards
    rate: float = 0.1
    noise: float = 0.05
    trials: int = 3


def run_clusters(study: ClusterStudy, spread: Spread = in_order) -> Data:
    """Accuracy, loss and samples of each cluster and scheme, trials × cycles."""
    cases = list(product(range(len(study.clusters)), SCHEMES))
    jobs = [
        (_cluster_job(study, study.clusters[n], scheme, seed), study.clusters[n])
        for (n, scheme), seed in product(cases, range(study.trials))
    ]
    courses = _courses(jobs, study.testbed, spread)
    data: Data = {
        "devices": np.array([len(c) for c in study.clusters], dtype=float),
        "testbed": np.array([float(study.testbed)]),
    }
    for i, (n, scheme) in enumerate(cases):
        some = courses[i * study.trials : (i + 1) * study.trials]
        name = f"{len(study.clusters[n])}/{scheme}"
        data[f"{name}/accuracy"] = np.array([one.metrics["accuracy"] for one in some])
        data[f"{name}/loss"] = np.array([one.loss for one in some])
        data[f"{name}/shards"] = np.array([one.samples for one in some]) / study.shard
    return data


def _cluster_job(
    study: ClusterStudy, devices: Sequence[str], scheme: str, seed: int
) -> Job:
    rates = {name: (c, b) for name, c, b in study.rates}
    return _job(
        scheme,
        seed,
        model=f"{__package__}.networks:two_nn" if study.softmax else "TwoNN",
        dataset=study.dataset,
        deadline_s=study.deadline_s,
        cycles=study.cycles,
        passes=study.passes,
        shards=study.shards,
        shard=study.shard,
        rate=study.rate,
        noise=study.noise,
        model_shards=study.model_shards,
        rates=[rates[device] for device in devices],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineStudy:
    """Every number that 3.6, 3.7 and 3.8 depend on."""

    testbed: bool = False
    dataset: str = "mnist"
    model: str = "ConvNet"
    devices: tuple[str, ...] = ("jetson-nano",) * 4
    shards_per_s: float = 1.4  #: of each, where simulated; calibrated
    downloads_per_s: float = 4.0  #: shards; calibrated
    model_shards: float = 6.16  #: size of the model as the author sent it
    noise: float = 0.1  #: calibrated
    #: Of a cycle; on the testbed, shares of the time that csa-testbed takes.
    deadlines: tuple[float, ...] = (21.0, 22.5, 24.0, 25.5, 27.0, 28.5, 30.0)
    cycles: int = 5
    passes: int = 1
    shards: int = 120
    shard: int = 500
    rate: float = 0.1
    trials: int = 3


def run_deadlines(study: DeadlineStudy, spread: Spread = in_order) -> Data:
    """Time, accuracy and loss at the end, of each scheme: deadlines × trials."""
    unit_s = _csa_cycle_s(study) if study.testbed else 1.0
    deadlines_s = [unit_s * deadline for deadline in study.deadlines]
    cases = list(product(SCHEMES, deadlines_s))
    jobs = [
        (_deadline_job(study, scheme, deadline_s, seed), study.devices)
        for (scheme, deadline_s), seed in product(cases, range(study.trials))
    ]
    courses = _courses(jobs, study.testbed, spread)
    shape = (len(SCHEMES), len(deadlines_s), study.trials)
    data: Data = {
        "deadlines_s": study.cycles * np.array(deadlines_s),
        "testbed": np.array([float(study.testbed)]),
    }
    for what, values in {
        "time_s": [sum(one.cycle_s) for one in courses],
        "accuracy": [one.metrics["accuracy"][-1] for one in courses],
        "loss": [one.loss[-1] for one in courses],
        "shards": [one.samples[-1] / study.shard for one in courses],
        "staleness": [max(one.max_staleness) for one in courses],
    }.items():
        whole = np.array(values, dtype=np.float64).reshape(shape)
        data.update({f"{s}/{what}": whole[n] for n, s in enumerate(SCHEMES)})
    return data


def _deadline_job(
    study: DeadlineStudy, scheme: str, deadline_s: float, seed: int
) -> Job:
    return _job(
        scheme,
        seed,
        model=study.model,
        dataset=study.dataset,
        deadline_s=deadline_s,
        cycles=study.cycles,
        passes=study.passes,
        shards=study.shards,
        shard=study.shard,
        rate=study.rate,
        noise=study.noise,
        model_shards=study.model_shards,
        rates=[(study.shards_per_s, study.downloads_per_s)] * len(study.devices),
    )


def _csa_cycle_s(study: DeadlineStudy) -> float:
    """Seconds that csa-testbed takes for a cycle here, one pass over its shards."""
    # A deadline that nobody meets asks for one pass.
    job = _deadline_job(study, "csa-testbed", 1.0, seed=0)
    job = msgspec.structs.replace(job, cycles=3)
    cycles_s = dab_testbed.trained(job, study.devices).cycle_s
    return float(np.mean(cycles_s))


def _courses(
    jobs: list[tuple[Job, tuple[str, ...]]], testbed: bool, spread: Spread
) -> list[mel.History]:
    """What the runs come to; on the testbed one after another."""
    if testbed:
        return [dab_testbed.trained(job, devices) for job, devices in jobs]
    return spread(_simulated, [job for job, _ in jobs])


def _simulated(job: Job) -> mel.History:
    return mel.simulate(job, runs=None).history


def _job(
    scheme: str,
    seed: int,
    *,
    model: str,
    dataset: str,
    deadline_s: float,
    cycles: int,
    passes: int,
    shards: int,
    shard: int,
    rate: float,
    noise: float,
    model_shards: float,
    rates: Sequence[tuple[float, float]],
) -> Job:
    """One run; ``rates`` of the learners are shards trained and downloaded a second."""
    shard_bytes = float(shard * PIXELS)
    return Job(
        name="dab",
        scheme=scheme,
        model=model,
        cycles=cycles,
        deadline=Deadline(deadline_s),
        seed=seed,
        samples=None if scheme == "dab" else shards * shard,
        shard=shard,
        steps=passes,
        late=Late.WAIT,
        noise=noise,
        data=DataTable(name=dataset),
        training=TrainingTable(rate=rate),
        workload=WorkloadTable(model_size=Bytes(model_shards * shard_bytes)),
        learners=tuple(
            LearnersTable(
                name=f"learner{n}",
                rate=SamplesPerSecond(c * shard),
                bandwidth=BytesPerSecond(b * shard_bytes),
            )
            for n, (c, b) in enumerate(rates, start=1)
        ),
    )
