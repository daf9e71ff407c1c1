"""The table of batteries and fair transmission in coded training."""

from enum import StrEnum

from melisma.errors import ConfigError
from melisma.jobs.table import Table
from melisma.transmission.power import Power
from melisma.units import Joules, Seconds, Watts


class Harvest(StrEnum):
    """What a slot brings to a battery."""

    UNIFORM = "uniform"  #: between nothing and twice the mean
    STEADY = "steady"  #: the mean


class TransmissionTable(Table, frozen=True, kw_only=True):
    """Batteries of coded workers, and how the scheduler weighs them."""

    battery: Joules = Joules(50.0)  #: what each worker's holds
    start: Joules | None = None  #: in it as the run begins; full if not given
    harvest: Watts = Watts(1.0)  #: mean
    law: Harvest = Harvest.UNIFORM  #: of what is harvested in a slot
    sending: Watts = Watts(1.0)  #: drawn while an answer is sent
    computing: Watts = Watts(5.0)  #: drawn while gradients are computed
    slot: Seconds = Seconds(0.1)  #: for which channels are given
    utility: float = 0.02  #: V: of fairness against backlog, in answers²
    fairness: float = 100.0  #: λ, per answer: who is much slower is left out below it
    decoding: Seconds = Seconds(0.0)  #: of the orchestrator, for one answer

    def _check(self) -> None:
        try:
            self.power()
        except ConfigError as error:
            raise ConfigError(f"[transmission] {error}") from error

    def power(self) -> Power:
        """Return what the table describes; ConfigError if it cannot be."""
        return Power(
            battery_j=float(self.battery),
            start_j=None if self.start is None else float(self.start),
            harvest_w=float(self.harvest),
            steady=self.law == Harvest.STEADY,
            sending_w=float(self.sending),
            computing_w=float(self.computing),
            slot_s=float(self.slot),
            utility_weight=self.utility,
            fairness=self.fairness,
            decoding_s=float(self.decoding),
        )
