"""Figures 5 and 6 of the two-stage paper: coded training on its testbed.

Gradients are real, encoded by each worker and decoded from the earliest answers that
are enough; time is virtual (``tsdcfl_testbed``).
"""

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

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

from .claims import Claim, Kind, Measured, at_least, at_most, exact, mean_of, near
from .crossings import crossing
from .kit import Data, Spread, in_order
from .store import ADDED
from .tsdcfl_testbed import (
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
#: Without stragglers and codes.
PLAIN = "plain"
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
    iterations: int = 300
    every: int = 5  #: iterations between two evaluations
    tested: int = 1_000  #: images of the test set by which accuracy is measured
    target: float = (
        0.95  #: accuracy whose time is compared, of the last of plain descent
    )
    seeds: int = 3
    #: Iterations that a predicted plan lasts at most.
    anew: int = field(default=10, metadata={ADDED: True})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """What one run came to."""

    accuracy: Floats  #: at each evaluation
    loss: Floats
    time: Floats  #: of each iteration
    model: Floats  #: its parameters in the end


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Todo:
    """One run."""

    study: TrainingStudy
    scheme: Scheme | Predicted | None  #: None: plain descent
    late: int
    seed: int
    pieces: int = 1  #: in which the gradient of plain descent is summed


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


def plain_sum(model: Model, data: Dataset, rows: Ints, pieces: int) -> NDArray[Any]:
    """The same sum without a code, in so many pieces."""
    parts = np.array_split(rows, pieces)
    sums = [gradient_sum(model, Part(data.train, p), LOSS)[0] for p in parts]
    return combine(np.ones(pieces), sums)


def trained(todo: Todo) -> Trained:
    """Train once. The same seed brings the same model, rows and stragglers to all."""
    study, scheme = todo.study, todo.scheme
    model = models.build(study.model, todo.seed)
    data, model = placed(datasets.load(study.dataset), model, numbers, HERE)
    descent = Descent(model, rate=study.rate, momentum=study.momentum)
    whole_s = study.testbed.whole_s(todo.late, study.iterations, todo.seed, dead=False)
    course = None if scheme is None else scheme.course(whole_s, todo.seed)
    rng = np.random.default_rng([todo.seed, 1])
    shown, time = [], []
    for number in range(study.iterations):
        rows = rng.choice(len(data.train), study.samples, replace=False)
        if course is None:
            gradient = plain_sum(model, data, rows, todo.pieces)
            time.append(1.0)
        else:
            done = next(course)
            gradient = decoded(model, data, rows, done)
            time.append(done.outcome.duration_s)
        put(descent.step(parameters_of(model), gradient / study.samples), model)
        if (number + 1) % study.every == 0:
            tested = Arrays(data.test[: study.tested])
            shown.append(evaluate(model, tested, LOSS, [METRICS["accuracy"]]))
    parts = [p.cpu().numpy().ravel() for p in parameters_of(model).values()]
    return Trained(
        accuracy=np.array([scores.metrics["accuracy"] for scores in shown]),
        loss=np.array([scores.loss for scores in shown]),
        time=np.array(time),
        model=np.concatenate(parts),
    )


def run_training(study: TrainingStudy, spread: Spread = in_order) -> Data:
    """Train by every scheme: late/name/what, seeds on the first axis."""
    cases = list(product(study.late, SHOWN))
    made = spread(
        planned, [(study.testbed, name, late, study.anew) for late, name in cases]
    )
    seeds = range(study.seeds)
    todo = [Todo(study=study, scheme=None, late=0, seed=seed) for seed in seeds]
    todo += [
        Todo(study=study, scheme=scheme, late=late, seed=seed)
        for (late, _), scheme in zip(cases, made, strict=True)
        for seed in seeds
    ]
    found = iter(spread(trained, todo))
    plain = [next(found) for _ in seeds]
    data: Data = {
        "late": np.array(study.late, dtype=np.float64),
        "every": np.array([float(study.every)]),
        "target": study.target * np.array([run.accuracy[-1] for run in plain]),
        f"{PLAIN}/accuracy": np.array([run.accuracy for run in plain]),
        f"{PLAIN}/loss": np.array([run.loss for run in plain]),
    }
    for late, name in cases:
        runs = [next(found) for _ in seeds]
        pairs = list(zip(runs, plain, strict=True))
        data[f"{late}/{name}/accuracy"] = np.array([run.accuracy for run in runs])
        data[f"{late}/{name}/loss"] = np.array([run.loss for run in runs])
        data[f"{late}/{name}/time"] = np.array([run.time for run in runs])
        data[f"{late}/{name}/apart"] = np.array([_apart(*pair) for pair in pairs])
    return data


def _apart(one: Trained, other: Trained) -> float:
    """‖one − other‖ / ‖other‖."""
    off = np.linalg.norm(one.model - other.model)
    return float(off / np.linalg.norm(other.model))


def clock(data: Data, late: int, name: str) -> Floats:
    """Time at each evaluation, seeds × evaluations."""
    every = int(data["every"][0])
    passed: Floats = data[f"{late}/{name}/time"].cumsum(axis=1)
    return passed[:, every - 1 :: every]


def time_to_target(data: Data, late: int, name: str) -> Floats:
    """When each seed reaches the target, between evaluations; NaN if it does not."""
    curves = zip(
        clock(data, late, name),
        data[f"{late}/{name}/accuracy"],
        data["target"],
        strict=True,
    )
    return np.array([crossing(*curve, never=np.nan) for curve in curves])


def draw_training(drawing: Figure, data: Data) -> None:
    """Panels a and b over iterations, c and d over time, e iteration times."""
    drawing.set_size_inches(12.6, 5.6)
    axes = drawing.subplots(2, 4)
    for ax, what, letter in zip(axes[:, 0], ("accuracy", "loss"), "ab", strict=True):
        _over_iterations(ax, data, what)
        ax.set(title=f"{letter}. {what}, one straggler", xlabel="iteration")
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
    ends = []
    for name in SHOWN:
        values = data[f"1/{name}/{what}"]
        x = data["every"][0] * np.arange(1.0, values.shape[1] + 1)
        ends.append(_line(ax, name, x, values))
    _make_room(ax, what)
    plots.label_ends(ax, ends)


def _over_time(ax: Axes, data: Data, what: str, late: int) -> None:
    """Without names, for which there is no room: they stand beside a, b and e."""
    for name in SHOWN:
        x = clock(data, late, name).mean(axis=0)
        _line(ax, name, x, data[f"{late}/{name}/{what}"])
    _make_room(ax, what)


def _make_room(ax: Axes, what: str) -> None:
    ax.margins(y=ROOM)
    if what == "accuracy":
        ax.set_ylim(bottom=0.0)


def _iteration_times(ax: Axes, data: Data, late: int) -> None:
    """Means of tenths of the run."""
    ends = []
    for name in SHOWN:
        times = data[f"{late}/{name}/time"]
        tenth = times.shape[1] // 10
        means = times[:, : 10 * tenth].reshape(len(times), 10, tenth).mean(axis=2)
        x = tenth * (np.arange(10.0) + 0.5)
        ends.append(_line(ax, name, x, means))
    ax.set_ylim(bottom=0.0)
    plots.label_ends(ax, ends)


def table_of_training(data: Data) -> list[list[str]]:
    """What each scheme came to."""
    rows = [
        [
            "stragglers",
            "scheme",
            "accuracy in the end",
            "loss in the end",
            "mean iteration time",
            "time to the target",
            "model apart from plain descent",
        ]
    ]
    last = [_text(data[f"{PLAIN}/{what}"][:, -1]) for what in ("accuracy", "loss")]
    rows.append(["0", "plain descent, no code", *last, "1", "", ""])
    for late, name in product(data["late"].astype(int), SHOWN):
        key = f"{late}/{name}"
        ends = [_text(data[f"{key}/{what}"][:, -1]) for what in ("accuracy", "loss")]
        times = _text(data[f"{key}/time"].mean(axis=1))
        to_target = _text(time_to_target(data, late, name), 1)
        apart = f"{data[f'{key}/apart'].max():.0e}"
        rows.append([str(late), name, *ends, times, to_target, apart])
    return rows


def _text(values: Floats, digits: int = 3) -> str:
    if np.isnan(values).any():
        return "not reached"
    mean, half = mean_interval(values)
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def claims_of_training(data: Data) -> list[Claim]:
    """Section III; what it says of iteration times is judged in Figure times."""
    found: list[Claim] = []
    for other in ("CR", "FR"):
        found += [_same_accuracy(data, late, other) for late in (1, 2)]
        found += [_same_loss(data, late, other) for late in (1, 2)]
    found.append(_exact(data))
    for other in ("CR", "FR"):
        found += [_sooner(data, late, other, TSDCFL) for late in (1, 2)]
    for late in (1, 2):
        found.append(_sooner(data, late, TSDCFL, OURS))
    return found


def _same_accuracy(data: Data, late: int, other: str) -> Claim:
    ours, theirs = (data[f"{late}/{name}/accuracy"] for name in (TSDCFL, other))
    return Claim(
        what=f"Accuracy at the same iteration, that of {TSDCFL}, apart from {other}'s "
        f"at most, {WORDS[late]}",
        printed="the same",
        ours=mean_of(100.0 * np.abs(ours - theirs).max(axis=1)),
        rule=at_most(0.5, weaker=2.0),
        unit="points",
        why="single images on the border between classes: models differ by rounding",
    )


def _same_loss(data: Data, late: int, other: str) -> Claim:
    ours, theirs = (data[f"{late}/{name}/loss"] for name in (TSDCFL, other))
    return Claim(
        what=f"Loss in the end, that of {TSDCFL}, above {other}'s, {WORDS[late]}",
        printed="the same",
        ours=mean_of(100.0 * (ours[:, -1] / theirs[:, -1] - 1.0)),
        rule=near(0.0, 0.1, weaker=1.0),
        unit="%",
        digits=6,
    )


def _exact(data: Data) -> Claim:
    worst = max(
        data[f"{late}/{name}/apart"].max()
        for late, name in product(data["late"].astype(int), SHOWN)
    )
    return Claim(
        what="Model in the end, of any scheme, apart from that of plain descent, in "
        "10⁻⁶ of its length",
        printed="0 (all partitions in each iteration)",
        ours=exact(1e6 * float(worst)),
        rule=at_most(10.0, weaker=1000.0),
        kind=Kind.OWN,  # the paper looks at accuracy and loss
        why="rounding in float32, which training makes larger: plain descent that sums "
        "in another order is driven apart from itself as well (Table rounding)",
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
    """How much sooner one has the target than the other, in %, seed by seed."""
    ours, theirs = (time_to_target(data, late, one) for one in (name, other))
    return mean_of(100.0 * (1.0 - ours / theirs))


def _of(name: str) -> str:
    return f"that of {name}" if "," in name else f"{name}'s"


def _why(data: Data, late: int, other: str) -> str:
    """What it would be if it were told."""
    saved = _less(data, late, "TSDCFL, told", other)
    return (
        "more stragglers are predicted, and tolerated, than there are; told s and "
        f"speeds, it is {saved.value:.1f} %. Table times knows such differences better"
    )


# --- how far rounding alone goes ------------------------------------------------------

#: A sum in six pieces, one for each worker.
PIECES = 6


def run_rounding(study: TrainingStudy, spread: Spread = in_order) -> Data:
    """Train without codes or stragglers, in one piece and in several, seed by seed."""
    seeds = range(study.seeds)
    todo = [
        Todo(study=study, scheme=None, late=0, seed=seed, pieces=pieces)
        for pieces in (1, PIECES)
        for seed in seeds
    ]
    found = spread(trained, todo)
    pairs = zip(found[study.seeds :], found[: study.seeds], strict=True)
    return {"apart": np.array([_apart(*pair) for pair in pairs])}


def table_of_rounding(data: Data) -> list[list[str]]:
    """One row for each seed."""
    rows = [["seed", "models apart"]]
    return rows + [[str(n), f"{apart:.0e}"] for n, apart in enumerate(data["apart"])]


def claims_of_rounding(data: Data) -> list[Claim]:
    """The rule of coded training, for training without a code."""
    return [
        Claim(
            what="Model of plain descent apart from itself, if its gradients are "
            "summed in six pieces, in 10⁻⁶ of its length",
            printed="0 (exact arithmetic)",
            ours=exact(1e6 * float(data["apart"].max())),
            rule=at_most(10.0, weaker=1000.0),
            kind=Kind.OWN,
            why="rounding in float32 moves a sample over the kink of a ReLU or a pool, "
            "and training makes that larger; no code has a part in it",
        )
    ]
