"""Fog training from a job: simulated and live."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from melisma.algorithms.control import Control
from melisma.algorithms.fog import Environment, Fog, FogSettings
from melisma.algorithms.loop import train
from melisma.errors import ConfigError, unknown
from melisma.fleets.live_fog import LiveDevices, RelayServer
from melisma.fleets.roster import Roster
from melisma.fleets.simulated_fog import SimulatedDevices
from melisma.fog import Links, Movement, averages, presence
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
from melisma.jobs.averaging import merger_of
from melisma.jobs.building import (
    Prepared,
    own_rows,
    state_law,
    task_on,
    workload_of,
)
from melisma.jobs.families import CENTRAL
from melisma.jobs.fog_table import Costs, FogTable, Moving
from melisma.jobs.fog_times import times_of
from melisma.jobs.live_task import LiveTask
from melisma.jobs.schema import Job, names_of
from melisma.learning.settings import HERE, Hardware
from melisma.maths.arrays import Bools, Floats
from melisma.system.law import DelayLaw, Mode
from melisma.system.streams import Stream


def settings_of(job: Job, there: Bools | None = None) -> FogSettings:
    """Return how a job moves data; the job as `Family.checked` returns it.

    ``there`` says which devices are simulated to be there, T × n; None: who is.
    """
    return FogSettings(
        period=job.fog.period,
        planner=planner_of(job),
        environment=environment_of(job, there),
    )


def presence_of(job: Job) -> Bools:
    """V(t), T × n: which devices of a simulated fog are there in each slot."""
    fog, n, T = job.fog, len(names_of(job)), job.cycles * job.fog.period
    if fog.comings is not None:
        return presence.from_file(Path(fog.comings), n, T)
    rng = np.random.default_rng([job.seed, Stream.COMINGS])
    return presence.drawn(n, T, fog.arrivals, fog.departures, rng)


def planner_of(job: Job) -> Planner:
    """Return the planner of a job."""
    match job.fog.plan:
        case Moving.ALONE:
            return Alone()
        case Moving.KNOWN:
            return Known()
        case Moving.WINDOWS:
            return Windows(job.fog.windows or job.cycles)
        case Moving.ROLLING:
            return Rolling(job.fog.horizon, averages)


def environment_of(job: Job, there: Bools | None = None) -> Environment:
    """Return what makes the movement problem: data, links, costs and capacities."""
    present = np.array(True) if there is None else there

    def chance(stream: int) -> np.random.Generator:
        return np.random.default_rng([job.seed, Stream.FOG, stream])

    def environment(
        names: Sequence[str], own: Sequence[int], law: DelayLaw
    ) -> Movement:
        fog, n, T = job.fog, len(names), job.cycles * job.fog.period
        slot_s = float(job.deadline) / fog.period
        if times := times_of(job, names, law):
            pass_s = job.steps * times.process_s(T)
            # The unit of cost is a sample on the slowest device, in a usual slot.
            unit_s = np.median(pass_s, axis=0).max()
            process = pass_s / unit_s
        else:
            process = _profile(fog).process_cost(n, T, chance(0))
        links = links_of(fog, T, process.mean(axis=0), chance(1))
        if times:
            link_s = times.link_s(links)
            link_cost = link_s / unit_s
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
            return replace(problem, there=present)
        if times:
            with np.errstate(divide="ignore"):
                capacity, link_capacity = slot_s / pass_s, slot_s / link_s
        else:
            drawn = limited(problem, chance(4))
            capacity, link_capacity = drawn.capacity, drawn.link_capacity
        return replace(
            problem,  # whole samples move
            capacity=np.floor(capacity),
            link_capacity=np.floor(link_capacity),
            there=present,
        )

    return environment


def _profile(fog: FogTable) -> Uniform | Profile:
    media: dict[str, Profile] = {Costs.WIFI: WIFI, Costs.LTE: LTE}
    return media.get(fog.costs) or Uniform(steady=fog.steady)


def collected(job: Job, own: Sequence[int]) -> Floats:
    """D_i(t) ~ U(0, own samples / T), rounded: half of them on average, none twice."""
    T, owned = job.cycles * job.fog.period, np.array(own, dtype=np.float64)
    most = owned / T
    if job.samples is not None:
        most = np.minimum(most, job.samples / (job.fog.period * owned.size))
    rng = np.random.default_rng([job.seed, Stream.FOG, 3])
    drawn = np.round(rng.uniform(0.0, most, (T, owned.size)))
    total = np.minimum(np.cumsum(drawn, axis=0), owned)
    return np.diff(total, axis=0, prepend=0.0)


def links_of(
    fog: FogTable, slots: int, cost: Floats, rng: np.random.Generator
) -> Links:
    """Return the links of each slot; ``cost`` is each device's processing cost."""
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


def simulated(job: Job, hardware: Hardware = HERE) -> Prepared:
    """Load, build and price what a job describes; ConfigError or DataError if wrong."""
    task, names = replace(task_on(hardware, job), shard=1), names_of(job)
    # Samples are sent, so the law needs their transfer times.
    sending = msgspec.structs.replace(job, mode=Mode.PARALLEL)
    law, gamma = state_law(sending, workload_of(job, task.model, task.data))
    rows, there = own_rows(job, task.data) or [], presence_of(job)
    settings = settings_of(job, there)
    if job.scheme == CENTRAL:
        data = collected(job, [len(own) for own in rows]) * there
        settings = replace(settings, environment=_central(data))
        names, rows = ["central"], [np.concatenate(rows)]
    crew = SimulatedDevices(
        names,
        law.expected(gamma),
        model=task.model,
        samples=task.taken.train,
        own_rows=rows,
        training=task.training,
        steps=job.steps,
        seed=job.seed,
        hardware=hardware,
    )
    return Prepared(job, task, crew, Fog(crew, settings, merger=merger_of(job)))


def services(job: Job) -> list[object]:
    """Return what devices may call beside the model server: the relay."""
    return [RelayServer(job.name)]


async def live(
    job: Job,
    tasks: list[LiveTask],
    roster: Roster,
    control: Control,
    services: list[object],
) -> None:
    """Train with the devices that joined."""
    (live_task,), (relay,) = tasks, services
    assert isinstance(relay, RelayServer)
    crew = LiveDevices(roster, live_task.served, relay, began_s=live_task.began_s)
    # Benchmarks use shards, but single samples are moved.
    task = replace(live_task.task, shard=1)
    algorithm = Fog(crew, settings_of(job), live_task.run.past, merger_of(job))
    await train(task, crew, algorithm, live_task.run, patient=True, control=control)


def _central(data: Floats) -> Environment:
    """One device that has all data that devices collect, and no costs."""

    def central(names: Sequence[str], own: Sequence[int], law: DelayLaw) -> Movement:
        return Movement(
            data=data.sum(axis=1, keepdims=True),
            process_cost=np.array(0.0),
            links=Links.always(1, len(data), [], []),
            link_cost=np.zeros(0),
        )

    return central
