"""Theorem 1 and Lemma 4 of the two-stage paper: as printed, and as they hold.

*Theorem 1.* w ← w − η·ĝ, where ĝ decodes K partial gradients whose spread is ζ² each,
so that its own is ζ²/K. F is L-smooth, and answers may be τ steps old. As printed

    mean ‖∇F‖² ≤ 2(F₁ − F*)/(ηP) + 3Lη/K·(1 + ητ)·m·(C₁ + C₂)·ζ²

Corrected, with A = maxₖ Σₘ |aₘ·bₘₖ|, which is 1 where answers of one model are decoded:

    mean ‖∇F‖² ≤ 2(F₁ − F*)/(ηP) + Lη/K·(1 + 2A²·Lητ)·A²ζ²
    where        Lη + 2(A·Lητ)² ≤ 1

Proof: F falls by η/2·(‖∇F‖² + ‖ḡ‖² − ‖∇F − ḡ‖²) − Lη²/2·(‖ḡ‖² + A²ζ²/K) in a step, ḡ
the mean of ĝ; ‖∇F − ḡ‖² ≤ A²L²·2η²·(τ·Σ‖ḡ‖² + τA²ζ²/K) over the last τ steps. Summed
over P steps the condition leaves nothing of ‖ḡ‖².

What is wrong as printed: (a) no step size is ruled out, and from η > 2/L on descent may
diverge; (b) 1 + ητ adds a number and a step size, L was lost from L² in the proof, and
so was a τ from the condition there (3η(L + L²τη²) ≤ 1), which then allows delays under
which descent diverges; (c) copies of a partition have the same error, and decoding
weighs them by 1 in all: 3m(C₁ + C₂) is not needed.

*Lemma 4.* In a slot the Lyapunov function grows by the printed products of queues and
decisions and by a constant at most. Its squares of sums, (pT + f_max·δ)² and
(Σ r_max·T·ξ)², are printed as sums of squares, and 3·D_max² as 3·D_max.
"""

from dataclasses import dataclass, replace

import numpy as np
from matplotlib.figure import Figure

from melisma.coding import recovered
from melisma.errors import ConfigError
from melisma.learning import data as datasets
from melisma.maths import Floats
from melisma.transmission import (
    Decisions,
    Observed,
    Queues,
    Setting,
    greedy,
    lyapunov,
    simulate,
)

from .claims import Claim, Kind, at_most, exact
from .kit import Data, Spread, in_order
from .tsdcfl_testbed import BED, Testbed, waited_for
from .tsdcfl_transmission import TransmissionStudy


def descent_bound(
    *,
    steps: Floats,
    step: float,
    smooth: float,
    gap: float,
    spread: float,
    partitions: int,
    delay: int = 0,
    weight: float = 1.0,
) -> Floats:
    """Theorem 1, corrected: of the mean ‖∇F‖² over each number of ``steps`` P.

    ``gap`` is F₁ − F*, ``spread`` ζ², ``weight`` A. ConfigError for a step too long.
    """
    x, A2 = smooth * step, weight**2
    if not 0.0 < x + 2.0 * A2 * (x * delay) ** 2 <= 1.0 + 1e-12:
        raise ConfigError(
            f"step of {step:g}, smoothness {smooth:g}, delay {delay}: the bound needs "
            "Lη + 2(A·Lητ)² ≤ 1; give a shorter step"
        )
    noise = x / partitions * (1.0 + 2.0 * A2 * x * delay) * A2 * spread
    return np.asarray(2.0 * gap / (step * steps) + noise)


def printed_descent_bound(
    *,
    steps: Floats,
    step: float,
    smooth: float,
    gap: float,
    spread: float,
    partitions: int,
    workers: int,
    coefficients: float,
    delay: int = 0,
) -> Floats:
    """Theorem 1 as printed; ``coefficients`` are C₁ + C₂, squared as in its proof."""
    noise = 3.0 * smooth * step / partitions * (1.0 + step * delay)
    noise *= workers * coefficients * spread
    return np.asarray(2.0 * gap / (step * steps) + noise)


