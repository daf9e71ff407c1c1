"""Figures 5 and 6 of the two-stage paper: coded training on its testbed.

All schemes descend along the same gradients, so one descent is trained for all, in
float64, and every scheme's own, encoded by each worker and decoded from the earliest
answers that are enough, is held against it for a while. Time is virtual, and each
scheme's own (``tsdcfl_testbed``).
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from melisma.coding import TwoStage, combine
from melisma.learning import (
    HERE,
    LOSSES,
    METRICS,
    Arrays,
    Dataset,
    Descent,
    Model,
    Part,
    evaluate,
    gradient_sum,
    models,
    numbers,
    parameters_of,
    placed,
    put,
)
from melisma.learning import data as datasets
from melisma.maths import Floats, Ints, mean_interval
from melisma.views import plots

from .claims import Claim, Kind, Measured, at_least, at_most, exact, mean_of
from .crossings import crossing
from .kit import Data, Spread, in_order
from .tsdcfl_testbed import (
    ANEW,
    BED,
    WORDS,
    Iterated,
    Predicted,
    Scheme,
    Testbed,
    look_of,
    planned,
)
from .tsdcfl_times import OURS, TSDCFL

#: What the paper shows, and ours; the told ones beside those that are predicted.
SHOWN = ("CR", "FR", "TSDCFL, told", TSDCFL, "ours, told", OURS)
#: Of a panel's height, above and below its lines: names stand there.
ROOM = 0.2
LOSS = LOSSES["cross-entropy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStudy:
    """Every number that a figure depends on."""

    dataset: str
    model: str
    testbed: Testbed = BED
    late: tuple[int, ...] = (1, 2)
    samples: int = 768  #: in an iteration: a batch of 128 for each of six partitions
    rate: float = 0.01
    momentum: float = 0.9
    iterations: int = 10_000
    every: int = 50  #: iterations between two evaluations
    tested: int = 1_000  #: images of the test set by which accuracy is measured
    target: float = 0.95  #: accuracy whose time is compared, of the last one
    seeds: int = 20
    anew: int = ANEW  #: iterations that a predicted plan lasts at most
    checked: int = 50  #: iterations in which all schemes are trained by


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Learnt:
    """What a descent came to, at each evaluation."""

    accuracy: Floats
    loss: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coded:
    """What a scheme came to."""

    clock: Floats  #: time at each evaluation
    apart: float  #: its model after ``checked`` iterations from that of plain descent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Todo:
    """One scheme's course."""

    study: TrainingStudy
    scheme: Scheme | Predicted
    late: int
    seed: int


class Descending:
    """A descent under way; the same seed brings the same model and rows to all."""

    def __init__(
        self, study: TrainingStudy, seed: int, dtype: torch.dtype = torch.float64
    ) -> None:
        def wide(batch: dict[str, Tensor]) -> dict[str, Tensor]:
            found = numbers(batch)
            return {
                n: v.to(dtype) if v.is_floating_point() else v for n, v in found.items()
            }

        model = models.build(study.model, seed).to(dtype)
        data = datasets.load(study.dataset)
        self._study, self._rng = study, np.random.default_rng([seed, 1])
        self.data, self.model = placed(data, model, wide, HERE)
        self._descent = Descent(model, rate=study.rate, momentum=study.momentum)

    def rows(self) -> Ints:
        """Draw the samples of the next iteration."""
        size = self._study.samples
        drawn: Ints = self._rng.choice(len(self.data.train), size, replace=False)
        return drawn

    def step(self, gradient: Floats) -> None:
        """Go along the sum of the gradients of the samples."""
        mean = gradient / self._study.samples
        put(self._descent.step(parameters_of(self.model), mean), self.model)

    def apart(self, other: "Descending") -> float:
        """‖own model − other‖ / ‖other‖."""
        own, theirs = (
            torch.cat([p.double().flatten() for p in parameters_of(one.model).values()])
            for one in (self, other)
        )
        return float((own - theirs).norm() / theirs.norm())


def answered(done: Iterated) -> tuple[Floats, Floats]:
    """Rows of B of all answers that may be used, over all K, and their weights."""
    rows, weights = done.code.matrix.toarray(), done.outcome.weights
    if not isinstance(done.code, TwoStage):
        return rows, weights
    first, rest = done.outcome.finished.astype(np.float64), done.outcome.rest
    if rest is None:
        return rows, first
    second = np.zeros_like(rows)
    second[:, rest.left] = rest.code.matrix.toarray()
    return np.concatenate([rows, second]), np.concatenate([first, weights])


def decoded(model: Model, data: Dataset, rows: Ints, done: Iterated) -> Floats:
    """The sum of the gradients of some rows of the data, from coded answers.

    Partitions that all workers weigh alike are computed together, once for all.
    """
    B, weights = answered(done)
    B, weights = B[weights != 0], weights[weights != 0]
    parts = np.array_split(rows, done.code.partitions)
    columns, kind = np.unique(B, axis=1, return_inverse=True)
    gradients = [
        gradient_sum(model, Part(data.train, some), LOSS)[0]
        for some in (
            np.concatenate([parts[k] for k in np.flatnonzero(kind == n)])
            for n in range(columns.shape[1])
        )
    ]
    answers = [combine(row, gradients) for row in columns]
    return combine(weights, answers).astype(np.float64)


