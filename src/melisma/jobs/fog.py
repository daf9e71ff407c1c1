"""From a job to fog training: simulated here, live in `serving`.

fog                the job's own way to plan
fog:PLAN           another: alone, known, windows or rolling
fog:federated      nothing moves, and all average after every slot
fog:central        one device trains on all that is collected: a yardstick of
                   accuracy, without costs
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from melisma.algorithms.fog import Fogging, Nature, run_fog
from melisma.algorithms.task import Task
from melisma.errors import ConfigError, unknown
from melisma.fleets.simulated_fog import SimulatedDevices
from melisma.fog import Links, Movement, averages
from melisma.fog.mobility import Waypoint
from melisma.fog.online import Alone, Known, Planner, Rolling, Windows
from melisma.fog.profiles import LTE, WIFI, Profile, Uniform
from melisma.fog.settings import falling, limited
from melisma.fog.topologies import (
    from_file,
    full,
    hierarchical,
    intermittent,
    random_graph,
    scale_free,
    social,
)
from melisma.jobs.building import (
    names_of,
    own_rows,
    state_law,
    task_on,
    workload_of,
    written,
)
from melisma.jobs.schema import Costs, FogTable, Job, Moving
from melisma.learning.settings import HERE, Hardware, Optimiser, Training
from melisma.maths.arrays import Floats
from melisma.runs.records import Record
from melisma.system.law import DelayLaw, Mode
from melisma.system.streams import Stream
from melisma.units import Seconds

SCHEME, FEDERATED, CENTRAL = "fog", "fog:federated", "fog:central"
NAMES = (SCHEME, *(f"{SCHEME}:{plan.value}" for plan in Moving), FEDERATED, CENTRAL)
#: Links by name; all else is a file.
TOPOLOGIES = ("full", "random", "social", "hierarchical", "scale-free", "waypoint")


def is_fog(scheme: str) -> bool:
    """Whether devices of this scheme move data."""
    return scheme.partition(":")[0] == SCHEME


def check_fog(job: Job) -> None:
    """Raise ConfigError for what a fog cannot do."""
    if job.scheme not in NAMES:
        raise unknown("scheme", job.scheme, NAMES)
    if job.mode != Mode.FEDERATED:
        raise ConfigError(
            f"mode = {job.mode.value!r}: devices of a fog collect data themselves: "
            "give mode = 'federated'"
        )
    if job.training.optimiser != Optimiser.SGD:
        raise ConfigError(
            f"a fog with {job.training.optimiser.value!r}: use 'sgd', which needs no "
            "memory of the slots before"
        )
    if job.checks:
        raise ConfigError(
            "checks redo work, and data of a fog is elsewhere: use checks = 0"
        )
    if job.cycles * job.fog.period < (job.fog.windows or 1):
        raise ConfigError(
            f"fog.windows = {job.fog.windows} of {job.cycles * job.fog.period} slots: "
            "give fewer"
        )


def check_live(job: Job) -> None:
    """Raise ConfigError for what is simulated only."""
    check_fog(job)
    if job.scheme == CENTRAL:
        raise ConfigError(f"{CENTRAL!r} is simulated: live devices move data or do not")


def as_meant(job: Job) -> Job:
    """Return a fog job with everything that its scheme's name says written out."""
    check_fog(job)
    plan = job.scheme.partition(":")[2]
    if job.scheme in (FEDERATED, CENTRAL):
        plan = Moving.ALONE.value
    fog = job.fog
    if plan:
        fog = msgspec.structs.replace(fog, plan=Moving(plan))
    if job.scheme not in (FEDERATED, CENTRAL):
        return msgspec.structs.replace(job, fog=fog)
    fog = msgspec.structs.replace(fog, capacities=False)
    if job.scheme == CENTRAL:
        return msgspec.structs.replace(job, fog=fog)
    return msgspec.structs.replace(
        job,
        cycles=job.cycles * fog.period,
        deadline=Seconds(float(job.deadline) / fog.period),
        fog=msgspec.structs.replace(fog, period=1),
    )


def fogging_of(job: Job) -> Fogging:
    """How a job, with everything written out, moves data."""
    return Fogging(
        period=job.fog.period, planner=planner_of(job), nature=nature_of(job)
    )


def planner_of(job: Job) -> Planner:
    """What decides where data goes."""
    match job.fog.plan:
        case Moving.ALONE:
            return Alone()
        case Moving.KNOWN:
            return Known()
        case Moving.WINDOWS:
            return Windows(job.fog.windows or job.cycles)
        case Moving.ROLLING:
            return Rolling(job.fog.horizon, averages)


