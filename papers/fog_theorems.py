"""What can be said about moving data without solving for it.

The theorems of Y. Tu et al., "Network-Aware Optimization of Distributed Learning for
Fog Computing", INFOCOM 2020, as they hold; each function says what was to be corrected.
"""

from collections.abc import Callable, Sequence
from math import expm1, inf, log1p, sqrt

import numpy as np
from scipy.optimize import brentq

from melisma.errors import ConfigError
from melisma.fog import Flows, Movement
from melisma.maths import Floats, Ints


def loss_bound(
    *,
    slot: int,
    period: int,
    step: float,
    lipschitz: float,
    smooth: float,
    divergence: float,
    mean_divergence: float,
    nearness: float,
) -> float:
    """Theorem 1: L(w_i(t)) − L(w*) ≤ ε₀ + ρ·g_i(t − Kτ) for convex losses.

    t = ``slot`` counts steps of size η = ``step`` ≤ 1/β from 1; aggregations come every
    τ = ``period``, K = ⌊t/τ⌋ so far. L is ρ-``lipschitz`` and β-``smooth``;
    ``divergence`` δ_i bounds ‖∇L_i − ∇L‖ of the device and ``mean_divergence`` that of
    all, weighted by their data. ``nearness`` is ω = minₖ 1/‖v_k − w*‖², v_k the model
    after aggregation k. With a = tωη(1 − βη/2) and

        g(x) = δ_i/β·((ηβ + 1)ˣ − 1),      h(x) = δ/β·((ηβ + 1)ˣ − 1) − ηδx,

    ε₀ is the positive root of aε² − ε − ρ·(K·h(τ) + g(t − Kτ)) = 0.

    Corrected: the printed ε₀ lacks the ρ that its proof has under the root; h and ω are
    not defined in the paper, they are those of its reference [4] (Wang et al., 2019).
    """
    eta, beta, rho, tau = step, smooth, lipschitz, period
    if not 0.0 < eta * beta <= 1.0:
        raise ConfigError(
            f"step of {eta} with smoothness {beta}: give a step of at most {1 / beta:g}"
        )
    K = slot // tau

    def grown(x: int) -> float:
        return expm1(x * log1p(eta * beta)) / beta

    h = mean_divergence * (grown(tau) - eta * tau)
    g = divergence * grown(slot - K * tau)
    a = slot * nearness * eta * (1.0 - 0.5 * beta * eta)
    e0 = 0.5 / a + sqrt(0.25 / a**2 + rho * (K * h + g) / a)
    return e0 + rho * g


def waiting_capacity(rate: float, wait: float) -> float:
    """Theorem 2: samples per slot at which they wait ``wait`` slots on average.

    A device serves ``rate`` μ samples per slot, each in a time ~ exp(μ); samples come
    evenly (D/M/1). φ = σμ/(1 + σμ) gives C = −μ(1 − φ)/ln φ, explicitly

        C = μ / ((1 + σμ)·ln(1 + 1/(σμ))).

    σ is the time in the queue: the whole stay is 1/μ longer, which the paper's remark
    on σ = 1 leaves out.
    """
    if rate <= 0.0 or wait <= 0.0:
        raise ConfigError(f"rate of {rate}, wait of {wait}: give numbers above 0")
    busy = rate * wait
    return rate / ((1.0 + busy) * log1p(1.0 / busy))


def waiting(rate: float, arrivals: float) -> float:
    """Mean wait in a D/M/1 queue, slots: φ/(μ(1 − φ)), φ = exp(−μ(1 − φ)/C)."""
    if arrivals >= rate:
        return inf
    slope = rate / arrivals

    def excess(y: float) -> float:  # y = 1 − φ, φ the smaller of two roots
        return log1p(-y) + slope * y

    y = float(brentq(excess, 1.0 - 1.0 / slope, 1.0 - 1e-16))
    return (1.0 - y) / (rate * y)


def unconstrained(problem: Movement) -> Flows:
    """Theorem 3: without capacities and γ, each sample goes the cheapest way.

    That is the least of c_i(t), c_ik(t) + c_k(t+1) over neighbours k, and f_i(t).
    """
    links, n = problem.links, problem.devices
    way = (
        problem.link_cost + problem.sinks("process_cost")[links.slot + 1, links.target]
    )
    source = links.slot * n + links.source
    order = np.lexsort((way, source))
    first = order[np.unique(source[order], return_index=True)[1]]
    away = np.full(problem.data.size, np.inf)
    away[source[first]] = way[first]
    D, c, f = (
        a.ravel() for a in (problem.data, problem.process_cost, problem.discard_cost)
    )
    goes = (away < c) & (away < f)
    keeps = ~goes & (c <= f)
    sent = np.zeros(len(links))
    leaving = first[goes[source[first]]]
    sent[leaving] = D[source[leaving]]
    shape = problem.data.shape
    return Flows(
        kept=np.where(keeps, D, 0.0).reshape(shape),
        sent=sent,
        discarded=np.where(goes | keeps, 0.0, D).reshape(shape),
    )