def plain_sum(model: Model, data: Dataset, rows: Ints, pieces: int = 1) -> Floats:
    """The same sum without a code, in so many pieces."""
    parts = np.array_split(rows, pieces)
    sums = [gradient_sum(model, Part(data.train, p), LOSS)[0] for p in parts]
    return combine(np.ones(pieces), sums).astype(np.float64)


def learnt(todo: tuple[TrainingStudy, int]) -> Learnt:
    """Train once by plain descent, as all schemes do."""
    study, seed = todo
    run, shown = Descending(study, seed), []
    tested = Arrays(run.data.test[: study.tested])
    for number in range(1, study.iterations + 1):
        run.step(plain_sum(run.model, run.data, run.rows()))
        if number % study.every == 0:
            shown.append(evaluate(run.model, tested, LOSS, [METRICS["accuracy"]]))
    return Learnt(
        accuracy=np.array([scores.metrics["accuracy"] for scores in shown]),
        loss=np.array([scores.loss for scores in shown]),
    )


def coded(todo: Todo) -> Coded:
    """Go through a scheme's iterations; train in the first by it, and plainly."""
    study, times = todo.study, list[float]()
    whole_s = study.testbed.whole_s(todo.late, study.iterations, todo.seed, dead=False)
    ours, plain = (Descending(study, todo.seed) for _ in range(2))
    for number, done in enumerate(todo.scheme.course(whole_s, todo.seed)):
        times.append(done.outcome.duration_s)
        if number < study.checked:
            rows = ours.rows()
            ours.step(decoded(ours.model, ours.data, rows, done))
            plain.step(plain_sum(plain.model, plain.data, rows))
    clock: Floats = np.cumsum(times)[study.every - 1 :: study.every]
    return Coded(clock=clock, apart=ours.apart(plain))


def run_training(study: TrainingStudy, spread: Spread = in_order) -> Data:
    """Train, and go through every scheme's times: late/name/what, seeds first."""
    cases, seeds = list(product(study.late, SHOWN)), range(study.seeds)
    made = spread(
        planned, [(study.testbed, name, late, study.anew) for late, name in cases]
    )
    runs = spread(learnt, [(study, seed) for seed in seeds])
    todo = [
        Todo(study=study, scheme=scheme, late=late, seed=seed)
        for (late, _), scheme in zip(cases, made, strict=True)
        for seed in seeds
    ]
    found = iter(spread(coded, todo))
    data: Data = {
        "late": np.array(study.late, dtype=np.float64),
        "every": np.array([float(study.every)]),
        "target": study.target * np.array([run.accuracy[-1] for run in runs]),
        "accuracy": np.array([run.accuracy for run in runs]),
        "loss": np.array([run.loss for run in runs]),
    }
    for late, name in cases:
        own = [next(found) for _ in seeds]
        data[f"{late}/{name}/clock"] = np.array([one.clock for one in own])
        data[f"{late}/{name}/apart"] = np.array([one.apart for one in own])
    return data


def time_to_target(data: Data, late: int, name: str) -> Floats:
    """When each seed reaches the target, between evaluations; NaN if it does not."""
    clocks = data[f"{late}/{name}/clock"]
    curves = zip(clocks, data["accuracy"], data["target"], strict=True)
    return np.array([crossing(*curve, never=np.nan) for curve in curves])


def draw_training(drawing: Figure, data: Data) -> None:
    """Panels a and b over iterations, c and d over time, e iteration times."""
    drawing.set_size_inches(12.6, 5.6)
    axes = drawing.subplots(2, 4)
    for ax, what, letter in zip(axes[:, 0], ("accuracy", "loss"), "ab", strict=True):
        _over_iterations(ax, data, what)
        ax.set(title=f"{letter}. {what}, all schemes", xlabel="iteration")
    for column, late in enumerate((1, 2), start=1):
        panels = zip(axes[:, column], ("accuracy", "loss"), "cd", strict=True)
        for ax, what, letter in panels:
            _over_time(ax, data, what, late)
            ax.set(title=f"{letter}. {what}, {WORDS[late]}")
            ax.set(xlabel="time (ideal iterations)")
        ax = axes[column - 1, 3]
        _iteration_times(ax, data, late)
        ax.set(title=f"e. iteration time, {WORDS[late]}", xlabel="iteration")
    for ax in axes[0, :3]:
        ax.set_ylabel("test accuracy")
    for ax in axes[1, :3]:
        ax.set_ylabel("test loss (nats)")
    for ax in axes[:, 3]:
        ax.set_ylabel("ideal iterations")


