"""Interior points of a movement's graph, each nearer to the best plan.

With x on arcs (0 ≤ x ≤ most), ρ discarded by each source and w left free at each sink,
all of them and s = most − x positive, and with a multiplier z on each of these, Newton
steps go for

    c − u_source + π_sink = z_x − z_s,    f − u = z_ρ,    π − φ′(G) = z_w,
    value · z = μ for each pair,          μ → 0,          φ(G) = γ/√(G + g₀)

(Mehrotra's predictor and corrector). As every variable is bound to one source and one
sink, all but π can be eliminated by hand; ``normal`` solves for π. The same for the
linear and for the convex error: φ″ is one more term on the diagonal.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from melisma.errors import SolverError
from melisma.fog.dual import least_loss
from melisma.fog.graph import Graph
from melisma.fog.normal import Normal, dot
from melisma.maths.arrays import Floats

#: Samples that a Newton step may lack at a sink, in parts of μ and of its room.
ERROR = 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Point:
    """A plan that nearly keeps the constraints, and prices."""

    x: Floats  #: samples on each arc
    prices: Floats  #: π of each sink
    cost: float  #: of x
    bound: float  #: by the prices; neither is certified


def points(graph: Graph) -> Iterator[Point]:
    """Better and better points, until rounding ends them; the caller stops earlier."""
    scaled, samples, unit = _scaled(graph)
    at = _Interior(scaled)
    while np.isfinite(at.value).all() and np.isfinite(at.pi).all():
        cost, bound = at.ends()
        yield Point(
            x=at.x * samples,
            prices=at.pi * unit,
            cost=cost * samples * unit,
            bound=bound * samples * unit,
        )
        try:
            with np.errstate(all="ignore"):  # what goes astray ends above
                at.step()
        except SolverError:
            return


def _scaled(graph: Graph) -> tuple[Graph, float, float]:
    """The graph with data and costs of about 1, and the units of both."""
    samples = float(graph.supply.mean())
    steep = graph.gamma / 2 * (graph.idle + samples) ** -1.5
    unit = (
        max(float(graph.cost.mean()), float(graph.discard.mean()), steep.max()) or 1.0
    )
    scaled = Graph(
        supply=graph.supply / samples,
        discard=graph.discard / unit,
        room=graph.room / samples,
        gamma=graph.gamma * samples**-1.5 / unit,
        idle=graph.idle / samples,
        source=graph.source,
        sink=graph.sink,
        cost=graph.cost / unit,
        most=graph.most / samples,
        capped=graph.capped,
        origin=graph.origin,
        sinks=graph.sinks,
    )
    return scaled, samples, unit


class _Interior:
    """A point inside all bounds: positive values, their multipliers, and prices.

    ``value`` holds x, s = most − x, ρ and w in this order, ``z`` their multipliers.
    """

    def __init__(self, graph: Graph) -> None:
        a, m, _ = graph.size
        self._graph, self._equations = graph, Normal(graph)
        self._x, self._s = slice(a), slice(a, 2 * a)
        self._r, self._w = slice(2 * a, 2 * a + m), slice(2 * a + m, None)
        # A bound that the supply implies would only blur prices: out of reach.
        most = np.where(graph.capped, graph.most, 2.0 * graph.supply[graph.source])
        x = _start(graph)
        G = graph.into(x)
        r, w = graph.supply - graph.out(x), graph.room - G
        self.value = np.concatenate([x, most - x, r, w])
        self.z = np.sqrt(10.0 * float(self.value.mean()) / self.value)
        self.u = graph.discard - self.z[self._r]
        self.pi = self.z[self._w] - 0.5 * graph.gamma * (G + graph.idle) ** -1.5

    @property
    def x(self) -> Floats:
        """What is on each arc."""
        return self.value[self._x]

    def step(self) -> None:
        """Go to the next point."""
        value, z = self.value, self.z
        mu = dot(value, z) / value.size
        self._linearise()
        # What a solution lacks is missing at the sinks: it must vanish with μ.
        error = min(max(ERROR * mu, 1e-11), 1e-3)
        step, dz, _, _ = self._direction(np.zeros_like(value), 10.0 * error)
        far, high = _longest(value, step), _longest(z, dz)
        ahead = dot(value + far * step, z + high * dz) / value.size
        centre = (ahead / mu) ** 3 * mu
        step, dz, du, dpi = self._direction(centre - step * dz, error)
        shy = min(max(1.0 - 0.1 * ahead / mu, 0.9), 0.999)
        far, high = _longest(value, step, shy), _longest(z, dz, shy)
        if self._graph.gamma.any():
            # π − φ′(G) = z_w holds along the step only if both go equally far.
            far = high = min(far, high)
        self.value, self.z = value + far * step, z + high * dz
        self.u, self.pi = self.u + high * du, self.pi + high * dpi

    def _linearise(self) -> None:
        """Slopes and curvatures at this point."""
        graph, value, x, w = self._graph, self.value, self._x, self._w
        gamma, G = graph.gamma, graph.into(self.x)
        loads = G + graph.idle
        self._ratio = ratio = self.z / value
        self._theta = 1.0 / (ratio[x] + ratio[self._s])
        self._of_r = 1.0 / ratio[self._r]
        self._of_w = 1.0 / (ratio[w] + 0.75 * gamma * loads**-2.5)
        self._equations.weigh(self._theta, self._of_r, self._of_w)
        self._lack = graph.supply - graph.out(self.x) - value[self._r]
        self._want = graph.room - G - value[w]
        self._slope_x = graph.cost - self.u[graph.source] + self.pi[graph.sink]
        self._slope_r = graph.discard - self.u
        self._slope_w = self.pi + 0.5 * gamma * loads**-1.5

    def _direction(
        self, target: Floats, error: float
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Steps of value, z, u and π towards value · z = target."""
        graph, theta, of_r, of_w = self._graph, self._theta, self._of_r, self._of_w
        pull = target / self.value
        gx = self._slope_x - pull[self._x] + pull[self._s]
        gr, gw = self._slope_r - pull[self._r], self._slope_w - pull[self._w]
        du, dpi = self._equations.solve(
            self._lack + graph.out(theta * gx) + of_r * gr,
            self._want + graph.into(theta * gx) + of_w * gw,
            error,
        )
        dx = theta * (du[graph.source] - dpi[graph.sink] - gx)
        step = np.concatenate([dx, -dx, of_r * (du - gr), -of_w * (dpi + gw)])
        return step, pull - self.z - self._ratio * step, du, dpi

    def ends(self) -> tuple[float, float]:
        """Cost of this point and the bound of its prices, both without sorting."""
        graph, x, pi, gamma = self._graph, self.x, self.pi, self._graph.gamma
        load = np.where(gamma > 0.0, graph.into(x) + graph.idle, 1.0)
        cost = dot(graph.cost, x) + dot(graph.discard, self.value[self._r])
        u = np.minimum(self.u, graph.discard)
        excess = np.maximum(u[graph.source] - graph.cost - pi[graph.sink], 0.0)
        bound = dot(graph.supply, u) - dot(graph.most, excess)
        losses = least_loss(pi, gamma, graph.idle, graph.room)
        return cost + float((gamma / np.sqrt(load)).sum()), bound + float(losses.sum())


def _start(graph: Graph) -> Floats:
    """An even share of the source, or of the sink or half the arc if that is less."""
    ones = np.ones(graph.cost.size)
    share = graph.supply / (graph.out(ones) + 1.0)
    place = graph.room / (graph.into(ones) + 1.0)
    even = np.minimum(share[graph.source], place[graph.sink])
    return np.minimum(0.5 * graph.most, even)


def _longest(value: Floats, step: Floats, part: float = 1.0) -> float:
    """The longest step of at most 1 that goes ``part`` of the way to a bound."""
    falls = float((-step / value).max())
    return min(1.0, part / falls) if falls > 0.0 else 1.0
