"""The fog paper's runs: devices move data and train, once for each case and seed.

A case is a row of a table or a point of a figure. Its arrays have names like
``B/accuracy``, with seeds on the first axis.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np

import melisma as mel
from melisma.algorithms import Fog
from melisma.fog import Flows, Movement, cost, move, profiles, topologies
from melisma.fog import settings as drawn
from melisma.jobs import (
    Costs,
    DataTable,
    FogTable,
    Job,
    LearnersTable,
    TrainingTable,
)
from melisma.launch import build
from melisma.learning import Part
from melisma.runs import Record, evaluations
from melisma.system import DelayLaw, Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond
from melisma.views import fog as moves

from .fog_losses import WatchedDevices, local_losses
from .kit import Data, Spread, in_order

#: What is paid for, by the sample collected.
COSTS = ("process", "transfer", "discard")
#: Settings of Table III as schemes: how data move, and whether there are capacities.
SETTINGS = {
    "A": ("fog:alone", False),
    "B": ("fog:known", False),
    "C": ("fog:windows", False),
    "D": ("fog:windows", True),
}
#: Methods of Table II; network-aware learning is setting B.
METHODS = {"central": "fog:central", "federated": "fog:federated", "aware": "B"}
MEDIA = {"LTE": profiles.LTE, "WiFi": profiles.WIFI}
TOPOLOGIES = ("social", "hierarchical", "full")
#: Readings of the error in Figs. 5 to 7.
ERRORS = ("linear", "convex")


@dataclass(frozen=True, slots=True, kw_only=True)
class FogStudy:
    """What all runs with training have in common; Table III and Fig. 4 as it is."""

    dataset: str = "mnist"
    model: str = "FogMLP"
    devices: int = 10
    slots: int = 100
    period: int = 10  #: τ, slots from one aggregation to the next
    windows: int = 10  #: of settings C and D
    rate: float = 0.01
    batch: int = 10  #: samples of a gradient step
    passes: int = 1  #: over the samples of a slot
    #: Samples that are collected in all; None: half of the training set.
    collected: int | None = None
    density: float = 1.0  #: ρ, of links
    discard: float = 2.0  #: f: discarding a sample in slot t costs f/√t
    resets: bool = False  #: t counts from the last aggregation, not from the start
    seeds: int = 10
    #: γ of a convex error, γ/√(G + 1) of each device in each slot, beside f.
    gamma: float = field(default=0.0, metadata={"added": True})


Study = TypeVar("Study", bound=FogStudy)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorsStudy(FogStudy):
    """Runs by two readings of the error: linear, and convex beside it."""

    #: γ of the convex one: a device that trains on nothing in a slot then costs as much
    #: as discarding five samples in the first.
    convex: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodsStudy(FogStudy):
    """Every number that Table II depends on."""

    models: tuple[str, ...] = ("FogMLP",)
    #: Passes of central and federated learning that are taken for convergence.
    converged: int = 8
    others: tuple[int, ...] = (1,)  #: passes that are shown beside


class Reading(NamedTuple):
    """One way to read what the paper says of training."""

    batch: int
    passes: int
    collected: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingsStudy(FogStudy):
    """Every number that the other readings of Table III depend on."""

    #: A batch above all there is of a slot is one gradient, as Eq. (3) has it.
    readings: tuple[Reading, ...] = (
        Reading(10, 1),
        Reading(10, 10),
        Reading(1000, 1),
        Reading(1, 1, 4_400),
    )
    discards: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0, 20.0)
    draws: int = 10  #: of costs, without training


@dataclass(frozen=True, slots=True, kw_only=True)
class SizesStudy(ErrorsStudy):
    """Every number that Fig. 5 depends on."""

    sizes: tuple[int, ...] = (5, 10, 20, 30, 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodsStudy(ErrorsStudy):
    """Every number that Fig. 6 depends on."""

    periods: tuple[int, ...] = (1, 5, 10, 20, 50)
    resets: bool = True
    cheap: float = 0.5  #: another f, at which more is discarded


@dataclass(frozen=True, slots=True, kw_only=True)
class DensitiesStudy(ErrorsStudy):
    """Every number that Fig. 7 depends on."""

    densities: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaStudy:
    """Every number that Fig. 8 depends on."""

    devices: int = 30  #: n is not printed
    beside: int = 10  #: devices of another n, shown beside it
    slots: int = 100
    most: float = 60.0  #: samples of a device in a slot
    discard: float = 1.0  #: f, the same in all slots
    seeds: int = 20


class Case(NamedTuple):
    """A study with one value of everything, in a setting or by a scheme."""

    study: FogStudy
    setting: str


class Trial(NamedTuple):
    """One run of a case."""

    case: Case
    seed: int


def job_of(study: FogStudy, setting: str, seed: int) -> Job:
    """One run of the paper's fog."""
    scheme, capacities = SETTINGS.get(setting, (setting, False))
    cycles = study.slots // study.period
    device = LearnersTable(
        name="device",
        count=study.devices,
        # Of no account: costs are drawn, and a slot is as long as it has to be.
        rate=SamplesPerSecond(1000.0),
        bandwidth=BytesPerSecond(1e6),
    )
    fog = FogTable(
        period=study.period,
        windows=study.windows,
        links="full" if study.density == 1.0 else "random",
        density=study.density,
        costs=Costs.UNIFORM,
        capacities=capacities,
        discard=study.discard,
        gamma=study.gamma,
    )
    return Job(
        name="fog",
        scheme=scheme,
        model=study.model,
        mode=Mode.FEDERATED,
        cycles=cycles,
        deadline=Deadline(float(study.period)),
        seed=seed,
        steps=study.passes,
        # D ~ U(0, most): twice as much at most as on average.
        samples=study.collected and 2 * study.collected // cycles,
        data=DataTable(name=study.dataset),
        training=TrainingTable(rate=study.rate, batch=study.batch),
        fog=fog,
        learners=(device,),
    )