def _line(ax: Axes, name: str, x: Floats, values: Floats) -> tuple[str, str, float]:
    """Draw mean and interval over seeds; return what is to stand at its end."""
    look = look_of(name)
    mean, half = mean_interval(values)
    ax.plot(
        x,
        mean,
        color=look.colour,
        marker=look.marker,
        linestyle="--" if name.endswith("told") else "-",
        markevery=max(1, len(x) // 6),
    )
    ax.fill_between(
        x, mean - half, mean + half, color=look.colour, alpha=0.15, linewidth=0
    )
    return name, look.colour, float(mean[-1])


def _over_iterations(ax: Axes, data: Data, what: str) -> None:
    """Draw one line for all schemes."""
    mean, half = mean_interval(data[what])
    x = data["every"][0] * np.arange(1.0, mean.size + 1)
    ax.plot(x, mean, color="#333333")
    ax.fill_between(
        x, mean - half, mean + half, color="#333333", alpha=0.15, linewidth=0
    )
    _make_room(ax, what)


def _over_time(ax: Axes, data: Data, what: str, late: int) -> None:
    """Without names, for which there is no room: they stand beside e."""
    for name in SHOWN:
        x = data[f"{late}/{name}/clock"].mean(axis=0)
        _line(ax, name, x, data[what])
    _make_room(ax, what)


def _make_room(ax: Axes, what: str) -> None:
    ax.margins(y=ROOM)
    if what == "accuracy":
        ax.set_ylim(bottom=0.0)


def _iteration_times(ax: Axes, data: Data, late: int) -> None:
    """Means of ten parts of the run."""
    ends = []
    for name in SHOWN:
        clock = data[f"{late}/{name}/clock"]
        tenth = clock.shape[1] // 10
        parts = np.diff(clock[:, tenth - 1 :: tenth], prepend=0.0)
        iterations = tenth * data["every"][0]
        x = iterations * (np.arange(parts.shape[1]) + 0.5)
        ends.append(_line(ax, name, x, parts / iterations))
    ax.set_ylim(bottom=0.0)
    plots.label_ends(ax, ends, gap=0.08)


def table_of_training(data: Data) -> list[list[str]]:
    """What each scheme came to."""
    rows = [
        [
            "stragglers",
            "scheme",
            "mean iteration time",
            "time to the target",
            "model apart from plain descent",
        ]
    ]
    for late, name in product(data["late"].astype(int), SHOWN):
        clock = data[f"{late}/{name}/clock"]
        times = _text(clock[:, -1] / (clock.shape[1] * data["every"][0]))
        to_target = _text(time_to_target(data, late, name), 1)
        apart = f"{data[f'{late}/{name}/apart'].max():.0e}"
        rows.append([str(late), name, times, to_target, apart])
    return rows


def _text(values: Floats, digits: int = 3) -> str:
    if np.isnan(values).any():
        return "not reached"
    mean, half = mean_interval(values)
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def claims_of_training(data: Data) -> list[Claim]:
    """Section III; iteration times are judged in Table times."""
    found = [_exact(data)]
    for other in ("CR", "FR"):
        found += [_sooner(data, late, other, TSDCFL) for late in (1, 2)]
    return found + [_sooner(data, late, TSDCFL, OURS) for late in (1, 2)]


def _exact(data: Data) -> Claim:
    worst = max(
        data[f"{late}/{name}/apart"].max()
        for late, name in product(data["late"].astype(int), SHOWN)
    )
    return Claim(
        what="Model of any scheme, apart from that of plain descent, in 10⁻¹² of its "
        "length: the same accuracy and loss by epochs",
        printed="the same, 0",
        ours=exact(1e12 * float(worst)),
        rule=at_most(100.0, weaker=1e5),
        digits=4,
        why="rounding in float64, which decoding makes larger",
    )


def _sooner(data: Data, late: int, other: str, name: str) -> Claim:
    return Claim(
        what=f"Time to the target accuracy of {name}, below {_of(other)}, "
        f"{WORDS[late]}",
        printed="less" if name == TSDCFL else "less (expected)",
        ours=_less(data, late, name, other),
        rule=at_least(0.0),
        kind=Kind.PAPER if name == TSDCFL else Kind.OWN,
        unit="%",
        digits=1,
        why=_why(data, late, other),
    )


def _less(data: Data, late: int, name: str, other: str) -> Measured:
    """How much less time one takes than the other, in %, seed by seed."""
    ours, theirs = (time_to_target(data, late, one) for one in (name, other))
    return mean_of(100.0 * (1.0 - ours / theirs))


def _of(name: str) -> str:
    return f"that of {name}" if "," in name else f"{name}'s"


def _why(data: Data, late: int, other: str) -> str:
    """What it would be if it were told."""
    saved = _less(data, late, "TSDCFL, told", other)
    return (
        "more stragglers are predicted, and tolerated, than there are; told s and "
        f"speeds, it is {saved.value:.1f} %"
    )
