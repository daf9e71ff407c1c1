"""The table of asynchronous training."""

from melisma.errors import ConfigError
from melisma.jobs.table import Table


class AsynchronousTable(Table, frozen=True, kw_only=True):
    """How updates that come one by one become models."""

    updates: int | None = None  #: of a cycle; one for each learner if not given
    buffer: int = 10  #: updates with which FedBuff moves the model
    #: Versions of the model; no limit if not given.
    staleness_at_most: int | None = None
    mixing: float | None = None  #: α: 0.6 for FedAsync, 0.9 for FedCompass
    exponent: float = 0.5  #: a of both, by which weights fall with age
    least: float = 0.2  #: of its work that FedCompass has a learner do in an order
    patience: float = 1.2  #: λ: times its expected time that a group is waited for

    def _check(self) -> None:
        if self.updates is not None and self.updates < 1:
            raise ConfigError(f"updates = {self.updates}: give 1 or more")
        if self.buffer < 1:
            raise ConfigError(f"buffer = {self.buffer}: give 1 or more")
        if self.staleness_at_most is not None and self.staleness_at_most < 0:
            raise ConfigError(
                f"staleness_at_most = {self.staleness_at_most}: give 0 or more"
            )
        if self.mixing is not None and not 0 < self.mixing <= 1:
            raise ConfigError(f"mixing = {self.mixing}: give a share above 0, up to 1")
        if not 0 <= self.exponent < float("inf"):
            raise ConfigError(f"exponent = {self.exponent}: give a number from 0 up")
        if not 0 < self.least <= 1:
            raise ConfigError(f"least = {self.least}: give a share above 0, up to 1")
        if not 1 <= self.patience < float("inf"):
            raise ConfigError(f"patience = {self.patience}: give a number from 1 up")
