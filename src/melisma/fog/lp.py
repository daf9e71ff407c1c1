"""The movement as one linear program on HiGHS: the reference for ``move``.

Every arc of the graph is a variable, every device in every slot two rows. Linear error
alone: HiGHS has no γ/√G.
"""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from melisma.errors import ConfigError, SolverError
from melisma.fog.graph import graph_of
from melisma.fog.movement import Movement, Plan
from melisma.fog.solve import plan_of


def move_lp(problem: Movement, *, limit_s: float = np.inf) -> Plan:
    """A plan of least cost by HiGHS.

    Raises ConfigError where there is a γ, SolverError if HiGHS stops without an answer.
    """
    if problem.gamma.any():
        raise ConfigError(
            "gamma above 0: HiGHS solves the linear error alone, use move"
        )
    problem = problem.foreseen()
    graph = graph_of(problem)
    if graph.cost.size == 0:
        return plan_of(problem, graph, graph.cost, graph.room)
    a, m, k = graph.size
    ones, arcs = np.ones(a), np.arange(a)
    answer = linprog(  # type: ignore[call-overload]  # bounds may be an array
        graph.cost - graph.discard[graph.source],  # what is not sent is discarded
        A_ub=csr_array(
            (
                np.tile(ones, 2),
                (np.append(graph.source, m + graph.sink), np.tile(arcs, 2)),
            ),
            shape=(m + k, a),
        ),
        b_ub=np.append(graph.supply, graph.room),
        bounds=np.column_stack([np.zeros(a), graph.most]),
        method="highs-ds",
        options={} if np.isinf(limit_s) else {"time_limit": limit_s},
    )
    if answer.status != 0:
        raise SolverError(f"HiGHS stopped on {a} arcs: {answer.message}")
    return plan_of(problem, graph, answer.x, -answer.ineqlin.marginals[m:])
