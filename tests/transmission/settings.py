"""Settings, queues and slots that the tests of transmission share."""

import numpy as np
from hypothesis import strategies as st

from melisma.transmission.queues import Observed, Queues, Setting
from melisma.transmission.slots import draw

seeds = st.integers(0, 2**32 - 1)


def random_setting(rng: np.random.Generator, workers: int | None = None) -> Setting:
    n = workers or int(rng.integers(1, 6))
    return Setting(
        rate_mbps=rng.uniform(0.5, 10, n),
        arrival_mbit=rng.uniform(0.1, 8, n),
        harvest_j=rng.uniform(0.05, 3, n),
        work_gcycles=rng.uniform(0, 2, n),
        compute_gcycles=rng.uniform(0.1, 3, n),
        power_w=rng.uniform(0.1, 2, n),
        compute_j_per_gcycle=rng.uniform(0.01, 0.5, n),
        server_gcycles_per_mbit=rng.uniform(0.01, 0.5, n),
        server_gcycles=rng.uniform(0.5, 5),
        channels=int(rng.integers(1, 4)),
        slot_s=rng.uniform(0.5, 2),
        utility_weight=10 ** rng.uniform(-1, 2.5),
        fairness_per_mbit=rng.uniform(0.2, 3, n),
        energy_weight=10 ** rng.uniform(-1, 3, n),
    )


def random_slot(rng: np.random.Generator) -> tuple[Setting, Queues, Observed]:
    """A setting with queues anywhere below their bounds, batteries often near θ."""
    setting = random_setting(rng)
    n = setting.workers
    share = np.where(rng.random(n) < 0.7, rng.uniform(0.9, 1.0, n), rng.random(n))
    queues = Queues(
        data_mbit=setting.most_data_mbit * rng.random(n),
        fairness_mbit=setting.most_fairness_mbit * rng.random(n),
        battery_j=setting.most_battery_j * share,
        work_gcycles=rng.uniform(0, 50, n),
        server_gcycles=rng.uniform(0, 3, 1),
    )
    observed = draw(setting, 1, rng)
    return (
        setting,
        queues,
        Observed(
            rate_mbps=observed.rate_mbps[0],
            arrival_mbit=observed.arrival_mbit[0],
            harvest_j=observed.harvest_j[0],
            work_gcycles=observed.work_gcycles[0],
        ),
    )