def delayed_squares(
    curvature: Floats,
    start: Floats,
    noise: Floats,
    *,
    step: float,
    delay: int,
    steps: int,
) -> Floats:
    """E‖∇F‖² at each step of descent on ½Σλx² by gradients ``delay`` steps old, exact.

    ``noise`` is the variance of each coordinate of ĝ. Mean and covariance of the last
    delay + 1 places of a coordinate are carried on; they all begin at ``start``.
    """
    squares = np.zeros(steps)
    for lam, x, v in zip(curvature, start, noise, strict=True):
        along = np.eye(delay + 1, k=-1)
        along[0, 0] = 1.0
        along[0, -1] -= step * lam
        mean, spread = np.full(delay + 1, x), np.zeros((delay + 1, delay + 1))
        for n in range(steps):
            squares[n] += lam**2 * (mean[0] ** 2 + spread[0, 0])
            mean, spread = along @ mean, along @ spread @ along.T
            spread[0, 0] += step**2 * v
    return squares


def drift_constant(setting: Setting, *, printed: bool = False) -> float:
    """Lemma 4's constant, corrected or as printed.

    Ours has β at the squares of energy, and the work that arrives: as the rules do.
    """
    s, T = setting, setting.slot_s
    up, compute = s.power_w * T, s.compute_gcycles * s.compute_j_per_gcycle
    sent = s.rate_mbps * T
    received = sent * s.server_gcycles_per_mbit
    if printed:
        admitted, spent = 3.0 * s.arrival_mbit, up**2 + compute**2
        served = float((received**2).sum())
    else:
        admitted, spent = 3.0 * s.arrival_mbit**2, (up + compute) ** 2
        served = float(received.sum() ** 2)
    energy = s.energy_weight * (spent + s.harvest_j**2)
    each = admitted + sent**2 + energy + s.compute_gcycles**2 + s.work_gcycles**2
    return 0.5 * float(each.sum()) + 0.5 * (s.server_gcycles**2 + served)


def drift_excess(
    setting: Setting, queues: Queues, after: Queues, seen: Observed, done: Decisions
) -> Floats:
    """What the Lyapunov function grew by beyond the products of Lemma 4."""
    s = setting

    def lyapunov_of(at: Queues) -> Floats:
        energy = s.energy_weight * (at.battery_j - s.target_j) ** 2
        each = at.fairness_mbit**2 + at.data_mbit**2 + at.work_gcycles**2 + energy
        return np.asarray(0.5 * each.sum(-1) + 0.5 * at.server_gcycles[..., 0] ** 2)

    spent = s.power_w * done.airtime_s + s.compute_j_per_gcycle * done.computed_gcycles
    received = (done.sent_mbit * s.server_gcycles_per_mbit).sum(-1)
    energy = s.energy_weight * (queues.battery_j - s.target_j)
    products = (
        queues.data_mbit * (done.admitted_mbit - done.sent_mbit)
        + queues.fairness_mbit * (done.auxiliary_mbit - done.admitted_mbit)
        + queues.work_gcycles * (seen.work_gcycles - done.computed_gcycles)
        + energy * (done.stored_j - spent)
    ).sum(-1)
    products += queues.server_gcycles[..., 0] * (received - s.server_gcycles)
    return np.asarray(lyapunov_of(after) - lyapunov_of(queues) - products)


# --- the exhibit ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TheoryStudy:
    """Every number that the check of the bounds depends on."""

    dataset: str = "mnist-5k"
    ridge: float = 0.01  #: of the regression from 7 × 7 pixels to ten classes
    testbed: Testbed = BED
    late: int = 1
    first: int = 4  #: M₁
    samples: int = 768  #: in an iteration
    iterations: int = 300
    steps: tuple[float, ...] = (1.0, 0.3, 0.1)  #: Lη
    too_long: float = 2.2  #: Lη under which descent diverges
    seeds: int = 3
    curvature: float = 1000.0  #: L of the quadratic on which answers are late
    delay: int = 50
    slots: int = 2_000
    crowded_mbit: float = 30.0  #: of data that a slot brings to a worker, at most


