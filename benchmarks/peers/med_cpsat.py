"""The integer program on CP-SAT: ``python med_cpsat.py problem.npz seconds``.

Needs ortools and numpy only, in an environment of their own (``ortools.txt``). Times
and prices are whole ten-thousandths, rounded down, so that the bound holds for the
problem as it is.
"""

import json
import sys
import time

import numpy as np
from ortools.sat.python import cp_model

UNIT = 10_000


def main(path: str, limit_s: float) -> None:
    """Print what CP-SAT found, as JSON."""
    data = np.load(path)
    A, B, D, T = (data[k] for k in ("fixed_s", "shard_s", "shards", "deadline_s"))
    price, least, every = data["price"], int(data["least"]), bool(data["every"])
    m, n = A.shape
    start = time.perf_counter()
    model = cp_model.CpModel()
    z = [model.new_int_var(0, int(t * UNIT), "") for t in T]
    taken, shards = {}, {}
    for i in range(m):
        for j in range(n):
            most = min(int(D[i]), int((T[i] - A[i, j]) / B[i, j]))
            taken[i, j] = x = model.new_bool_var("")
            shards[i, j] = d = model.new_int_var(0, max(most, 0), "")
            model.add(d >= least * x)
            model.add(d <= max(most, 0) * x)
            a, b = int(A[i, j] * UNIT), int(B[i, j] * UNIT)
            model.add(a * x + b * d <= z[i])
        model.add(sum(shards[i, j] for j in range(n)) == int(D[i]))
    for j in range(n):
        served = sum(taken[i, j] for i in range(m))
        model.add(served == 1) if every else model.add(served <= 1)
    if np.isfinite(data["budget"]):
        whole = [int(p * UNIT) for p in price]
        paid = sum(whole[j] * d for (_, j), d in shards.items())
        model.add(paid <= int(data["budget"] * UNIT))
    model.minimize(sum(z))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 2
    solver.parameters.max_time_in_seconds = limit_s - (time.perf_counter() - start)
    status = solver.solve(model)
    found = {"bound_s": solver.best_objective_bound / UNIT}
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        d = np.array([[solver.value(shards[i, j]) for j in range(n)] for i in range(m)])
        found["objective_s"] = float(np.where(d > 0, A + B * d, 0).max(axis=1).sum())
    print(json.dumps({"seconds": time.perf_counter() - start, **found}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
