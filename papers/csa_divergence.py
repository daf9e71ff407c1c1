"""CSA's Appendix A: how far staleness leads the aggregate from the synchronous one.

Learners do mean ± s/2 steps of plain gradient descent a cycle, half of them each, on
the same samples as learners that all do ``mean``. After some cycles of either,

    ‖w − w_sync‖ / ‖w_sync − w₀‖

is how far the stale aggregate is from the synchronous one, as a share of the way that
this went. A step is over all of a learner's samples, so no order of batches has a part
in it: what differs is the staleness alone.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

import melisma as mel
from melisma.jobs import DataTable, Job, LearnersTable, TrainingTable
from melisma.learning import models, parameters_of
from melisma.maths import Floats, mean_interval
from melisma.schemes import SCHEMES
from melisma.system import Allocation, Mode, Problem
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond
from melisma.views import plots

from .claims import Claim, at_least, at_most, mean_of
from .kit import NO_LIMIT, Data, Spread, in_order

#: Data of each learner: drawn anew from all of it, or its own, of two classes.
DATA = {"alike": (Mode.PARALLEL, "iid"), "unlike": (Mode.FEDERATED, "labels")}
#: A batch that holds all samples of any learner.
WHOLE = 1000
#: Data and mean steps of a cycle.
CASES = (("alike", 5), ("alike", 10), ("unlike", 5), ("unlike", 10))


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceStudy:
    """Every number that the exhibit depends on."""

    dataset: str = "mnist-5k"
    model: str = "TwoNN"
    learners: int = 20
    staleness: tuple[int, ...] = (0, 2, 4, 6, 8)
    cycles: int = 20
    rate: float = 0.2
    seeds: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One seed of one case, at every staleness."""

    study: DivergenceStudy
    data: str
    mean: int
    seed: int