def regression(study: TheoryStudy) -> tuple[Floats, Floats]:
    """Means of 4 × 4 pixels and a 1, and classes, as vectors."""
    train = datasets.load(study.dataset).train[:]
    x = np.asarray(train["x"], dtype=np.float64).reshape(-1, 7, 4, 7, 4)
    x /= x.max()
    X = np.column_stack([x.mean(axis=(2, 4)).reshape(len(x), -1), np.ones(len(x))])
    return X, np.eye(10)[np.asarray(train["y"], dtype=np.int64)]


def descended(todo: tuple[TheoryStudy, float, int]) -> Data:
    """Coded descent on least squares: ‖∇F‖² and ζ² of one sample at each iteration.

    Stragglers are coded around by the ring, and gradients decoded from the answers.
    With a step that is too long all samples are taken, so that ζ = 0: measured along a
    run that diverges it would grow with it, and with it the bound.
    """
    study, length, seed = todo
    X, Y = regression(study)
    N, exactly = len(X), length > 1.0
    S = N if exactly else study.samples
    H = X.T @ X / N + study.ridge * np.eye(X.shape[1])
    b, L = X.T @ Y / N, float(np.linalg.eigvalsh(H)[-1])
    best = np.linalg.solve(H, b)
    squares, W = (X**2).sum(axis=1), np.zeros_like(b)
    scheme = waited_for(study.testbed, study.late, study.first)
    whole_s = study.testbed.whole_s(study.late, study.iterations, seed, dead=True)
    rng = np.random.default_rng([seed, 2])
    norms, spreads, largest, off = [], [], 0.0, 0.0
    for number in range(study.iterations):
        gradient, error = H @ W - b, X @ W - Y
        norms.append(float((gradient**2).sum()))
        plain = ((gradient - study.ridge * W) ** 2).sum()
        spread = float((squares * (error**2).sum(axis=1)).mean() - plain)
        spreads.append(0.0 if exactly else spread)
        done = scheme.iteration(number, whole_s[number])
        parts = np.array_split(rng.permutation(N)[:S], done.code.partitions)
        sums = np.array([X[rows].T @ error[rows] for rows in parts])
        decoded = recovered(done.code, done.outcome, sums)
        whole = sums.sum(axis=0)
        off = max(off, float(np.linalg.norm(decoded - whole) / np.linalg.norm(whole)))
        if (rest := done.outcome.rest) is not None:
            products = done.outcome.weights[:, None] * rest.code.matrix.toarray()
            largest = max(largest, float((products**2).max()))
        W = W - length / L * (decoded / S + study.ridge * W)
    return {
        "norms": np.array(norms),
        "spread": np.array(max(spreads) * done.code.partitions / S),
        "gap": np.array(0.5 * float(((best) * (H @ best)).sum())),
        "smooth": np.array(L),
        "partitions": np.array(float(done.code.partitions)),
        "coefficients": np.array(1.0 + largest),
        "off": np.array(off),
    }


def drifted(study: TheoryStudy, crowded: bool) -> Data:
    """Lemma 4's two constants, and the most that a slot took of them."""
    # The paper's Lyapunov function has no weight at the battery.
    setting = replace(TransmissionStudy().setting(20.0), energy_weight=np.ones(()))
    if crowded:
        most = np.full(setting.workers, study.crowded_mbit)
        setting = replace(setting, arrival_mbit=most)
    found = []
    for policy in (lyapunov, greedy):
        run = simulate(setting, study.slots, range(study.seeds), policy)
        before, after = (
            Queues(**{name: getattr(run.queues, name)[some] for name in QUEUES})
            for some in (slice(None, -1), slice(1, None))
        )
        seen = Observed(**{name: getattr(run.observed, name)[:-1] for name in OBSERVED})
        done = Decisions(**{name: getattr(run.done, name)[:-1] for name in DECISIONS})
        found.append(drift_excess(setting, before, after, seen, done))
    return {
        "excess": np.array([float(one.max()) for one in found]),
        "corrected": np.array(drift_constant(setting)),
        "printed": np.array(drift_constant(setting, printed=True)),
    }


