"""Fig. 4 of the fog paper: L_i(w_i(t)), each device's own model on its own data."""

import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import numpy as np

from melisma.learning import Part, evaluate, loss_of, put
from melisma.maths import Floats


class WatchedDevices:
    """Simulated devices whose models are kept, as they are before each average."""

    def __init__(self, crew: Any) -> None:
        self._crew = crew
        #: Of each cycle and device; who did not train has the model it was given.
        self.models: list[list[Mapping[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._crew, name)

    async def start(
        self, parameters: Mapping[str, Any], slot: int, deadline_s: float
    ) -> Any:
        """Begin a cycle: every device is given this model."""
        self.models.append([parameters] * len(self._crew.learners))
        return await self._crew.start(parameters, slot, deadline_s)

    async def finish(self, deadline_s: float) -> AsyncIterator[Any]:
        """Yield the models of those that trained."""
        async for updates in self._crew.finish(deadline_s):
            for row, report in enumerate(updates.reports):
                self.models[-1][report.learner] = {
                    name: stack[row].clone()
                    for name, stack in updates.parameters.items()
                }
            yield updates


def local_losses(
    models: Sequence[Sequence[Mapping[str, Any]]], task: Any, own: Sequence[Part]
) -> Floats:
    """L_i(w_i) of each device i on its own samples; cycles × devices."""
    model, loss = copy.deepcopy(task.model), loss_of(task.training)

    def local(parameters: Mapping[str, Any], samples: Part) -> float:
        put(dict(parameters), model)
        return evaluate(model, samples, loss, ()).loss

    return np.array([list(map(local, cycle, own)) for cycle in models])
