"""The table of a job that says what is trained on and where it lies: `[data]`."""

from enum import StrEnum

from melisma.jobs.table import Table


class Split(StrEnum):
    """How the training set lies on the learners in federated mode."""

    IID = "iid"
    DIRICHLET = "dirichlet"
    LABELS = "labels"


class DataTable(Table, frozen=True, kw_only=True):
    """The data set, and in federated mode how it is split."""

    name: str = "mnist-5k"
    folder: str | None = None  #: where its files are; else the cache, else a download
    train: str | None = None  #: one's own in its place: a file, folder, module:function
    test: str | float | None = None  #: the same to test with, or a share of ``train``
    target: str | None = None  #: the column of a table to predict; the last if None
    features: tuple[str, ...] | None = None  #: columns to predict from; all others
    split: Split = Split.IID
    alpha: float = 0.5  #: of the Dirichlet split: smaller is more unequal
    classes: int = 2  #: of each learner in the label split
