"""What learners draw, cost and emit, in a job file; and what is limited."""

import math
from enum import StrEnum

from melisma.errors import ConfigError
from melisma.jobs.table import Table
from melisma.units import GramsPerJoule, Joules, Seconds, Watts

#: Least mean time for which a spot instance is there, or away.
SHORTEST_S = 1.0


class Per(StrEnum):
    """What a limit of energy, money or carbon is of."""

    CYCLE = "cycle"
    RUN = "run"


class PowerTable(Table, frozen=True, kw_only=True):
    """What a learner draws, costs and emits."""

    computing: Watts = Watts(5.0)  #: drawn while it trains
    sending: Watts = Watts(1.0)  #: drawn while data or a model travels
    waking: Joules = Joules(0.0)  #: to take part in a cycle at all
    battery: Joules | None = None  #: that it has; the mains if not given
    start: Joules | None = None  #: in it as the run begins; full if not given
    harvest: Watts = Watts(0.0)  #: that fill it, on average
    per_joule: float = 0.0  #: price of a joule
    per_second: float = 0.0  #: price of a second of work
    per_byte: float = 0.0  #: price of a byte that travels
    carbon: GramsPerJoule = GramsPerJoule(0.0)  #: of the electricity that it uses
    reclaim: Seconds | None = None  #: mean time until a spot instance is taken away
    returns: Seconds | None = None  #: mean time until it is back; never if not given

    def _check(self) -> None:
        for key in self.__struct_fields__:
            value = getattr(self, key)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(
                    f"power.{key} is {float(value)}: give a finite number from 0 up"
                )
        if self.start is not None and self.start > (self.battery or 0.0):
            raise ConfigError(
                f"power.start of {float(self.start)} J in a battery of "
                f"{float(self.battery or 0.0)} J: give what it holds or less"
            )
        for key in ("reclaim", "returns"):
            if (mean_s := getattr(self, key)) is not None and mean_s < SHORTEST_S:
                raise ConfigError(
                    f"power.{key} of {float(mean_s)} s: give a mean time of "
                    f"{SHORTEST_S:g} s or more, or leave it out"
                )
        if self.returns is not None and self.reclaim is None:
            raise ConfigError(
                "power.returns without power.reclaim: say when it is taken, too"
            )
