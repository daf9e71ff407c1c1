"""State and inputs of fair transmission: queues, what a slot brings, the setting.

Arrays run over workers m; axes before the last run over independent runs. Squares of
Mbit, Gcycles and J are added in one Lyapunov function, so the units are part of the
scheme: in others the same rules weigh the queues differently.
"""

from dataclasses import dataclass, field
from math import log

import numpy as np

from melisma.errors import ConfigError
from melisma.maths.arrays import Floats, counts, numbers, set_numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Setting:
    """Workers that share channels. A number given once holds for every worker.

    The first five are the most that one slot brings: the queues' bounds rest on them.
    """

    rate_mbps: Floats  #: r_max, one number for each worker
    arrival_mbit: Floats  #: D_max
    harvest_j: Floats  #: E^H_max
    work_gcycles: Floats  #: most new work of a worker
    compute_gcycles: Floats  #: f_max, what a worker can compute in a slot
    power_w: Floats  #: p, while sending
    compute_j_per_gcycle: Floats  #: δ
    server_gcycles_per_mbit: Floats  #: ξ, the server's work for what it receives
    fairness_per_mbit: Floats  #: λ, in the utility log₂(1 + λ·throughput)
    server_gcycles: float  #: F, what the server can do in a slot
    channels: int  #: L
    slot_s: float = 1.0  #: T
    utility_weight: float = 20.0  #: V, of utility against backlog, Mbit²
    #: β, of each battery in the Lyapunov function, Mbit²/J².
    energy_weight: Floats = field(default_factory=lambda: np.ones(()))

    def __post_init__(self) -> None:
        shape = set_numbers(self, "rate_mbps", above=0.0, each="worker").shape
        if len(shape) != 1 or shape == (0,):
            raise ConfigError(
                f"rate_mbps has shape {shape}: give one number for each worker"
            )
        for name in ("power_w", "fairness_per_mbit", "energy_weight"):
            set_numbers(self, name, shape=shape, above=0.0, each="worker")
        for name in (
            *("arrival_mbit", "harvest_j", "work_gcycles", "compute_gcycles"),
            *("compute_j_per_gcycle", "server_gcycles_per_mbit"),
        ):
            set_numbers(self, name, shape=shape, each="worker")
        for name in ("slot_s", "utility_weight"):
            numbers(name, getattr(self, name), shape=(), above=0.0)
        numbers("server_gcycles", self.server_gcycles, shape=())
        counts("channels", self.channels, shape=(), least=1)

    @property
    def workers(self) -> int:
        """M."""
        return int(self.rate_mbps.size)

    @property
    def most_fairness_mbit(self) -> Floats:
        """H_max = Vλ/ln 2 + D_max: above Vλ/ln 2 the auxiliary is 0."""
        bound: Floats = (
            self.utility_weight * self.fairness_per_mbit / log(2) + self.arrival_mbit
        )
        return bound

    @property
    def most_data_mbit(self) -> Floats:
        """Q_max = H_max + D_max: with Q ≥ H nothing is admitted."""
        bound: Floats = self.most_fairness_mbit + self.arrival_mbit
        return bound

    @property
    def target_j(self) -> Floats:
        """θ = r_max·Q_max/(β·p) + p·T + f_max·δ, where the battery is held.

        Below p·T + f_max·δ no weight is positive: who sends has energy for the slot.
        """
        p, beta = self.power_w, self.energy_weight
        reserve = p * self.slot_s + self.compute_gcycles * self.compute_j_per_gcycle
        target: Floats = self.rate_mbps * self.most_data_mbit / (beta * p) + reserve
        return target

    @property
    def most_battery_j(self) -> Floats:
        """E_max = θ + E^H_max: above θ nothing is stored. The battery's size."""
        bound: Floats = self.target_j + self.harvest_j
        return bound


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Queues:
    """What waits at the beginning of a slot."""

    data_mbit: Floats  #: Q, admitted and not yet sent
    fairness_mbit: (
        Floats  #: H, virtual: what the auxiliary asked for and d did not give
    )
    battery_j: Floats  #: E
    work_gcycles: Floats  #: R
    server_gcycles: Floats  #: R_s; the last axis has length 1

    @classmethod
    def empty(cls, *shape: int) -> "Queues":
        """Nothing waits and no battery is charged; the last axis runs over workers."""
        data, fairness, battery, work = np.zeros((4, *shape))
        return cls(
            data_mbit=data,
            fairness_mbit=fairness,
            battery_j=battery,
            work_gcycles=work,
            server_gcycles=np.zeros((*shape[:-1], 1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observed:
    """What a slot brings."""

    rate_mbps: Floats  #: r
    arrival_mbit: Floats  #: D, gradient data that may be admitted
    harvest_j: Floats  #: E^H
    work_gcycles: Floats  #: new computing work


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decisions:
    """What is done in a slot."""

    auxiliary_mbit: Floats  #: y
    admitted_mbit: Floats  #: d
    stored_j: Floats
    computed_gcycles: Floats  #: f
    airtime_s: Floats  #: v
    sent_mbit: Floats  #: c = min(Q, r·v)
