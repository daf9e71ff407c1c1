"""The table of what travels."""

from melisma.jobs.table import Table


class WireTable(Table, frozen=True, kw_only=True):
    """How models and changes are made smaller; `melisma.learning.codecs` has all."""

    down: str = "fp32"  #: the model, to learners
    up: str = "fp32"  #: what each of them changed

    @property
    def is_plain(self) -> bool:
        """Whether models travel as they are."""
        return self == WireTable()
