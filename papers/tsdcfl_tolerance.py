"""What stage two of the two-stage paper bears: Lemmas 1 and 2, Eq. 16, exhaustively."""

from dataclasses import dataclass
from itertools import combinations
from math import inf

import numpy as np

from melisma.coding import NotDecodable, Rest, TwoStage, two_stage
from melisma.maths import Floats

from .claims import Claim, Kind, at_most, exact, near
from .kit import Data, Spread, in_order
from .tsdcfl_testbed import ANEW, BED, Predicted, Testbed


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceStudy:
    """Every number that the check of Lemma 2 depends on."""

    testbed: Testbed = BED
    late: tuple[int, ...] = (1, 2)
    partitions: int = 28
    parameters: int = 10  #: of the random gradients that are decoded
    iterations: int = 400  #: whose predicted plans are tried
    seed: int = 2
    anew: int = ANEW  #: iterations that such a plan lasts at most


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


def predicted_stages(study: ToleranceStudy, late: int) -> list[TwoStage]:
    """The first stages that a history of dead workers has led to, one for each plan."""
    bed = study.testbed
    scheme = Predicted(workers=len(bed.cores), helpers="ring", anew=study.anew)
    every = bed.whole_s(late, study.iterations, study.seed, dead=True)
    stages = {id(done.code): done.code for done in scheme.course(every)}
    return [
        stage
        for stage in stages.values()
        if isinstance(stage, TwoStage) and stage.helpers == "ring"
    ]


#: What is known of predicted plans.
FORESEEN = (
    "decoded",
    "worst",
    "patterns",
    "least first",
    "most first",
    "least s",
    "most s",
)


def predicted_tolerance_of(todo: tuple[ToleranceStudy, int]) -> list[float]:
    """Share of patterns decoded, worst error, patterns; least and most M₁ and s.

    All sets of those who start that may have finished, and all patterns in which as
    many as straggle are missing, whatever was predicted.
    """
    study, late = todo
    rng = np.random.default_rng(0)
    errors, firsts, predicted = [], [], []
    for stage in predicted_stages(study, late):
        start = np.flatnonzero(stage.loads).tolist()
        gradients = rng.standard_normal((stage.partitions, study.parameters))
        firsts.append(len(start))
        predicted.append(stage.stragglers)
        for count in range(len(start)):
            for finished in combinations(start, count):
                errors += patterns_of(stage.rest(list(finished)), late, gradients)
    decoded = np.isfinite(errors)
    worst = float(np.array(errors)[decoded].max(initial=0.0))
    ranges = [min(firsts), max(firsts), min(predicted), max(predicted)]
    return [float(decoded.mean()), worst, len(errors), *map(float, ranges)]


def run_tolerance(study: ToleranceStudy, spread: Spread = in_order) -> Data:
    """Try every pattern: one row for each M₁ and s."""
    M = len(study.testbed.cores)
    cases = [(first, late) for late in study.late for first in range(1, M)]
    found = spread(tolerance_of, [(study, first, late) for first, late in cases])
    decoded, worst, least, most, patterns = np.array(found).T
    first, late = np.array(cases, dtype=np.float64).T
    foreseen = spread(predicted_tolerance_of, [(study, late) for late in study.late])
    return {
        "predicted/late": np.array(study.late, dtype=np.float64),
        **{
            f"predicted/{what}": values
            for what, values in zip(FORESEEN, np.array(foreseen).T, strict=True)
        },
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
    """One row for each M₁ and s that are told; one for each s, predicted."""
    M = int(data["workers"][0])
    rows = [
        ["", "s", "M₁", "helpers", "patterns", "decoded", "worst relative error"],
    ]
    for n, first in enumerate(data["first"].astype(int)):
        s = f"{data['late'][n]:g}"
        rows.append(["told", s, str(first), str(M - first), *_decoded(data, "", n)])
    for n, late in enumerate(data["predicted/late"]):
        first, most, least_s, most_s = (
            int(data[f"predicted/{what}"][n]) for what in FORESEEN[3:]
        )
        s = f"{late:g}, predicted {_range(least_s, most_s)}"
        starting, helping = _range(first, most), _range(M - most, M - first)
        cells = _decoded(data, "predicted/", n)
        rows.append(["predicted", s, starting, helping, *cells])
    return rows


def _decoded(data: Data, kind: str, n: int) -> list[str]:
    """Patterns, how many were decoded, and how well."""
    patterns, decoded, worst = (
        float(data[f"{kind}{what}"][n]) for what in ("patterns", "decoded", "worst")
    )
    return [f"{patterns:,.0f}", f"{decoded:.1%}", f"{worst:.0e}" if decoded else ""]


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


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
            what="Patterns of s stragglers decoded, where M − M₁ < s",
            printed="all (Lemma 2)",
            ours=exact(100.0 * data["decoded"][~enough].min()),
            rule=near(100.0, 0.0),
            unit="%",
            digits=1,
            why="s + 1 copies need s helpers: the lemma's code needs M − M₁ ≥ s",
        ),
        Claim(
            what="Patterns of as many missing as straggle, decoded by predicted plans",
            printed="all (Lemma 2)",
            ours=exact(100.0 * data["predicted/decoded"].min()),
            rule=near(100.0, 0.0),
            unit="%",
            digits=1,
            why="fewer stragglers were predicted than there were",
        ),
        Claim(
            what="Worst relative error of the decoded sum, in 10⁻⁹",
            printed="0 (exact)",
            ours=exact(1e9 * max(data["worst"].max(), data["predicted/worst"].max())),
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
            kind=Kind.GIVEN,  # loads are shared out by it
        ),
    ]