def outcome(trial: Trial) -> Data:
    """Run a trial: accuracy, costs, where data went."""
    (study, setting), seed = trial
    simulation = build(job_of(study, setting, seed))
    return run_with(simulation.built.crew, simulation, study)


def outcome_with_losses(trial: Trial) -> Data:
    """The same, and the loss of each device on its own data, cycle by cycle."""
    (study, setting), seed = trial
    simulation = build(job_of(study, setting, seed))
    crew, task = WatchedDevices(simulation.built.crew), simulation.built.task
    found = run_with(crew, simulation, study)
    own = [
        Part(task.taken.train, crew.own_rows[name][: int(collected)])
        for name, collected in zip(crew.learners, found["own"], strict=True)
    ]
    return {**found, "loss": local_losses(crew.models, task, own)}


def run_with(crew: Any, simulation: Any, study: FogStudy) -> Data:
    """Simulate with these devices; what it comes to."""
    built, problems, records = simulation.built, list[Movement](), list[Record]()
    settings = built.algorithm.settings

    def environment(
        names: Sequence[str], own: Sequence[int], law: DelayLaw
    ) -> Movement:
        problem = settings.environment(names, own, law)
        problems.append(since_aggregation(problem, study) if study.resets else problem)
        return problems[-1]

    fog = Fog(crew, replace(settings, environment=environment))
    simulation = replace(simulation, built=built._replace(algorithm=fog))
    simulation.run(watch=records.append)
    return told(records, problems[-1])


def since_aggregation(problem: Movement, study: FogStudy) -> Movement:
    """The same with f/√t that begins anew after each aggregation."""
    t = np.arange(problem.slots) % study.period + 1.0
    falls = np.tile((study.discard / np.sqrt(t))[:, None], problem.devices)
    return replace(problem, discard_cost=falls)


