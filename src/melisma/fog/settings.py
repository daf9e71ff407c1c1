"""The paper's synthetic setting, and its four ways to run it (Table III).

Data are D_i(t) ~ U(0, |D_V|/(nT)) rounded, half of |D_V| on average. Costs are
c_i(t) ~ U(0, 1) and c_ij(t) ~ U(0, 1/n); capacities, where there are any, U(0, 4·max D)
and U(0, 4·max D / n). Everyone is linked to everyone.

Differences from the paper:
1. The discard cost is not printed: f(t) = 2/√t by default, falling as training
   converges. ``docs/fog.md`` shows what others do.
2. Costs are drawn once for each device and link (``steady``), or for each slot. The
   paper writes c_i(t), but where costs do not last, averages of the past tell nothing
   of the future, and C would cost more than A.
3. The number of windows is not printed: ten, one for each aggregation (τ = 10).
"""

from dataclasses import replace

import numpy as np

from melisma.errors import unknown
from melisma.fog.movement import Flows, Movement
from melisma.fog.online import alone, estimated
from melisma.fog.profiles import Uniform
from melisma.fog.solve import move
from melisma.fog.topologies import full
from melisma.maths.arrays import Floats

#: Settings by name: whether data may move, are known beforehand, and capacities hold.
SETTINGS = {
    "A": (False, True, False),
    "B": (True, True, False),
    "C": (True, False, False),
    "D": (True, False, True),
}


def draw(
    rng: np.random.Generator,
    *,
    devices: int = 10,
    slots: int = 100,
    samples: int = 60_000,
    discard: float = 2.0,
    steady: bool = True,
    capacities: bool = False,
    gamma: float = 0.0,
) -> Movement:
    """A movement of the paper's kind with f(t) = ``discard``/√t, and maybe a γ."""
    n, T = devices, slots
    links = full(n, T)
    costs = Uniform(steady=steady)
    data = np.round(rng.uniform(0.0, samples / (n * T), (T, n)))
    problem = Movement(
        data=data,
        process_cost=costs.process_cost(n, T, rng),
        links=links,
        link_cost=costs.link_cost(links, rng),
        discard_cost=falling(discard, T, n),
        gamma=np.array(gamma),
    )
    return limited(problem, rng) if capacities else problem


def falling(discard: float, slots: int, devices: int) -> Floats:
    """f(t) = ``discard``/√t, T × n."""
    falls = discard / np.sqrt(np.arange(1.0, slots + 1.0))
    return np.tile(falls[:, None], devices)


def limited(problem: Movement, rng: np.random.Generator) -> Movement:
    """The same with the paper's capacities."""
    most = 4.0 * problem.data.max()
    return replace(
        problem,
        capacity=rng.uniform(0.0, most, problem.data.shape),
        link_capacity=rng.uniform(0.0, most / problem.devices, len(problem.links)),
    )


def run(
    setting: str,
    rng: np.random.Generator,
    *,
    windows: int = 10,
    devices: int = 10,
    slots: int = 100,
    samples: int = 60_000,
    discard: float = 2.0,
    steady: bool = True,
    gamma: float = 0.0,
) -> tuple[Movement, Flows]:
    """Draw a movement and carry it out as one of the settings A to D.

    A generator of the same seed draws the same data and costs in all four.
    """
    if setting not in SETTINGS:
        raise unknown("setting", setting, SETTINGS)
    moves, informed, capacities = SETTINGS[setting]
    problem = draw(
        rng,
        devices=devices,
        slots=slots,
        samples=samples,
        discard=discard,
        steady=steady,
        capacities=capacities,
        gamma=gamma,
    )
    if not moves:
        return problem, alone(problem)
    if informed:
        return problem, move(problem).flows
    return problem, estimated(problem, windows)
