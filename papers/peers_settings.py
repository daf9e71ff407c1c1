"""Printed settings of other systems, as jobs: devices, data, network, work.

Times are ours to choose where a setting prints none, and stand in its notes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from melisma.jobs import (
    DataTable,
    Job,
    LearnersTable,
    ParticipationTable,
    Split,
    StateTable,
    TrainingTable,
    WorkloadTable,
    dataset_of,
    own_rows,
)
from melisma.learning import Late, Sizes
from melisma.maths import Floats, Ints
from melisma.schemes import TakesPart
from melisma.system import Mode
from melisma.units import Bytes, BytesPerSecond, Deadline, SamplesPerSecond

from .kit import NO_LIMIT
from .store import ADDED

#: What a model takes on the wire where a setting prints a time for it.
MODEL_BYTES = 1e6
#: The data set that is always there.
EMBEDDED = "mnist-5k"
#: As good as none.
AT_ONCE = 1e15


@dataclass(frozen=True, slots=True, kw_only=True)
class LeagueStudy:
    """Every number that the race of a setting depends on."""

    setting: str  #: a name in `SETTINGS`
    dataset: str
    entrants: tuple[str, ...]  #: names in `peers_entrants.ENTRANTS`
    learners: int
    rates: tuple[float, ...]  #: of learning, of which each entrant takes its best
    works: tuple[float, float]  #: of a learner in a round, beside what is printed
    target: float
    horizon_s: float
    outer: tuple[float, float] = (1.0, 3.0)  #: K·η of Ringmaster and Ringleader
    #: Updates between two evaluations of asynchronous ones, in rounds of all learners.
    every: float = 1
    seeds: int = 10
    tuning: int = 2  #: seeds more, by which an entrant's settings are chosen
    momentum: float = field(default=0.5, metadata={ADDED: True})  #: of our outer step


class Race(NamedTuple):
    """A job, and how long each learner takes for what a round asks of it."""

    job: Job
    whole_s: Floats
    fixed_s: Floats  #: of it on the wire
    clock_s: float | None = None  #: of a round, where one has a length
    samples_s: Floats | float = 0.0  #: of the time on the wire, samples'


def group(name: str, seconds: float, samples: float, fixed_s: float) -> LearnersTable:
    """Return a learner that trains so many samples in that time."""
    speed = 2 * MODEL_BYTES / fixed_s if fixed_s else AT_ONCE
    return LearnersTable(
        name=name,
        rate=SamplesPerSecond(samples / seconds),
        bandwidth=BytesPerSecond(speed),
    )


def nvflare(study: LeagueStudy, seed: int) -> Race:
    """Sixteen devices of three types; every task is an equal share, drawn anew."""
    rng = np.random.default_rng([seed, 22])
    seconds = rng.choice([100.0, 200.0, 400.0], study.learners)
    data = DataTable(name=study.dataset)
    job = Job(
        name="nvflare",
        model=_network(study, "strided_lenet"),
        mode=Mode.PARALLEL,
        seed=seed,
        steps=4,
        noise=0.01,
        data=data,
        training=TrainingTable(batch=4, momentum=0.9),
        workload=WorkloadTable(sample_size=Bytes(1e-3), model_size=Bytes(MODEL_BYTES)),
    )
    passes = 4 * (len(dataset_of(job).train) // study.learners)
    learners = [group(f"d{k}", s, passes, 5.0) for k, s in enumerate(seconds)]
    return Race(_with(job, learners), seconds + 5.0, np.full(study.learners, 5.0))


def fedcompass(study: LeagueStudy, seed: int) -> Race:
    """Silos of a few classes, 200 batches each, at exponentially distributed speeds."""
    classes = (5, 6) if study.learners == 5 else (3, 5)
    return _silos(
        study,
        seed,
        DataTable(
            name=study.dataset, split=Split.LABELS, classes=classes, sizes=Sizes.NORMAL
        ),
    )


def fedcompass_dirichlet(study: LeagueStudy, seed: int) -> Race:
    """The same silos by two Dirichlets, α₁ = m and α₂ = 0.5."""
    return _silos(
        study,
        seed,
        DataTable(
            name=study.dataset,
            split=Split.DIRICHLET,
            alpha=0.05,
            sizes=Sizes.DIRICHLET,
            sizes_alpha=1.0,
        ),
    )


def ringleader(study: LeagueStudy, seed: int) -> Race:
    """A hundred workers, of which the k-th takes k seconds for a gradient."""
    order = np.random.default_rng(26).permutation(study.learners)
    gradient_s: Floats = np.asarray(order + 1.0, dtype=np.float64)
    job = Job(
        name="ringleader",
        model="melisma_papers.peers_models:one_hidden",
        mode=Mode.FEDERATED,
        seed=seed,
        batches=1,
        noise=0.1,
        data=DataTable(
            name=study.dataset, split=Split.DIRICHLET, alpha=0.1, sizes=Sizes.EQUAL
        ),
        training=TrainingTable(batch=4),
    )
    learners = [group(f"w{k}", s, 4, 0.0) for k, s in enumerate(gradient_s)]
    return Race(_with(job, learners), gradient_s, np.zeros(study.learners))


def fedprox(study: LeagueStudy, seed: int) -> Race:
    """A thousand phones, ten a round; nine in ten do one to nine epochs of ten.

    A round lasts 100 s, of which models travel for 10.
    """
    job = Job(
        name="fedprox",
        model="melisma_papers.peers_models:logistic",
        mode=Mode.FEDERATED,
        seed=seed,
        shard=10,
        steps=10,
        deadline=Deadline(100.0),
        late=Late.HALT,
        data=DataTable(
            name=study.dataset, split=Split.LABELS, classes=2, sizes=Sizes.POWER
        ),
        training=TrainingTable(batch=10),
        workload=WorkloadTable(model_size=Bytes(MODEL_BYTES)),
        participation=ParticipationTable(rule=TakesPart.RANDOM, learners=10),
    )
    owned = own_rows(job, dataset_of(job), study.learners) or []
    speed = BytesPerSecond(2 * MODEL_BYTES / 10.0)
    chances = [(10, 0.1), *((epochs, 0.1) for epochs in range(1, 10))]
    learners = [
        LearnersTable(
            name=f"p{k}",
            states=tuple(
                StateTable(
                    probability=chance,
                    rate=SamplesPerSecond(epochs * len(rows) / 90.0),
                    bandwidth=speed,
                )
                for epochs, chance in chances
            ),
        )
        for k, rows in enumerate(owned)
    ]
    # In the mean over its states, a learner takes so long for ten epochs.
    mean_s = 10.0 + 90.0 * np.mean([10 / epochs for epochs, _ in chances])
    same = np.ones(study.learners)
    return Race(_with(job, learners), mean_s * same, 10.0 * same, clock_s=100.0)


def fednova(study: LeagueStudy, seed: int) -> Race:
    """Sixteen clients that do two to four epochs in a round of 110 s."""
    rng = np.random.default_rng([seed, 27])
    epochs = rng.integers(2, 5, study.learners)
    job = Job(
        name="fednova",
        model=_network(study, "strided_lenet"),
        mode=Mode.FEDERATED,
        seed=seed,
        steps=2,
        noise=0.02,
        data=DataTable(name=study.dataset, split=Split.DIRICHLET, alpha=0.1),
        training=TrainingTable(
            batch=32, momentum=0.9, arguments={"weight_decay": 1e-4}
        ),
        workload=WorkloadTable(model_size=Bytes(MODEL_BYTES)),
    )
    sizes = np.array([len(rows) for rows in _owned(job, study.learners)])
    learners = [
        group(f"c{k}", 100.0, e * n, 10.0)
        for k, (e, n) in enumerate(zip(epochs, sizes, strict=True))
    ]
    return Race(
        _with(job, learners), 10.0 + 200.0 / epochs, np.full(study.learners, 10.0)
    )


def testbed(study: LeagueStudy, seed: int) -> Race:
    """The thesis's devices; shards of 500 samples are sent to them."""
    shards = {"pi1": 20, "pi2": 30, "pi3": 25, "nano": 60, "ideapad": 78, "rtx": 100}
    megabits = {"pi1": 25, "pi2": 44, "pi3": 38, "nano": 96, "ideapad": 88, "rtx": 1000}
    names = [name for name in shards for _ in range(2)][: study.learners]
    job = Job(
        name="testbed",
        mode=Mode.PARALLEL,
        seed=seed,
        shard=500,
        steps=5,
        noise=0.1,
        data=DataTable(name=study.dataset),
        training=TrainingTable(batch=32),
    )
    rows = len(dataset_of(job).train)
    job = _replace(job, shard=min(500, rows // study.learners))
    share = rows // study.learners
    sample_bytes = 12.5e6 / 8 / 500
    learners = [
        LearnersTable(
            name=f"{name}-{k}",
            rate=SamplesPerSecond(500.0 * shards[name]),
            bandwidth=BytesPerSecond(1e6 / 8 * megabits[name]),
        )
        for k, name in enumerate(names)
    ]
    job = _replace(job, workload=WorkloadTable(sample_size=Bytes(sample_bytes)))
    train_s = np.array([5 * share / 500 / shards[name] for name in names])
    fixed_s = np.array([share * sample_bytes * 8e-6 / megabits[n] for n in names])
    return Race(_with(job, learners), train_s + fixed_s, fixed_s, samples_s=fixed_s)


def thousand(study: LeagueStudy, seed: int) -> Race:
    """Devices whose speeds are log-normal over two orders of magnitude, links too."""
    rng = np.random.default_rng([seed, 28])
    spread = np.log(100.0) / 4  # 95 % lie within two orders of magnitude
    speed = np.exp(spread * rng.standard_normal(study.learners))
    link = np.exp(spread * rng.standard_normal(study.learners))
    job = Job(
        name="thousand",
        model="TwoNN",
        mode=Mode.FEDERATED,
        seed=seed,
        steps=2,
        noise=0.1,
        data=DataTable(name=study.dataset, split=Split.DIRICHLET, alpha=0.3),
        training=TrainingTable(batch=10),
        workload=WorkloadTable(model_size=Bytes(MODEL_BYTES)),
    )
    sizes = np.array([len(rows) for rows in _owned(job, study.learners)])
    return _apart(job, sizes, 10.0 * speed, 1e6 * link, MODEL_BYTES)


def links(study: LeagueStudy, seed: int) -> Race:
    """Devices with a model of 36.7 MB and links of about 3 MB/s, data of their own.

    A model is 24 s on the wire in the median, and two passes over one's data 5 s.
    """
    rng = np.random.default_rng([seed, 29])
    speed = np.exp(0.5 * rng.standard_normal(study.learners))
    link = np.exp(0.5 * rng.standard_normal(study.learners))
    job = Job(
        name="links",
        model="TwoNN",
        mode=Mode.FEDERATED,
        seed=seed,
        steps=2,
        noise=0.1,
        data=DataTable(name=study.dataset, split=Split.DIRICHLET, alpha=0.5),
        training=TrainingTable(batch=32),
        workload=WorkloadTable(model_size=Bytes(36.7e6)),
    )
    sizes = np.array([len(rows) for rows in _owned(job, study.learners)])
    rate = 2 * sizes.mean() / 5.0 * speed
    return _apart(job, sizes, rate, 3e6 * link, 36.7e6)


SETTINGS: dict[str, Callable[[LeagueStudy, int], Race]] = {
    made.__name__: made
    for made in (
        *(nvflare, fedcompass, fedcompass_dirichlet, ringleader),
        *(fedprox, fednova, testbed, thousand, links),
    )
}


def _silos(study: LeagueStudy, seed: int, data: DataTable) -> Race:
    """Take FedCompass's silos, none faster than 15 ms a step."""
    rng = np.random.default_rng([seed, 23])
    step_s = np.maximum(rng.exponential(0.15, study.learners), 0.015)
    job = Job(
        name="fedcompass",
        model=_network(study, "compass_cnn"),
        mode=Mode.FEDERATED,
        seed=seed,
        batches=200,
        noise=0.05,
        data=data,
        training=TrainingTable(optimiser="Adam", batch=64),
    )
    learners = [group(f"silo{k}", s, 64, 0.0) for k, s in enumerate(step_s)]
    return Race(_with(job, learners), 200 * step_s, np.zeros(study.learners))


def _apart(
    job: Job, sizes: Ints, rate: Floats, bandwidth: Floats, model_bytes: float
) -> Race:
    """Take a device of its own for each rate and link; two passes over its data."""
    learners = [
        LearnersTable(
            name=f"d{k}",
            rate=SamplesPerSecond(rate[k]),
            bandwidth=BytesPerSecond(bandwidth[k]),
        )
        for k in range(len(sizes))
    ]
    fixed_s = 2 * model_bytes / bandwidth
    return Race(_with(job, learners), 2 * sizes / rate + fixed_s, fixed_s)


def _network(study: LeagueStudy, name: str) -> str:
    """Return the printed network; a small one for a look at the embedded digits."""
    is_look = study.dataset == EMBEDDED
    return "FogMLP" if is_look else f"melisma_papers.peers_models:{name}"


def _owned(job: Job, learners: int) -> Sequence[Sequence[int]]:
    return [rows.tolist() for rows in own_rows(job, dataset_of(job), learners) or []]


def _with(job: Job, learners: list[LearnersTable]) -> Job:
    return _replace(job, learners=tuple(learners), epochs_at_most=NO_LIMIT)


def _replace(job: Job, **changes: object) -> Job:
    return msgspec.structs.replace(job, **changes)