def told(records: Sequence[Record], problem: Movement) -> Data:
    """What a run comes to; costs and shares are per sample collected."""
    moved = [record for record in records if isinstance(record, mel.Moved)]
    sums = moves.total(moved)
    all_ = float(problem.data.sum())
    values = {
        "process": sums.process_cost / all_,
        "transfer": sums.transfer_cost / all_,
        "discard": sums.error_cost / all_,
        "sent": sums.sent / all_,
        "discarded": sums.discarded / all_,
    }
    values["unit"] = sum(values[name] for name in COSTS)
    accuracy = evaluations(records)[-1].metrics["accuracy"] or 0.0
    values |= {"accuracy": accuracy, "collected": all_}
    sent = np.zeros(problem.slots)
    for slot, here in moves.by_slot(moved).items():
        sent[min(slot, problem.slots) - 1] += here.sent
    return {
        **{name: np.array(value) for name, value in values.items()},
        "sent_by_slot": sent / np.maximum(problem.data.sum(axis=1), 1.0),
        "own": problem.data.sum(axis=0),
    }


def gather(
    cases: Mapping[str, tuple[Case, int]],
    spread: Spread,
    trial: Callable[[Trial], Data] = outcome,
) -> Data:
    """Run every case with so many seeds; arrays by case and name."""
    trials = [
        Trial(case, seed) for case, seeds in cases.values() for seed in range(seeds)
    ]
    found = iter(spread(trial, trials))
    data: Data = {}
    for name, (_, seeds) in cases.items():
        rows = [next(found) for _ in range(seeds)]
        data |= {
            f"{name}/{what}": np.stack([r[what] for r in rows]) for what in rows[0]
        }
    return data


def run_settings(study: FogStudy, spread: Spread = in_order) -> Data:
    """Table III and Fig. 4: settings A to D."""
    cases = {name: (Case(study, name), study.seeds) for name in SETTINGS}
    return gather(cases, spread, outcome_with_losses)


def run_methods(study: MethodsStudy, spread: Spread = in_order) -> Data:
    """Table II, ``model/method/passes``; network-aware learning has its own passes."""
    passes = sorted({study.converged, *study.others})
    cases: dict[str, tuple[Case, int]] = {}
    # The longest first, so that nobody waits for them in the end.
    for model in reversed(study.models):
        here = replace(study, model=model)
        for p, method in product(reversed(passes), ("federated", "central")):
            case = Case(replace(here, passes=p), METHODS[method])
            cases[f"{model}/{method}/{p}"] = case, study.seeds
        cases[f"{model}/aware"] = Case(here, METHODS["aware"]), study.seeds
    return {
        "passes": np.array(passes, dtype=np.float64),
        "converged": np.array(study.converged, dtype=np.float64),
        **gather(cases, spread),
    }


def run_readings(study: ReadingsStudy, spread: Spread = in_order) -> Data:
    """Table III by other readings: training, and costs without it."""
    cases = {
        f"{n}/{setting}": (
            Case(replace(study, **reading._asdict()), setting),
            study.seeds,
        )
        for (n, reading), setting in product(enumerate(study.readings), SETTINGS)
    }
    draws = [
        Draw(
            *(setting, study.devices, study.slots, study.windows),
            *(discard, steady, seed),
        )
        for steady, discard, setting, seed in product(
            (True, False), study.discards, SETTINGS, range(study.draws)
        )
    ]
    shape = (2, len(study.discards), len(SETTINGS), study.draws)
    return {
        "readings": np.array(
            [(r.batch, r.passes, r.collected or np.nan) for r in study.readings]
        ),
        "discards": np.array(study.discards),
        "unit_costs": np.array(spread(unit_cost, draws)).reshape(shape),
        **gather(cases, spread),
    }


class Draw(NamedTuple):
    """A movement of the paper's kind."""

    setting: str
    devices: int
    slots: int
    windows: int
    discard: float
    steady: bool
    seed: int