QUEUES = tuple(Queues.__dataclass_fields__)
OBSERVED = tuple(Observed.__dataclass_fields__)
DECISIONS = tuple(Decisions.__dataclass_fields__)


def run_theory(study: TheoryStudy, spread: Spread = in_order) -> Data:
    """Descend with each step size, late on a quadratic, and go through slots."""
    lengths = (*study.steps, study.too_long)
    seeds = range(study.seeds)
    runs = spread(descended, [(study, one, seed) for one in lengths for seed in seeds])
    P = np.arange(1.0, study.iterations + 1)
    data: Data = {"P": P, "lengths": np.array(lengths)}
    for n, length in enumerate(lengths):
        some = runs[n * study.seeds : (n + 1) * study.seeds]
        with np.errstate(over="ignore"):
            means = [np.cumsum(run["norms"]) / P for run in some]
        L, K = float(some[0]["smooth"]), int(some[0]["partitions"])
        known = {
            "steps": P,
            "step": length / L,
            "smooth": L,
            "gap": float(some[0]["gap"]),
            "spread": max(float(run["spread"]) for run in some),
            "partitions": K,
        }
        C = max(float(run["coefficients"]) for run in some)
        M = len(study.testbed.cores)
        data[f"{length:g}/mean"] = np.mean(means, axis=0)
        data[f"{length:g}/printed"] = printed_descent_bound(
            **known,  # type: ignore[arg-type]
            workers=M,
            coefficients=C,
        )
        if length <= 1.0:
            data[f"{length:g}/corrected"] = descent_bound(**known)  # type: ignore[arg-type]
        data[f"{length:g}/known"] = np.array([L, known["spread"], K, C])
        data[f"{length:g}/off"] = np.array([max(float(run["off"]) for run in some)])
    data |= late_answers(study)
    for name in ("usual", "crowded"):
        found = drifted(study, name == "crowded")
        data |= {f"{name}/{key}": one for key, one in found.items()}
    return data


def late_answers(study: TheoryStudy) -> Data:
    """Descent by old gradients, no noise, with a step that the paper's proof allows."""
    L, tau, P = study.curvature, study.delay, study.iterations
    eta = 1.0 / (6.0 * L)
    allowed = 3.0 * eta * (L + L**2 * tau * eta**2)
    one = np.ones(1)
    squares = delayed_squares(L * one, one, 0.0 * one, step=eta, delay=tau, steps=P)
    steps = np.arange(1.0, P + 1)
    return {
        "late/allowed": np.array([allowed]),
        "late/mean": np.cumsum(squares) / steps,
        "late/printed": printed_descent_bound(
            steps=steps,
            step=eta,
            smooth=L,
            gap=0.5 * L,
            spread=0.0,
            partitions=1,
            workers=1,
            coefficients=1.0,
            delay=tau,
        ),
    }


def draw_theory(drawing: Figure, data: Data) -> None:
    """Draw mean ‖∇F‖² and both bounds over iterations; then where the printed fails."""
    drawing.set_size_inches(10.2, 3.6)
    left, right = drawing.subplots(1, 2)
    P, lengths = data["P"], data["lengths"]
    colours = ("#0072B2", "#009E73", "#D55E00", "#CC79A7")
    for length, colour in zip(lengths[:-1], colours[:-1], strict=True):
        key = f"{length:g}"
        left.plot(P, data[f"{key}/mean"], color=colour, label=f"Lη = {key}")
        left.plot(P, data[f"{key}/corrected"], color=colour, linestyle="--")
        left.plot(P, data[f"{key}/printed"], color=colour, linestyle=":")
    left.set(title="measured; dashed: corrected; dotted: printed")
    left.legend(fontsize=8)
    key = f"{lengths[-1]:g}"
    cases = ((key, f"Lη = {key}", colours[3]), ("late", "late answers", colours[0]))
    for key, text, colour in cases:
        right.plot(P, data[f"{key}/mean"], color=colour, label=text)
        right.plot(P, data[f"{key}/printed"], color=colour, linestyle=":")
    right.set(title="where the printed bound does not hold")
    right.legend(fontsize=8)
    for ax in (left, right):
        ax.set(xscale="log", yscale="log", xlabel="iterations P")
    right.set_ylim(1e-4, 1e12)
    left.set_ylabel("mean of ‖∇F‖² so far")


