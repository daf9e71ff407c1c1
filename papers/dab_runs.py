"""The runs behind DAB's figures: on a calibrated simulator, or on the emulated testbed.

Where a study says ``testbed``, learners are processes in network namespaces with rate
limits and CPU quotas, and times are measured; otherwise times are drawn. Runs are
listed seed by seed, so that what was kept of a few trials is kept for more of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import msgspec
import numpy as np

import melisma as mel
from melisma.jobs import (
    Job,
    LearnersTable,
    TrainingTable,
    WorkloadTable,
)
from melisma.learning import Late, benchmark
from melisma.maths import Floats
from melisma.units import Bytes, BytesPerSecond, Deadline, SamplesPerSecond

from . import dab_testbed
from .kit import NO_LIMIT, Data, Spread, in_order
from .networks import PROBABILITY

SCHEMES = ("dab", "csa-testbed")
PIXELS = 784  #: bytes of a sample on the wire
FLOAT = 4  #: bytes of a pixel in the thesis: its Nanos take 0.13 s for 12.5 Mbit
#: Trials of a benchmark in which one set of processes is asked; kept as they end.
ROUND = 10


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
        asked = [
            (study, first, min(ROUND, study.trials - first))
            for first in range(0, study.trials, ROUND)
        ]
        rounds = spread(timed_training, asked)
        found = [
            [trial for one in rounds for trial in one.seconds[device]]
            for device in range(len(study.devices))
        ]
        by_flops = {
            way: np.concatenate([getattr(one, way) for one in rounds], axis=1)
            for way in ("flops", "flops_inverted")
        }
    else:
        found = _drawn_times(study)
        drawn = [[t.flops_error] * study.trials for t in study.times]
        by_flops = {"flops": np.array(drawn)}
    data["sb"] = _errors(study, found)
    data.update({way: 100.0 * np.abs(values) for way, values in by_flops.items()})
    return data


def timed_training(
    asked: tuple[BenchmarkStudy, int, int],
) -> dab_testbed.TrainingTimes:
    """Time so many trials on the testbed; the second number tells rounds apart."""
    study, _, trials = asked
    return dab_testbed.training_times(
        study.devices,
        sizes=measured_sizes(study),
        predicted=study.predicted,
        shard=study.shard,
        trials=trials,
        dataset=study.dataset,
    )


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
    network: str = "two_nn"  #: of `networks`
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
    deadline_s: float = 15.0  #: of a cycle
    cycles: int = 5
    passes: int = 5  #: μ
    shards: int = 120  #: that csa-testbed hands out
    shard: int = 500
    batch: int = 32
    model_shards: float = 0.103  #: size of the model, in shards
    rate: float = 0.1
    noise: float = 0.05
    trials: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineStudy:
    """Every number that 3.6, 3.7 and 3.8 depend on."""

    testbed: bool = False
    network: str  #: of `networks`
    dataset: str = "mnist"
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
    batch: int = 32
    rate: float = 0.1
    trials: int = 30


#: A deadline by which the model alone can be exchanged, and no pass be made: then
#: csa-testbed asks for one pass.
SHORT_S = 5.0
#: A job and the devices that run it, where it is measured.
Run = tuple[Job, tuple[str, ...]]

#: What the learning of a run comes to, after each cycle.
LEARNED = ("accuracy", PROBABILITY, "loss")


def run_clusters(study: ClusterStudy, spread: Spread = in_order) -> Data:
    """Accuracy, loss and shards of each cluster and scheme, trials × cycles."""
    cases = list(product(study.clusters, SCHEMES))
    runs = [
        (_cluster_job(study, cluster, scheme, seed), cluster)
        for seed, (cluster, scheme) in product(range(study.trials), cases)
    ]
    courses = _courses(runs, study.testbed, spread)
    data: Data = {
        "devices": np.array([len(c) for c in study.clusters], dtype=float),
        "testbed": np.array([float(study.testbed)]),
    }
    for n, (cluster, scheme) in enumerate(cases):
        some, name = courses[n :: len(cases)], f"{len(cluster)}/{scheme}"
        for what in LEARNED:
            data[f"{name}/{what}"] = np.array([_learned(one, what) for one in some])
        data[f"{name}/shards"] = np.array([one.samples for one in some]) / study.shard
    return data


def _learned(one: mel.History, what: str) -> list[float]:
    return one.loss if what == "loss" else one.metrics[what]


def _cluster_job(
    study: ClusterStudy, devices: Sequence[str], scheme: str, seed: int
) -> Job:
    rates = {name: (c, b) for name, c, b in study.rates}
    return _job(
        study, scheme, study.deadline_s, seed, [rates[device] for device in devices]
    )


def run_deadlines(study: DeadlineStudy, spread: Spread = in_order) -> Data:
    """Time and what was learned in the end, of each scheme: deadlines × trials."""
    unit_s = _csa_cycle_s(study, spread) if study.testbed else 1.0
    deadlines_s = [unit_s * deadline for deadline in study.deadlines]
    cases = list(product(SCHEMES, deadlines_s))
    runs = [
        (_deadline_job(study, scheme, deadline_s, seed), study.devices)
        for seed, (scheme, deadline_s) in product(range(study.trials), cases)
    ]
    courses = _courses(runs, study.testbed, spread)
    shape = (study.trials, len(SCHEMES), len(deadlines_s))
    data: Data = {
        "deadlines_s": study.cycles * np.array(deadlines_s),
        "testbed": np.array([float(study.testbed)]),
    }
    for what, values in {
        "time_s": [sum(one.cycle_s) for one in courses],
        "shards": [one.samples[-1] / study.shard for one in courses],
        "staleness": [max(one.max_staleness) for one in courses],
        **{what: [_learned(one, what)[-1] for one in courses] for what in LEARNED},
    }.items():
        whole = np.array(values, dtype=np.float64).reshape(shape).transpose(1, 2, 0)
        data.update({f"{s}/{what}": whole[n] for n, s in enumerate(SCHEMES)})
    return data


def _deadline_job(
    study: DeadlineStudy, scheme: str, deadline_s: float, seed: int
) -> Job:
    rates = [(study.shards_per_s, study.downloads_per_s)] * len(study.devices)
    return _job(study, scheme, deadline_s, seed, rates)


def _csa_cycle_s(study: DeadlineStudy, spread: Spread) -> float:
    """Seconds that csa-testbed takes for a cycle here, one pass over its shards."""
    job = _deadline_job(study, "csa-testbed", SHORT_S, seed=0)
    job = msgspec.structs.replace(job, cycles=3)
    (course,) = _courses([(job, study.devices)], study.testbed, spread)
    return float(np.mean(course.cycle_s))


def _courses(runs: Sequence[Run], testbed: bool, spread: Spread) -> list[mel.History]:
    """What runs come to, on the testbed or simulated."""
    if testbed:
        return spread(measured, runs)
    return spread(simulated, [job for job, _ in runs])


def simulated(job: Job) -> mel.History:
    """Simulate a job."""
    return mel.simulate(job, runs=None).history


def measured(run: Run) -> mel.History:
    """Run a job on the testbed."""
    return dab_testbed.trained(*run)


def _job(
    study: ClusterStudy | DeadlineStudy,
    scheme: str,
    deadline_s: float,
    seed: int,
    rates: Sequence[tuple[float, float]],
) -> Job:
    """One run; ``rates`` of the learners are shards trained and downloaded a second."""
    shard_bytes = float(study.shard * PIXELS)
    task = f"{study.network}_{study.dataset.replace('-', '_')}"
    return Job(
        name="dab",
        scheme=scheme,
        task=f"{__package__}.networks:{task}",
        cycles=study.cycles,
        deadline=Deadline(deadline_s),
        seed=seed,
        samples=None if scheme == "dab" else study.shards * study.shard,
        shard=study.shard,
        steps=study.passes,
        epochs_at_most=NO_LIMIT,
        late=Late.WAIT,
        noise=study.noise,
        training=TrainingTable(rate=study.rate, batch=study.batch),
        workload=WorkloadTable(model_size=Bytes(study.model_shards * shard_bytes)),
        learners=tuple(
            LearnersTable(
                name=f"learner{n}",
                rate=SamplesPerSecond(c * study.shard),
                bandwidth=BytesPerSecond(b * shard_bytes),
            )
            for n, (c, b) in enumerate(rates, start=1)
        ),
    )
