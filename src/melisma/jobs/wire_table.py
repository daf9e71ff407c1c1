"""The tables of what travels: in one way, or in each learner's own."""

from melisma.errors import ConfigError
from melisma.jobs.table import Table


class WireTable(Table, frozen=True, kw_only=True):
    """How models and changes are made smaller; `melisma.learning.codecs` has all."""

    down: str = "fp32"  #: the model, to learners
    up: str = "fp32"  #: what each of them changed

    @property
    def is_plain(self) -> bool:
        """Whether models travel as they are."""
        return self == WireTable()


class OptionTable(WireTable, frozen=True, kw_only=True):
    """A way in which a learner may take part, where the scheme chooses one for each."""

    submodel: str | None = None  #: what is trained of the model; None: all of it
    value: float | None = None  #: of a sample that is trained so; None: it is measured

    def _check(self) -> None:
        if self.value is not None and not 0 < self.value <= 1:
            raise ConfigError(f"value = {self.value}: give a number above 0, up to 1")

    @property
    def name(self) -> str:
        """As records say it: the way up alone, where the model goes down as it is."""
        wire = self.up if self.down == "fp32" else f"{self.down} / {self.up}"
        if self.submodel is None:
            return wire
        is_plain = self.down == self.up == "fp32"
        return self.submodel if is_plain else f"{self.submodel}, {wire}"
