"""What a paper is made of: its figures and tables, each with a study and claims.

    study → run → data → draw, table, claims

A study is a frozen dataclass with every number that its result depends on. ``run`` is
the only one that computes; its data are named arrays, which are kept on disk.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from matplotlib.figure import Figure

from melisma.errors import unknown
from melisma.maths import Floats

from .claims import Claim

Study = TypeVar("Study")
Todo = TypeVar("Todo")
Result = TypeVar("Result")

#: What a run comes to: arrays by name, the axes of its pictures among them.
Data = dict[str, Floats]
#: Epochs in a cycle: papers know no most of them, whatever a job's default is.
NO_LIMIT = 10**9


class Spread(Protocol):
    """Does a trial for each of some things, in whatever processes."""

    def __call__(
        self, trial: Callable[[Todo], Result], todo: Sequence[Todo]
    ) -> list[Result]:
        """Return what each came to, in the order of ``todo``."""


def in_order(trial: Callable[[Todo], Result], todo: Sequence[Todo]) -> list[Result]:
    """Do one after another, here."""
    return [trial(one) for one in todo]


#: Rows of a table, its heading first.
Cells = list[list[str]]


class Variant(StrEnum):
    """How much is done."""

    QUICK = "quick"  #: minutes on two cores
    FULL = "full"  #: the paper's own size, and real devices where it had some


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhibit(Generic[Study]):
    """A figure or a table of a paper."""

    kind: Literal["Figure", "Table", "Setting"] = "Figure"
    name: str  #: as printed: "3.6"
    title: str
    file: str  #: of its picture: "fig3.6_time"
    #: What is to be seen; fields of the study in braces.
    caption: str
    quick: Study
    full: Study
    #: In place of ``quick`` where the data set that it names is not to be had.
    embedded: Study | None = None
    run: Callable[[Study, Spread], Data]
    draw: Callable[[Figure, Data], None] | None = None
    table: Callable[[Data], Cells] | None = None
    claims: Callable[[Data], list[Claim]]

    @property
    def label(self) -> str:
        """What the paper calls it."""
        return f"{self.kind} {self.name}"

    def studies(self, variant: Variant) -> list[Study]:
        """The study of a variant, and what may stand in for it."""
        if variant == Variant.FULL:
            return [self.full]
        return [self.quick, *([] if self.embedded is None else [self.embedded])]


class Main(NamedTuple):
    """One of the claims for which a paper would be read, for the index of all."""

    says: str  #: in one line, as abstract or conclusion put it
    exhibit: str  #: label of the exhibit that judges it
    row: str  #: what the claim of that exhibit is called


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A paper, and all of it that can be regenerated."""

    key: str
    title: str
    citation: str
    differences: tuple[str, ...]
    takes: str = ""  #: how long its command does, as measured
    exhibits: tuple[Exhibit[Any], ...]
    main: tuple[Main, ...] = ()
    #: Of its exhibits' tables by their titles, one for all; its heading first.
    summary: Callable[[dict[str, Cells]], Cells] | None = None

    def named(self, name: str | None) -> tuple[Exhibit[Any], ...]:
        """The exhibit of that name, or all; ConfigError if there is none."""
        found = tuple(one for one in self.exhibits if name in (None, one.name))
        if not found:
            what = f"figure, table or setting of {self.key}"
            raise unknown(what, str(name), [one.name for one in self.exhibits])
        return found