def unit_cost(draw: Draw) -> float:
    """Cost of a sample, without training."""
    problem, flows = drawn.run(
        draw.setting,
        np.random.default_rng(draw.seed),
        windows=draw.windows,
        devices=draw.devices,
        slots=draw.slots,
        discard=draw.discard,
        steady=draw.steady,
    )
    return float(sum(per_sample(problem, flows)))


def per_sample(problem: Movement, flows: Flows) -> tuple[float, float, float]:
    """Costs of processing, transfers and discarding for each sample collected."""
    paid, samples = cost(problem, flows), float(problem.data.sum())
    return paid.process / samples, paid.transfer / samples, paid.error / samples


def by_error(study: ErrorsStudy) -> dict[str, ErrorsStudy]:
    """The study by either reading of the error; names as in ERRORS."""
    return {
        error: replace(study, gamma=gamma)
        for error, gamma in zip(ERRORS, (0.0, study.convex), strict=True)
    }


def run_sizes(study: SizesStudy, spread: Spread = in_order) -> Data:
    """Fig. 5: setting B by the number of devices, ``error/devices``."""
    cases = {
        f"{error}/{n}": (Case(replace(one, devices=n), "B"), study.seeds)
        for (error, one), n in product(by_error(study).items(), study.sizes)
    }
    return {"sizes": np.array(study.sizes, dtype=np.float64), **gather(cases, spread)}


def run_periods(study: PeriodsStudy, spread: Spread = in_order) -> Data:
    """Fig. 6: setting B by the slots between aggregations, the linear error at two f.

    ``error/slots``, or ``cheap/slots`` of the other f.
    """
    ways = {**by_error(study), "cheap": replace(study, discard=study.cheap)}
    cases = {
        f"{name}/{tau}": (Case(replace(one, period=tau), "B"), study.seeds)
        for (name, one), tau in product(ways.items(), study.periods)
    }
    periods = np.array(study.periods, dtype=np.float64)
    discards = np.array([study.discard, study.cheap])
    return {"periods": periods, "discards": discards, **gather(cases, spread)}


def run_densities(study: DensitiesStudy, spread: Spread = in_order) -> Data:
    """Fig. 7: setting B by the density of links, ``error/density``."""
    cases = {
        f"{error}/{rho:g}": (Case(replace(one, density=rho), "B"), study.seeds)
        for (error, one), rho in product(by_error(study).items(), study.densities)
    }
    return {"densities": np.array(study.densities), **gather(cases, spread)}


class Medium(NamedTuple):
    """A fog on WiFi or LTE."""

    study: MediaStudy
    medium: str
    topology: str
    devices: int
    seed: int


def medium_costs(one: Medium) -> tuple[float, float, float]:
    """Costs per sample, everything known and without capacities."""
    profile, n, T = MEDIA[one.medium], one.devices, one.study.slots
    rng = np.random.default_rng(one.seed)
    process = profile.process_cost(n, T, rng)
    links = {
        "full": lambda: topologies.full(n, T),
        "social": lambda: topologies.social(n, T, rng),
        "hierarchical": lambda: topologies.hierarchical(process.mean(axis=0), T, rng),
    }[one.topology]()
    problem = Movement(
        data=np.round(rng.uniform(0.0, one.study.most, (T, n))),
        process_cost=process,
        links=links,
        link_cost=profile.link_cost(links, rng),
        discard_cost=np.array(one.study.discard),
    )
    return per_sample(problem, move(problem).flows)


def run_media(study: MediaStudy, spread: Spread = in_order) -> Data:
    """Fig. 8: ``devices/medium/topology``, seeds × costs."""
    sizes = (study.devices, study.beside)
    cases = list(product(sizes, MEDIA, TOPOLOGIES))
    todo = [
        Medium(study, medium, topology, n, seed)
        for (n, medium, topology), seed in product(cases, range(study.seeds))
    ]
    found = np.array(spread(medium_costs, todo)).reshape(len(cases), study.seeds, 3)
    return {
        "devices": np.array(sizes, dtype=np.float64),
        **{f"{n}/{m}/{top}": found[k] for k, (n, m, top) in enumerate(cases)},
    }
