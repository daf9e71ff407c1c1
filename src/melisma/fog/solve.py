"""The least cost of moving data, by interior points, with a proof.

Capacities tie sources to sinks in a graph of one hop; a Newton step on it costs a few
passes over the arcs (``interior``, ``normal``). Its points nearly keep the constraints;
a plan is made of one by shrinking what is too much. Cost and bound of the plan are then
computed anew by ``cost`` and ``bound``, which know nothing of how it was found.

Differences from the paper:
1. The paper hands (5) to (9) to a general solver, and calls interior points
   prohibitively slow above 100 devices and 100 slots. They are not, on this structure.
"""

from dataclasses import replace
from itertools import islice

import numpy as np

from melisma.errors import SolverError
from melisma.fog.dual import bound
from melisma.fog.graph import Graph, flows_of, graph_of, prices_of
from melisma.fog.interior import points
from melisma.fog.movement import Flows, Movement, Plan, cost
from melisma.maths.arrays import Floats

#: Newton steps at most; a few dozen are usual.
STEPS = 200
#: Distance of cost and bound that is rounding, in parts of the cost of discarding all.
ROUNDING = 1e-8


def move(problem: Movement, *, gap: float = 1e-6) -> Plan:
    """A plan of least cost, up to a relative ``gap`` that its bound proves.

    Where rounding keeps the gap above that, up to 1e-8 of what discarding all would
    cost; above that, too, it raises SolverError.
    """
    problem = problem.foreseen()
    graph = graph_of(problem)
    if graph.cost.size == 0:
        return plan_of(problem, graph, graph.cost, graph.room)
    idle = cost(problem, _idle(problem)).total
    fixed = idle - _idle_on(graph)  # what no arc can change
    best: Plan | None = None
    for point in islice(points(graph), STEPS):
        if point.cost - point.bound > max(gap * (point.cost + fixed), ROUNDING * idle):
            continue
        best = _better(best, plan_of(problem, graph, point.x, point.prices))
        if best.gap <= gap or _rest(best) <= 1e-6 * ROUNDING * idle:
            return best
    if best is not None and _rest(best) <= ROUNDING * idle:
        return best
    reached = "none" if best is None else f"{best.gap:.1e}"
    raise SolverError(
        f"a gap of {gap:.1e} was not reached within {STEPS} steps, best {reached}: "
        "ask for a larger gap, or bring costs and capacities to fewer orders of size"
    )


def _rest(plan: Plan) -> float:
    """How much cheaper the best plan might be."""
    return plan.costs.total - plan.bound


def _better(best: Plan | None, plan: Plan) -> Plan:
    """The cheaper flows of two plans with the prices that prove more."""
    if best is None:
        return plan
    cheap = min(plan, best, key=lambda each: each.costs.total)
    high = max(plan, best, key=lambda each: each.bound)
    return replace(cheap, prices=high.prices, bound=high.bound)


def _idle(problem: Movement) -> Flows:
    """All data discarded."""
    kept = np.zeros_like(problem.data)
    return Flows(kept=kept, sent=np.zeros(len(problem.links)), discarded=problem.data)


def _idle_on(graph: Graph) -> float:
    """Cost of discarding all that the graph could move."""
    losses = graph.gamma / np.sqrt(np.where(graph.gamma > 0.0, graph.idle, 1.0))
    return float((graph.supply * graph.discard).sum() + losses.sum())


def plan_of(problem: Movement, graph: Graph, x: Floats, prices: Floats) -> Plan:
    """The plan nearest to x on the arcs, with the bound that prices of sinks prove."""
    flows, every = flows_of(problem, graph, x), prices_of(problem, graph, prices)
    return Plan(
        flows=flows,
        costs=cost(problem, flows),
        prices=every,
        bound=bound(problem, every),
    )
