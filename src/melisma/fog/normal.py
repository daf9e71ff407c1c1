"""The equations of a Newton step on a bipartite graph, by conjugate gradients.

With a weight θ > 0 on each arc and on the way from each source and sink to the ground,

    (K − Bᵀ S⁻¹ B) p = b,      B the weights, S and K the sums at sources and sinks

is a Laplacian on the sinks. Early on its diagonal is a good preconditioner. Later the
weights differ by many orders: the arcs of the best plan are a forest and outweigh the
others. Then the diagonal with the heaviest spanning forest beside it is nearly the
whole matrix, and its factors have no fill-in. Trees as preconditioners of interior
points on networks are by Resende and Veiga (1993); what makes them good from the
start is to leave the weights of all other arcs on the diagonal.
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.sparse.linalg import splu

from melisma.errors import SolverError
from melisma.fog.graph import Graph
from melisma.maths.arrays import Floats

Solve = Callable[[Floats], Floats]

#: Steps of one solution above which the diagonal gives way to the forest.
MANY = 20
#: Steps of one solution at most; the Newton step is inexact then.
MOST = 400


def dot(a: Floats, b: Floats) -> float:
    """Σ a·b without BLAS, whose threads wait for each other on a busy machine."""
    total: float = np.einsum("i,i", a, b)
    return total


class Normal:
    """Solves for one right side after another, with weights that change in between."""

    def __init__(self, graph: Graph) -> None:
        a, m, k = graph.size
        self._graph = graph
        start = np.searchsorted(graph.source, np.arange(m + 1))
        self._B = csr_array((np.ones(a), graph.sink, start), shape=(m, k))
        self._Bt = self._B.T  # shares its data
        self._scale = np.minimum(graph.room, 1.0)  # of errors at the sinks
        self._late = False

    def weigh(self, arcs: Floats, sources: Floats, sinks: Floats) -> None:
        """Set the weights: of arcs, and of sources and sinks to the ground."""
        graph = self._graph
        self._B.data[:] = arcs
        self.S = graph.out(arcs) + sources
        self.K = graph.into(arcs) + sinks
        if self._late:
            self._precondition = _forest(graph, arcs, np.append(self.S, self.K))
        else:
            S = self.S[graph.source]
            diagonal = graph.into(arcs * ((S - arcs) / S)) + sinks
            self._precondition = lambda r: r / diagonal

    def solve(
        self, at_sources: Floats, at_sinks: Floats, error: float
    ) -> tuple[Floats, Floats]:
        """The (u, p) with S·u − B·p and, up to ``error``, Bᵀ·u − K·p given.

        At a sink with room for less than 1, up to that part of its room: an error of
        the size of the room would leave its price to chance.
        """
        p = self._conjugate(self._Bt @ (at_sources / self.S) - at_sinks, error)
        return (at_sources + self._B @ p) / self.S, p

    def _conjugate(self, b: Floats, error: float) -> Floats:
        p, r = np.zeros_like(b), b
        q = z = self._precondition(r)
        size = dot(r, z)
        steps = 0
        while (np.abs(r) / self._scale).max() > error and steps < MOST:
            Bq = np.asarray(self._B @ q)
            Aq = self.K * q - self._Bt @ (Bq / self.S)
            rate = size / dot(q, Aq)
            p, r = p + rate * q, r - rate * Aq
            z = self._precondition(r)
            size, before = dot(r, z), size
            q = z + (size / before) * q
            steps += 1
        self._late = self._late or steps > MANY
        return p


def _forest(graph: Graph, arcs: Floats, diagonal: Floats) -> Solve:
    """Solve with the heaviest spanning forest off the diagonal in place of all arcs."""
    _, m, k = graph.size
    # csgraph takes an entry of 0 for no edge.
    weights = -np.maximum(arcs, np.finfo(np.float64).tiny)
    edges = csr_array((weights, (graph.source, m + graph.sink)), shape=(m + k, m + k))
    forest = coo_array(minimum_spanning_tree(edges))
    i, j, w = forest.row, forest.col, forest.data
    node = np.arange(m + k)
    matrix = csc_array(
        (
            np.concatenate([diagonal, w, w]),
            (np.concatenate([node, i, j]), np.concatenate([node, j, i])),
        )
    )
    try:
        factors = splu(
            matrix,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except RuntimeError as error:
        raise SolverError(f"weights of a Newton step out of range: {error}") from error
    nothing = np.zeros(m)
    return lambda r: factors.solve(np.concatenate([nothing, r]))[m:]
