"""The table of a fog in a job file, every key with its default."""

import math
from enum import StrEnum
from pathlib import Path

from melisma.errors import ConfigError, unknown
from melisma.jobs.table import Table


class Moving(StrEnum):
    """How data movement in a fog is planned."""

    ALONE = "alone"  #: nothing is sent
    KNOWN = "known"  #: the best plan, all slots known beforehand
    WINDOWS = "windows"  #: by the averages of the window before
    ROLLING = "rolling"  #: anew in each slot, by the averages so far


class Costs(StrEnum):
    """What moving data costs in a fog."""

    RATES = "rates"  #: the time it takes, by the learners' rates and bandwidths
    UNIFORM = "uniform"  #: the paper's synthetic costs
    WIFI = "wifi"  #: models of the paper's measurements
    LTE = "lte"


class FogTable(Table, frozen=True, kw_only=True):
    """How devices of a fog collect and move data (scheme "fog")."""

    period: int = 10  #: slots in a cycle
    plan: Moving = Moving.ROLLING  #: how much of the future it knows
    windows: int | None = None  #: as many as there are cycles if not given
    horizon: int = 10  #: slots that a rolling plan looks ahead
    links: str = "full"  #: a topology by name, or a CSV file
    density: float = 0.5  #: of random links
    up: float = 1.0  #: chance that a link is there in a slot
    costs: str = Costs.RATES  #: one of ``Costs``, or a CSV file of measured times
    steady: bool = True  #: uniform costs are drawn once, not for each slot
    capacities: bool = True  #: devices and links have limits
    discard: float = 2.0  #: f: discarding a sample in slot t costs f/√t
    gamma: float = 0.0  #: γ: training on G samples of a slot costs γ/√(G + 1)
    arrivals: float = 0.0  #: chance that a device that is away enters in a slot
    departures: float = 0.0  #: chance that a device that is there leaves in a slot
    comings: str | None = None  #: a CSV file that says who enters and leaves, and when

    def _check(self) -> None:
        if self.costs not in list(Costs) and not self.is_traced:
            raise unknown("costs", self.costs, [*Costs, "FILE.csv"])
        for key, least in (("period", 1), ("horizon", 1), ("discard", 0), ("gamma", 0)):
            if not least <= getattr(self, key) < math.inf:
                raise ConfigError(
                    f"{key} = {getattr(self, key)}: give a number from {least} up"
                )
        for key in ("arrivals", "departures"):
            if not 0 <= getattr(self, key) <= 1:
                raise ConfigError(
                    f"{key} = {getattr(self, key)}: give a chance from 0 to 1"
                )
        if self.comings and (self.arrivals or self.departures):
            raise ConfigError(
                "comings say when devices enter and leave: give them, or arrivals and "
                "departures"
            )

    @property
    def is_traced(self) -> bool:
        """Return whether costs are those of a trace."""
        return Path(self.costs).suffix == ".csv"