def table_of_theory(data: Data) -> list[list[str]]:
    """What was measured, and what the bounds say at the last iteration."""
    rows = [["Lη", "L", "ζ²", "K", "C₁ + C₂", "mean ‖∇F‖²", "corrected", "printed"]]
    for length in data["lengths"]:
        key = f"{length:g}"
        L, spread, K, C = data[f"{key}/known"]
        corrected = data.get(f"{key}/corrected")
        rows.append(
            [
                key,
                f"{L:.2f}",
                f"{spread:.3g}",
                f"{K:g}",
                f"{C:.2f}",
                f"{data[f'{key}/mean'][-1]:.3g}",
                "" if corrected is None else f"{corrected[-1]:.3g}",
                f"{data[f'{key}/printed'][-1]:.3g}",
            ]
        )
    for name in ("usual", "crowded"):
        excess = data[f"{name}/excess"].max()
        what = f"Lemma 4, {name} arrivals: the most of any slot, and the constants"
        values = (excess, data[f"{name}/corrected"], data[f"{name}/printed"])
        rows.append([what, "", "", "", "", *(f"{one:.0f}" for one in values)])
    return rows


def claims_of_theory(data: Data) -> list[Claim]:
    """Theorem 1 and Lemma 4, as printed and corrected."""
    lengths = data["lengths"]

    def most(key: str, bound: str) -> float:
        # Beyond this it is no matter how far off the bound is.
        return min(float((data[f"{key}/mean"] / data[f"{key}/{bound}"]).max()), 1e6)

    usual = [f"{one:g}" for one in lengths[:-1]]
    long = f"{lengths[-1]:g}"
    found = [
        Claim(
            what="Mean ‖∇F‖² over the corrected bound of Theorem 1, any P, Lη ≤ 1",
            printed="≤ 1 (theory)",
            ours=exact(max(most(key, "corrected") for key in usual)),
            rule=at_most(1.0),
            kind=Kind.OWN,
            digits=3,
        ),
        Claim(
            what="Mean ‖∇F‖² over the printed bound, Lη ≤ 1",
            printed="≤ 1 (Theorem 1)",
            ours=exact(max(most(key, "printed") for key in usual)),
            rule=at_most(1.0),
            digits=4,
        ),
        Claim(
            what=f"Mean ‖∇F‖² over the printed bound, Lη = {long} and ζ = 0 (up to "
            "10⁶)",
            printed="≤ 1 (Theorem 1)",
            ours=exact(most(long, "printed")),
            rule=at_most(1.0),
            why="the theorem names no largest step, and descent diverges from Lη = 2",
        ),
        Claim(
            what="Mean ‖∇F‖² over the printed bound, late answers, as its proof allows "
            "(up to 10⁶)",
            printed="≤ 1 (Theorem 1)",
            ours=exact(most("late", "printed")),
            rule=at_most(1.0),
            why="the proof lost L and τ from its condition on the step: its "
            f"3η(L + L²τη²) is {data['late/allowed'][0]:.2f} ≤ 1 here, and descent by "
            "gradients so old diverges",
        ),
    ]
    for name in ("usual", "crowded"):
        excess = float(data[f"{name}/excess"].max())
        for bound in ("corrected", "printed"):
            of = "theory" if bound == "corrected" else "Lemma 4"
            found.append(
                Claim(
                    what=f"Growth in any slot over Lemma 4's constant, {bound}, {name} "
                    "arrivals",
                    printed=f"≤ 1 ({of})",
                    ours=exact(excess / float(data[f"{name}/{bound}"])),
                    rule=at_most(1.0),
                    kind=Kind.OWN if bound == "corrected" else Kind.PAPER,
                    why="3·D_max stands for 3·D_max², and sums of squares for squares "
                    "of sums",
                )
            )
    return found