def apart(mean: int, staleness: int) -> str:
    """Return a scheme by which half do ``mean`` + s/2 steps, half ``mean`` − s/2."""
    name = f"apart-{mean}-{staleness}"

    def halves(problem: Problem) -> Allocation:
        """Equal samples; every other learner is ahead."""
        K = problem.learners
        sign = np.where(np.arange(K) % 2 == 0, 1, -1)
        share = np.minimum(problem.high, problem.samples // K)
        return Allocation(samples=share, steps=mean + sign * (staleness // 2))

    if name not in SCHEMES:
        mel.scheme(name)(halves)
    return name


def job_of(trial: Trial, staleness: int) -> Job:
    """Return a run in which no time is too short."""
    study, (mode, split) = trial.study, DATA[trial.data]
    data: dict[str, Any] = {"name": study.dataset, "split": split}
    return Job(
        name="divergence",
        scheme=apart(trial.mean, staleness),
        model=study.model,
        mode=mode,
        cycles=study.cycles,
        deadline=Deadline(1e6),
        epochs_at_most=NO_LIMIT,
        seed=trial.seed,
        data=DataTable(**data),
        training=TrainingTable(rate=study.rate, batch=WHOLE),
        learners=(
            LearnersTable(
                name="learner",
                count=study.learners,
                rate=SamplesPerSecond(1000),
                bandwidth=BytesPerSecond(1e6),
            ),
        ),
    )


def diverged(trial: Trial) -> list[tuple[float, float]]:
    """Return divergence and test accuracy at each staleness; the first is 0."""
    study = trial.study
    assert study.staleness[0] == 0, "the first is what others are compared with"
    runs = [mel.simulate(job_of(trial, s), runs=None) for s in study.staleness]
    began = _vector(parameters_of(models.build(study.model, trial.seed)))
    ended = [_vector(run.parameters) for run in runs]
    way = np.linalg.norm(ended[0] - began)
    return [
        (
            float(np.linalg.norm(model - ended[0]) / way),
            run.history.metrics["accuracy"][-1],
        )
        for run, model in zip(runs, ended, strict=True)
    ]


def _vector(parameters: Any) -> Floats:
    """All parameters in one row, in the order of their names."""
    rows = [parameters[n].double().cpu().numpy().ravel() for n in sorted(parameters)]
    return np.concatenate(rows)


def run_divergence(study: DivergenceStudy, spread: Spread = in_order) -> Data:
    """Train every case: divergence and accuracy, seeds × staleness."""
    trials = [
        Trial(study=study, data=data, mean=mean, seed=seed)
        for (data, mean), seed in product(CASES, range(study.seeds))
    ]
    shape = (len(CASES), study.seeds, len(study.staleness), 2)
    found = np.array(spread(diverged, trials)).reshape(shape)
    data: Data = {"staleness": np.array(study.staleness, dtype=np.float64)}
    for n, (kind, mean) in enumerate(CASES):
        data[f"{kind}/{mean}/divergence"] = found[n, :, :, 0]
        data[f"{kind}/{mean}/accuracy"] = found[n, :, :, 1]
    return data


#: Of each case: colour and line.
LOOKS = {"alike": "#0072b2", "unlike": "#d55e00"}


def draw_divergence(drawing: Figure, data: Data) -> None:
    """Draw divergence and accuracy over staleness, a line for each case."""
    drawing.set_size_inches(9.6, 3.4)
    panels = drawing.subplots(1, 2)
    for ax, what in zip(panels, ("divergence", "accuracy"), strict=True):
        ends = []
        for kind, steps in CASES:
            mean, half = mean_interval(data[f"{kind}/{steps}/{what}"])
            line = "-" if steps == CASES[0][1] else "--"
            x, colour = data["staleness"], LOOKS[kind]
            ax.plot(x, mean, line, color=colour, marker="o")
            ax.fill_between(x, mean - half, mean + half, color=colour, alpha=0.15)
            ends.append((f"{kind}, {steps} steps", colour, float(mean[-1])))
        plots.label_ends(ax, ends)
        ax.set(xlabel="staleness s (steps)")
        ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    panels[0].set_ylabel("‖w − w_sync‖ / ‖w_sync − w₀‖")
    panels[1].set_ylabel("test accuracy")


def table_of_divergence(data: Data) -> list[list[str]]:
    """Divergence and accuracy of each case and staleness."""
    rows = [["data", "mean steps", *(f"s = {s:.0f}" for s in data["staleness"])]]
    for kind, steps in CASES:
        apart_, right = (
            100.0 * data[f"{kind}/{steps}/{what}"].mean(axis=0)
            for what in ("divergence", "accuracy")
        )
        cells = [f"{a:.1f} %, {r:.1f} %" for a, r in zip(apart_, right, strict=True)]
        rows.append([kind, str(steps), *cells])
    return rows


def claims_of_divergence(data: Data) -> list[Claim]:
    """Appendix A: hypotheses that the paper calls difficult to prove."""
    few, many = CASES[0][1], CASES[1][1]
    last = f"{data['staleness'][-1]:.0f}"
    found = []
    for kind, steps in CASES:
        divergence = data[f"{kind}/{steps}/divergence"]
        slope = np.polyfit(data["staleness"], divergence.T, 1)[0]
        accuracy = 100.0 * data[f"{kind}/{steps}/accuracy"]
        what = f"Data {kind}, {steps} steps"
        found += [
            Claim(
                what=f"{what}: growth of divergence for two steps of staleness",
                printed="less staleness, less divergence",
                ours=mean_of(200.0 * slope),
                rule=at_least(0.0),
                unit="% of the way",
            ),
            Claim(
                what=f"{what}: accuracy lost from s = 0 to s = {last}",
                printed="less staleness, more accuracy",
                ours=mean_of(accuracy[:, 0] - accuracy[:, -1]),
                rule=at_least(0.5, weaker=0.0),
                unit="points",
                why="ahead and behind are as many, and the mean of their models makes "
                "up for most of it",
            ),
        ]
    for kind in DATA:
        first, second = (data[f"{kind}/{n}/divergence"][:, -1] for n in (few, many))
        found.append(
            Claim(
                what=f"Data {kind}: divergence at s = {last}, {many} steps against "
                f"{few}",
                printed="may be lowered by more updates",
                ours=mean_of(second / first),
                rule=at_most(1.0),
                unit="times",
                why="more steps lead learners with unlike data farther apart",
            )
        )
    return found