def hierarchy(
    devices: int, data: float, cost: float, server: float, gamma: float
) -> tuple[float, float]:
    """Theorem 4: parts (r, s) of its data that each device discards and sends.

    n devices with D samples a slot at cost c, and one server at c_s + c_t = ``server``,
    sending included; γ/√G for each. (13) and (14) hold for large D,

        s = (γ/2(c_s + c_t))^⅔ / nD,     r = 1 − s − (γ/2c)^⅔ / D,

    and are clipped to 0 ≤ r, s and r + s ≤ 1: first s, then r. With little data that is
    not the optimum, see ``hierarchy_optimum``.
    """
    s = min((gamma / (2.0 * server)) ** (2 / 3) / (devices * data), 1.0)
    r = 1.0 - s - (gamma / (2.0 * cost)) ** (2 / 3) / data
    return max(r, 0.0), s


def hierarchy_optimum(
    devices: int, data: float, cost: float, server: float, gamma: float
) -> tuple[float, float]:
    """The least of Theorem 4's cost over 0 ≤ r, s and r + s ≤ 1, for any D.

    Where (13) and (14) would need more data than there are, r = 0, and s divides them:

        n(1−r−s)Dc + nsD(c_s + c_t) + nγ/√((1−r−s)D) + γ/√(snD)
    """
    n, D = devices, data
    r, s = hierarchy(n, D, cost, server, gamma)
    if r > 0.0:
        return r, s

    def slope(s: float) -> float:
        """d cost / ds / nD at r = 0."""
        here = 0.5 * gamma * float(((1.0 - s) * D) ** -1.5)
        there = 0.5 * gamma * float((s * n * D) ** -1.5)
        return server - cost + here - there

    return 0.0, float(brentq(slope, 1e-12, 1.0 - 1e-12, xtol=1e-15))


def offloading_value(neighbours: Sequence[float], highest: float) -> float:
    """Theorem 5: mean saving per sample by offloading, c ~ U(0, C), free links.

    ``neighbours[k]`` is the part of devices with k neighbours. The least of k + 1 costs
    is C/(k + 2) on average, so the saving is C/2 − C/(k + 2) = C·k/(2(k + 2)). The
    printed sum (15) equals that, but cancels to nonsense from k ≈ 60 on.
    """
    k = np.arange(len(neighbours))
    part: Floats = np.asarray(neighbours, dtype=np.float64)
    return float(highest * (part * k / (2.0 * (k + 2.0))).sum())


def expected_violations(
    degree: Ints,
    source: Ints,
    target: Ints,
    data: float,
    below: Callable[[float], float],
) -> float:
    """Theorem 6 as printed: devices whose load passes their capacity, approximately.

    (``source``, ``target``) are all links, ``degree`` the neighbours of each device;
    costs are i.i.d. and links free, so that a device of k neighbours offloads with
    probability P_o(k) = k/(k + 1), to each of them alike. ``below(x)`` is the
    probability of a capacity of at most x samples. The formula takes the *mean* load of
    devices of one degree for the load of each, and is off by much:
    ``sampled_violations`` is the number itself.
    """
    kinds, at = np.unique(degree, return_inverse=True)
    offers = np.where(degree > 0, 1.0 / (degree + 1.0), 0.0)  # P_o(k) / k
    gets = np.bincount(at[target], offers[source], kinds.size) / np.bincount(at)
    load = data * (1.0 / (kinds + 1.0) + gets)
    return float(sum(below(x) * m for x, m in zip(load, np.bincount(at), strict=True)))


def sampled_violations(
    devices: int,
    source: Ints,
    target: Ints,
    data: float,
    below: Callable[[float], float],
    rng: np.random.Generator,
    draws: int = 1000,
) -> tuple[float, float]:
    """The number of Theorem 6 by Monte Carlo, and its standard error.

    Costs are drawn; each device sends all its data to its cheapest neighbour if that is
    cheaper than itself. Capacities enter by their distribution, exactly.
    """
    order = np.argsort(source, kind="stable")
    source, target = source[order], target[order]
    linked, start = np.unique(source, return_index=True)
    probability = np.array([below(k * data) for k in range(devices + 1)])
    probability[0] = 0.0  # who has nothing to do cannot have too much
    counts = np.empty(draws)
    for draw in range(draws):
        cost = rng.random(devices)
        least = np.minimum.reduceat(cost[target], start)
        goes = least < cost[linked]
        to = np.argsort(cost)[np.searchsorted(np.sort(cost), least[goes])]
        load = np.ones(devices, dtype=np.int64)
        load[linked[goes]] = 0
        load += np.bincount(to, minlength=devices)
        counts[draw] = probability[load].sum()
    return float(counts.mean()), float(counts.std(ddof=1) / sqrt(draws))
