"""What stage two of the two-stage paper bears: Lemmas 1 and 2, Eq. 16, exhaustively."""

from dataclasses import dataclass
from itertools import combinations
from math import inf

import numpy as np

from melisma.coding import NotDecodable, Rest, two_stage
from melisma.maths import Floats

from .claims import Claim, at_most, exact, near
from .kit import Data, Spread, in_order
from .tsdcfl_testbed import BED, Testbed


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceStudy:
    """Every number that the check of Lemma 2 depends on."""

    testbed: Testbed = BED
    late: tuple[int, ...] = (1, 2)
    partitions: int = 28
    parameters: int = 10  #: of the random gradients that are decoded


def patterns_of(rest: Rest, missing: int, gradients: Floats) -> list[float]:
    """Relative errors of the decoded sum, for all patterns; inf: not decodable."""
    rows = np.concatenate([rest.unfinished, rest.helpers])
    wanted = gradients[rest.left].sum(axis=0)
    answers, errors = rest.encode(gradients), []
    for gone in combinations(rows.tolist(), missing):
        try:
            weights = rest.decode(np.setdiff1d(rows, gone))
        except NotDecodable:
            errors.append(inf)
            continue
        off = np.linalg.norm(weights @ answers - wanted)
        errors.append(float(off / np.linalg.norm(wanted)))
    return errors


def tolerance_of(todo: tuple[ToleranceStudy, int, int]) -> list[float]:
    """Share of patterns decoded, worst error, helpers' copies over those of Eq. 16.

    All sets of workers that may start, all sets of them that may have finished, and
    all patterns of s missing in stage two.
    """
    study, first, late = todo
    bed, K = study.testbed, study.partitions
    workers = range(len(bed.cores))
    gradients = np.random.default_rng(0).standard_normal((K, study.parameters))
    errors, copies = [], []
    for start in combinations(workers, first):
        stage = two_stage(
            workers=len(workers),
            stragglers=late,
            speeds=bed.speeds,
            partitions=K,
            helpers="reserved",
            first=start,
        )
        for count in range(first):
            for finished in combinations(start, count):
                rest = stage.rest(list(finished))
                errors += patterns_of(rest, late, gradients)
                # Eq. 16: (K − K_c)(s + 1) − Σ n_l, which is s·(K − K_c).
                held = int(rest.loads[rest.helpers].sum())
                copies.append(held / (late * rest.partitions))
    decoded = np.isfinite(errors)
    worst = float(np.array(errors)[decoded].max(initial=0.0))
    return [float(decoded.mean()), worst, min(copies), max(copies), len(errors)]


def run_tolerance(study: ToleranceStudy, spread: Spread = in_order) -> Data:
    """Try every pattern: one row for each M₁ and s."""
    M = len(study.testbed.cores)
    cases = [(first, late) for late in study.late for first in range(1, M)]
    found = spread(tolerance_of, [(study, first, late) for first, late in cases])
    decoded, worst, least, most, patterns = np.array(found).T
    first, late = np.array(cases, dtype=np.float64).T
    return {
        "workers": np.array([float(M)]),
        "first": first,
        "late": late,
        "decoded": decoded,
        "worst": worst,
        "least copies": least,
        "most copies": most,
        "patterns": patterns,
    }


def table_of_tolerance(data: Data) -> list[list[str]]:
    """One row for each M₁ and s."""
    heading = ["s", "M₁", "helpers", "patterns", "decoded", "worst relative error"]
    rows = [heading]
    for n, first in enumerate(data["first"]):
        worst = f"{data['worst'][n]:.0e}" if data["decoded"][n] else ""
        rows.append(
            [
                f"{data['late'][n]:g}",
                f"{first:g}",
                f"{data['workers'][0] - first:g}",
                f"{data['patterns'][n]:,.0f}",
                f"{data['decoded'][n]:.1%}",
                worst,
            ]
        )
    return rows


def claims_of_tolerance(data: Data) -> list[Claim]:
    """Lemmas 1 and 2, Eq. 16."""
    helpers = data["workers"][0] - data["first"]
    enough = helpers >= data["late"]
    return [
        Claim(
            what="Patterns of s stragglers decoded, where M − M₁ ≥ s",
            printed="all (Lemma 2)",
            ours=exact(100.0 * data["decoded"][enough].min()),
            rule=near(100.0, 0.0),
            unit="%",
            digits=1,
        ),
        Claim(
            what="… where M − M₁ < s",
            printed="all (Lemma 2)",
            ours=exact(100.0 * data["decoded"][~enough].min()),
            rule=near(100.0, 0.0),
            unit="%",
            digits=1,
            why="s + 1 copies need s helpers: the lemma's code needs M − M₁ ≥ s",
        ),
        Claim(
            what="Worst relative error of the decoded sum, in 10⁻⁹",
            printed="0 (exact)",
            ours=exact(1e9 * data["worst"].max()),
            rule=at_most(1.0, weaker=1000.0),
            digits=6,
            why="rounding, where random coefficients are badly conditioned",
        ),
        Claim(
            what="Copies that helpers hold over those of Eq. 16, where M − M₁ ≥ s",
            printed="1",
            ours=exact(
                float(
                    max(
                        data["most copies"][enough].max(),
                        2.0 - data["least copies"][enough].min(),
                    )
                )
            ),
            rule=near(1.0, 0.0),
        ),
    ]
