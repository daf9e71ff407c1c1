"""What a job says of energy, money and carbon, as its runs need it."""

import math

import numpy as np

from melisma.algorithms.spending import Limit, Spender, Spent
from melisma.jobs.building import workload_of
from melisma.jobs.energy_table import Per
from melisma.jobs.schema import Job, names_of
from melisma.learning.data import Dataset
from melisma.learning.parameters import Model
from melisma.system.energy import PowerProfile
from melisma.system.law import Mode
from melisma.system.promise import Promises
from melisma.system.spot import SpotInstances


def spender_of(
    job: Job, model: Model, dataset: Dataset, promises: Promises | None
) -> Spender | None:
    """Return what plans by what is spent, where the job says what learners draw."""
    if (power := power_of(job)) is None:
        return None
    return Spender(power, names_of(job), limit_of(job, model, dataset), promises)


def power_of(job: Job) -> PowerProfile | None:
    """Return what learners draw, cost and emit; None where the job does not say."""
    rows = []
    for group in job.learners:
        if (table := group.power) is None:
            return None
        battery_j = math.inf if table.battery is None else float(table.battery)
        row = {
            "computing_w": float(table.computing),
            "sending_w": float(table.sending),
            "waking_j": float(table.waking),
            "battery_j": battery_j,
            "start_j": battery_j if table.start is None else float(table.start),
            "harvest_w": float(table.harvest),
            "joule_price": table.per_joule,
            "second_price": table.per_second,
            "byte_price": table.per_byte,
            "carbon_g": float(table.carbon),
            "reclaim_s": math.inf if table.reclaim is None else float(table.reclaim),
            "returns_s": math.inf if table.returns is None else float(table.returns),
        }
        rows += [row] * group.count
    return PowerProfile(
        **{key: np.array([row[key] for row in rows]) for key in rows[0]}
    )


def spot_of(job: Job) -> SpotInstances | None:
    """Return when learners are reclaimed and come back, where some may be."""
    power = power_of(job)
    if power is None or np.isinf(power.reclaim_s).all():
        return None
    return SpotInstances(power.reclaim_s, power.returns_s, job.seed)


def limit_of(job: Job, model: Model, dataset: Dataset) -> Limit:
    """Return what may be spent, and in what it is counted."""
    workload = workload_of(job, model, dataset)
    is_sent = job.mode == Mode.PARALLEL
    given = {
        Spent.MONEY: job.budget,
        Spent.CARBON: job.carbon,
        Spent.ENERGY: job.energy,
    }
    most = {what: float(most) for what, most in given.items() if most is not None}
    return Limit(
        most=most or {Spent.ENERGY: math.inf},
        of_run=job.per == Per.RUN,
        sample_bytes=workload.sample_bits / 8 if is_sent else 0.0,
        model_bytes=workload.model_bits / 8,
    )
