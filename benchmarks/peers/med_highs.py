"""The integer program on HiGHS: ``python med_highs.py problem.npz seconds``."""

import json
import sys
import time
from typing import Any

import numpy as np

from melisma.errors import SolverError
from melisma.schemes.multitask import ilp
from melisma.system import MultiTaskProblem


def main(path: str, limit_s: float) -> None:
    """Print what HiGHS found, as JSON."""
    fields: dict[str, Any] = {
        name: value if value.ndim else value.item()
        for name, value in np.load(path).items()
    }
    problem = MultiTaskProblem(**fields)
    start = time.perf_counter()
    try:
        solved = ilp(problem, limit_s=limit_s)
        found = {"objective_s": solved.objective_s, "bound_s": solved.bound_s}
    except SolverError:
        found = {}
    print(json.dumps({"seconds": time.perf_counter() - start, **found}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
