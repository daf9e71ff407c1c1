"""Simulated learners, each with its own way of sending: as if it were everybody's."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tests.fleets.fleets import carried_out, law, small_data, small_model

from melisma.fleets.protocols import Order
from melisma.fleets.simulated import SimulatedLearners
from melisma.fleets.ways import Ways
from melisma.learning.parameters import Parameters
from melisma.learning.settings import Training
from melisma.learning.way import Way
from melisma.learning.wire import Wire
from melisma.system.options import Options

WAYS = [("fp32", "fp32"), ("int8", "int4"), ("bf16", "top-k 20 %"), ("int8", "int8")]
WIRES = [Wire.of(*way) for way in WAYS]
OPTIONS = Options(
    names=tuple(f"{down} {up}" for down, up in WAYS),
    size_bytes=np.array([8.0, 2.0, 3.0, 1.0]),
    value=np.ones(4),
)
LAW = law([0.01] * 4, [0.001] * 4, [0.8] * 4)


def after(
    cycles: int, wires: Sequence[Wire], options: Sequence[int]
) -> list[Parameters]:
    """Return each learner's update of the last cycle, all from the same model."""
    fleet = SimulatedLearners(
        [f"learner-{k}" for k in range(4)],
        LAW,
        model=small_model(),
        samples=small_data().train,
        # Batches are drawn in the order of arrival, which is another one here.
        training=Training(batch=4, rate=0.1, shuffle=False),
        seed=0,
        ways=Ways(each=[Way(wire) for wire in wires], options=OPTIONS),
    )
    for _ in range(cycles):
        orders = [
            Order(
                learner=k,
                samples=8,
                steps=2,
                rows=np.arange(8 * k, 8 * k + 8),
                option=m,
            )
            for k, m in enumerate(options)
        ]
        arrived = carried_out(fleet, orders, 30.0)
    found: list[Parameters] = [{}] * 4
    for updates in arrived:
        for row, report in enumerate(updates.reports):
            found[report.learner] = {n: t[row] for n, t in updates.parameters.items()}
    return found


@pytest.mark.parametrize("cycles", [1, 3])
def test_each_update_is_as_if_all_had_sent_that_way(cycles: int) -> None:
    mixed = after(cycles, WIRES, [0, 1, 2, 3])
    for k, wire in enumerate(WIRES):
        alone = after(cycles, [wire], [0] * 4)[k]
        for name, t in mixed[k].items():
            torch.testing.assert_close(t, alone[name], atol=1e-6, rtol=1e-5)


def test_a_cycle_takes_as_long_as_what_travels() -> None:
    fleet = SimulatedLearners(
        ["a", "b"],
        law([0.01] * 2, [0.001] * 2, [0.8] * 2),
        model=small_model(),
        samples=small_data().train,
        training=Training(batch=4),
        seed=0,
        ways=Ways(each=[Way(wire) for wire in WIRES], options=OPTIONS),
    )
    orders = [
        Order(learner=k, samples=10, steps=2, rows=np.arange(10), option=3 * k)
        for k in range(2)
    ]
    updates = carried_out(fleet, orders, 30.0)
    took = {r.learner: r.uploaded_s for u in updates for r in u.reports}
    # 0.01·2·10 to train, 0.001·10 for samples, and 0.8 s for models, or an eighth.
    assert took == pytest.approx({0: 0.2 + 0.01 + 0.8, 1: 0.2 + 0.01 + 0.1})