def nature_of(job: Job) -> Nature:
    """What devices collect, who is linked to whom, and what that costs."""

    def chance(stream: int) -> np.random.Generator:
        return np.random.default_rng([job.seed, Stream.FOG, stream])

    def nature(names: Sequence[str], own: Sequence[int], law: DelayLaw) -> Movement:
        fog, n, T = job.fog, len(names), job.cycles * job.fog.period
        pass_s = job.steps * law.step_s
        slot_s = float(job.deadline) / fog.period
        if fog.costs == Costs.RATES:
            # In the unit of what a sample costs the slowest device.
            process = np.tile(pass_s / pass_s.max(), (T, 1))
        else:
            process = _profile(fog).process_cost(n, T, chance(0))
        links = links_of(fog, T, process.mean(axis=0), chance(1))
        if fog.costs == Costs.RATES:
            link_s = np.maximum(law.sample_s[links.source], law.sample_s[links.target])
            link_cost = link_s / pass_s.max()
        else:
            link_cost = _profile(fog).link_cost(links, chance(2))
        problem = Movement(
            data=collected(job, own),
            process_cost=process,
            links=links,
            link_cost=link_cost,
            discard_cost=falling(fog.discard, T, n),
            gamma=np.array(fog.gamma),
        )
        if not fog.capacities:
            return problem
        if fog.costs == Costs.RATES:
            with np.errstate(divide="ignore"):
                capacity, link_capacity = (
                    np.tile(slot_s / pass_s, (T, 1)),
                    slot_s / link_s,
                )
        else:
            drawn = limited(problem, chance(4))
            capacity, link_capacity = drawn.capacity, drawn.link_capacity
        return replace(
            problem,  # whole samples move
            capacity=np.floor(capacity),
            link_capacity=np.floor(link_capacity),
        )

    return nature


def _profile(fog: FogTable) -> Uniform | Profile:
    media = {Costs.WIFI: WIFI, Costs.LTE: LTE}
    return media.get(fog.costs) or Uniform(steady=fog.steady)


def collected(job: Job, own: Sequence[int]) -> Floats:
    """D_i(t) ~ U(0, own samples / T), rounded: half of them on average, none twice."""
    T, have = job.cycles * job.fog.period, np.array(own, dtype=np.float64)
    most = have / T
    if job.samples is not None:
        most = np.minimum(most, job.samples / (job.fog.period * have.size))
    rng = np.random.default_rng([job.seed, Stream.FOG, 3])
    drawn = np.round(rng.uniform(0.0, most, (T, have.size)))
    total = np.minimum(np.cumsum(drawn, axis=0), have)
    return np.diff(total, axis=0, prepend=0.0)


def links_of(
    fog: FogTable, slots: int, cost: Floats, rng: np.random.Generator
) -> Links:
    """Who is linked to whom in each slot; ``cost`` is each device's of processing."""
    n = cost.size
    makes: dict[str, Callable[[], Links]] = {
        "full": lambda: full(n, slots),
        "random": lambda: random_graph(n, slots, fog.density, rng),
        "social": lambda: social(n, slots, rng),
        "hierarchical": lambda: hierarchical(cost, slots, rng),
        "scale-free": lambda: scale_free(n, slots, rng),
        "waypoint": lambda: Waypoint().links(n, slots, rng),
    }
    if fog.links in makes:
        links = makes[fog.links]()
    elif Path(fog.links).suffix == ".csv":
        links = _from_file(Path(fog.links), n, slots)
    else:
        raise unknown("fog.links", fog.links, [*makes, "FILE.csv"])
    return links if fog.up == 1.0 else intermittent(links, fog.up, rng)


def _from_file(path: Path, devices: int, slots: int) -> Links:
    try:
        return from_file(path, devices, slots)
    except OSError as error:
        raise ConfigError(
            f"fog.links = {str(path)!r}: {error.strerror}: give a CSV file"
        ) from error


@dataclass(frozen=True, slots=True, eq=False)
class FogSimulation:
    """A job made ready: its data loaded, its model built, its devices priced."""

    job: Job
    task: Task
    devices: SimulatedDevices
    fogging: Fogging

    def run(
        self,
        folder: Path | None = None,
        watch: Callable[[Record], None] = lambda record: None,
    ) -> list[Record]:
        """Run on a virtual clock with real gradients; as `Simulation.run`."""
        return written(
            self.job,
            folder,
            watch,
            lambda sink: run_fog(self.task, self.devices, sink, self.fogging),
        )


def build_fog(job: Job, hardware: Hardware = HERE) -> FogSimulation:
    """Load, build and price what a job describes; ConfigError or DataError if wrong."""
    job = as_meant(job)
    task, names = replace(task_on(hardware, job), shard=1), names_of(job)
    # Samples travel, so what their transfer takes is in the law.
    sending = msgspec.structs.replace(job, mode=Mode.PARALLEL)
    law, gamma = state_law(sending, workload_of(job, task.model, task.data))
    rows, fogging = own_rows(job, task.data) or [], fogging_of(job)
    if job.scheme == CENTRAL:
        data = collected(job, [len(some) for some in rows])
        fogging = replace(fogging, nature=_central(data))
        names, rows = ["central"], [np.concatenate(rows)]
    devices = SimulatedDevices(
        names,
        law.expected(gamma),
        model=task.model,
        data=task.data,
        own_rows=rows,
        training=Training(rate=job.training.rate, batch=job.training.batch),
        steps=job.steps,
        seed=job.seed,
        hardware=hardware,
    )
    return FogSimulation(job, task, devices, fogging)


def _central(data: Floats) -> Nature:
    """All that devices collect, on one that costs nothing."""

    def central(names: Sequence[str], own: Sequence[int], law: DelayLaw) -> Movement:
        return Movement(
            data=data.sum(axis=1, keepdims=True),
            process_cost=np.array(0.0),
            links=Links.always(1, len(data), [], []),
            link_cost=np.zeros(0),
        )

    return central
