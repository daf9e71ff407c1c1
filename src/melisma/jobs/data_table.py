"""The table of a job that says what is trained on and where it lies: `[data]`."""

from enum import StrEnum

from melisma.errors import ConfigError
from melisma.jobs.table import Table
from melisma.learning.lengths import Lengths, Sizes, lengths_of


class Split(StrEnum):
    """How the training set lies on the learners in federated mode."""

    IID = "iid"
    DIRICHLET = "dirichlet"
    LABELS = "labels"


class DataTable(Table, frozen=True, kw_only=True):
    """The data set, and in federated mode how it is split."""

    name: str = "mnist-5k"  #: a data set: mnist-5k, mnist, fashion-mnist, cifar10
    folder: str | None = None  #: where its files are; else the cache, else a download
    train: str | None = None  #: one's own in its place: a file, folder, module:function
    test: str | float | None = None  #: the same to test with, or a share of ``train``
    target: str | None = None  #: the column of a table to predict; the last if None
    features: tuple[str, ...] | None = None  #: columns to predict from; all others
    split: Split = Split.IID  #: which classes learners have
    alpha: float = 0.5  #: of the Dirichlet split: smaller is more unequal
    #: Of each learner in the label split; of two numbers, each draws one in between.
    classes: int | tuple[int, int] = 2
    sizes: Sizes = Sizes.ANY  #: how much learners have
    sizes_alpha: float | None = None  #: α of Dirichlet sizes, of each learner (1)

    def _check(self) -> None:
        if isinstance(self.classes, tuple):
            self._check_range(*self.classes)
        if self.sizes == Sizes.EQUAL and self.split != Split.DIRICHLET:
            raise ConfigError(
                f"sizes = 'equal' with split = {self.split.value!r}, whose parts are "
                "even as they are: leave it out, or take split = 'dirichlet'"
            )
        if self.sizes_alpha is not None and self.sizes != Sizes.DIRICHLET:
            raise ConfigError(
                f"sizes_alpha is of sizes = 'dirichlet', and it is "
                f"{self.sizes.value!r}: leave it out"
            )
        self.lengths()  # which says what is wrong with sizes_alpha

    def _check_range(self, fewest: int, most: int) -> None:
        given = f"classes = [{fewest}, {most}]"
        if self.split != Split.LABELS:
            raise ConfigError(
                f"{given} is of split = 'labels', and it is {self.split.value!r}: "
                "leave it out"
            )
        if not 1 <= fewest <= most:
            raise ConfigError(f"{given}: give the fewest, from 1 up, then the most")

    def lengths(self) -> Lengths | None:
        """Return how lengths of uneven parts are drawn; None where parts are not."""
        return lengths_of(
            self.sizes, 1.0 if self.sizes_alpha is None else self.sizes_alpha
        )
