"""A paper of one figure and one table, whose numbers come at once."""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from papers.claims import Claim, Kind, at_least, exact, mean_of, near
from papers.kit import Data, Exhibit, Main, Paper, Spread, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    trials: int = 4
    scale: float = 1.0
    dataset: str = "mnist-5k"


def draw_of(todo: tuple[int, float]) -> float:
    seed, scale = todo
    return scale * float(np.random.default_rng(seed).normal(10.0))


def run(study: Study, spread: Spread = in_order) -> Data:
    seeds = [(seed, study.scale) for seed in range(study.trials)]
    return {"drawn": np.array(spread(draw_of, seeds))}


def draw(drawing: Figure, data: Data) -> None:
    drawing.subplots().plot(data["drawn"])


def table(data: Data) -> list[list[str]]:
    return [["trial", "value"], ["first", f"{data['drawn'][0]:.3f}"]]


def claims(data: Data) -> list[Claim]:
    ours = mean_of(data["drawn"])
    return [
        Claim(what="what is drawn", printed="5", ours=ours, rule=at_least(5.0)),
        Claim(
            what="much of it",
            printed="50",
            ours=ours,
            rule=at_least(50.0, weaker=0.0),
            unit="m",
            why="it is a toy",
        ),
        Claim(
            what="that it is drawn",
            printed="yes",
            ours=exact(1.0),
            rule=near(1.0, 0.0),
            kind=Kind.GIVEN,
        ),
    ]


FIGURE = Exhibit(
    name="1.1",
    title="numbers",
    file="fig1.1_numbers",
    caption="{trials} trials on {dataset}.",
    quick=Study(),
    full=Study(trials=8),
    run=run,
    draw=draw,
    claims=claims,
)
TABLE = Exhibit(
    kind="Table",
    name="II",
    title="the same",
    file="table2_numbers",
    caption="{trials} trials.",
    quick=Study(),
    full=Study(trials=8),
    run=run,
    table=table,
    claims=claims,
)
PAPER = Paper(
    key="toy",
    title="A toy",
    citation="Nobody.",
    differences=("It is no paper.",),
    takes="No time at all.",
    main=(Main("Much is drawn", "Figure 1.1", "much of it"),),
    exhibits=(FIGURE, TABLE),
)
