"""How far rounding alone drives models apart, in float32 and in float64.

Plain descent, without codes and stragglers: each gradient is summed at once, and in six
pieces, one for each worker.
"""

from itertools import product

import numpy as np
import torch

from .claims import Claim, Kind, at_least, at_most, exact, of_kind
from .kit import Cells, Data, Spread, in_order
from .tsdcfl_training import Descending, TrainingStudy, plain_sum

PIECES = 6
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}


def apart(todo: tuple[TrainingStudy, str, int]) -> float:
    """Train in one piece and in several; return how far the models are apart."""
    study, precision, seed = todo
    dtype = PRECISIONS[precision]
    whole, pieces = (Descending(study, seed, dtype) for _ in range(2))
    for _ in range(study.iterations):
        rows = whole.rows()
        whole.step(plain_sum(whole.model, whole.data, rows))
        pieces.step(plain_sum(pieces.model, pieces.data, rows, PIECES))
    return pieces.apart(whole)


def run_rounding(study: TrainingStudy, spread: Spread = in_order) -> Data:
    """Train with every precision, seed by seed."""
    cases = list(product(PRECISIONS, range(study.seeds)))
    found = spread(apart, [(study, *case) for case in cases])
    return dict(zip(PRECISIONS, np.array(found).reshape(-1, study.seeds), strict=True))


def table_of_rounding(data: Data) -> Cells:
    """One row for each seed."""
    seeds = zip(*(data[name] for name in PRECISIONS), strict=True)
    rows = [[str(n), *(f"{each:.0e}" for each in own)] for n, own in enumerate(seeds)]
    return [["seed", *PRECISIONS], *rows]


def claims_of_rounding(data: Data) -> list[Claim]:
    """What is the code's doing, and what is not."""
    rows = [
        Claim(
            what="Model of plain descent apart from itself, if its gradients are "
            "summed in six pieces, in 10⁻¹² of its length, in float64",
            printed="0 (exact arithmetic)",
            ours=exact(1e12 * float(data["float64"].max())),
            rule=at_most(100.0, weaker=1e5),
            digits=4,
        ),
        Claim(
            what="… in float32",
            printed="more (no code has a part in it)",
            ours=exact(1e12 * float(data["float32"].max())),
            rule=at_least(1000.0),
            digits=0,
            why="no sample came near to the kink of a ReLU or a pool",
        ),
    ]
    return of_kind(Kind.OWN, rows)
