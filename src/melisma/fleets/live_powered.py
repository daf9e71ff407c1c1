"""Live workers of coded training that have batteries and share channels."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from melisma.fleets.judge import wrong_charge
from melisma.fleets.live_air import AirServer
from melisma.fleets.live_coded import LiveSession, LiveWorkers
from melisma.fleets.messages import Budget, Charge, Gradient
from melisma.fleets.sums import Energy, Work
from melisma.learning.parameters import Parameters
from melisma.learning.tensors import from_array, to_array

#: Of what a checkpoint has of each worker.
PREFIX = "transmission/"


class LivePoweredWorkers(LiveWorkers):
    """Workers whose last word on their batteries is kept, also by checkpoints.

    A worker that was restarted begins with the charge that it last reported.
    """

    def __init__(self, *args: Any, air: AirServer, samples: int, **options: Any):
        """``samples`` are those of a cycle."""
        super().__init__(*args, **options)
        self._air, self._samples = air, samples
        self._charges: dict[str, Charge] = {}
        self._before: dict[str, Charge] = {}

    def session(self, parameters: Parameters, deadline_s: float) -> LiveSession:
        """Begin a cycle on the channels."""
        session = super().session(parameters, deadline_s)
        law = self._roster.law(self._served.task, self.learners)
        self._air.begin(self._served.cycle, self.learners, law, self._samples)
        self._before = dict(self._charges)
        return session

    def budget(self, work: Work) -> Budget | None:
        """Return what a worker's battery is to know."""
        known = self._charges.get(self.learners[work.worker])
        start_j = known.battery_j if known else self._air.power.full_j
        return self._air.budget(work, start_j)

    def wrong(self, work: Work, gradient: Gradient) -> str:
        """Judge what a worker says of its battery, and keep it if it can be."""
        if reason := wrong_charge(gradient.charge, self._air.power.battery_j):
            return reason
        assert gradient.charge is not None
        self._charges[self.learners[work.worker]] = gradient.charge
        return ""

    def over(self, work: Work, cycle: int) -> None:
        """An answer is there, or will not come."""
        if work.worker < len(self.learners):
            self._air.over(self.learners[work.worker], cycle)

    def energy(self) -> Sequence[Energy]:
        """Return what those who answered have spent since they answered before."""
        rows = []
        for w, name in enumerate(self.learners):
            now, before = self._charges.get(name), self._before.get(name)
            if now is None or now is before:
                continue
            turn = self._air.turns[name]

            def since(
                kind: str, now: Charge = now, before: Charge | None = before
            ) -> float:
                same = before is not None and before.life == now.life
                past: float = getattr(before, kind) if same else 0.0
                return float(getattr(now, kind)) - past

            kinds = ("harvested_j", "stored_j", "computing_j", "sending_j")
            rows.append(
                Energy(
                    worker=w,
                    battery_j=now.battery_j,
                    lowest_j=now.lowest_j,
                    waited_s=turn.waited_s,
                    waiting=1.0,
                    owed=self._air.owed[name],
                    **{kind: since(kind) for kind in kinds},
                )
            )
        return rows

    def state(self) -> Parameters:
        """Return batteries and what is owed, for a checkpoint."""
        return {
            PREFIX + name: from_array("float64", self._row(name).view(np.uint8))
            for name in self._charges
        }

    def _row(self, name: str) -> Any:
        charge = self._charges[name]
        kinds = [getattr(charge, kind) for kind in charge.__struct_fields__]
        return np.array([*kinds, self._air.owed.get(name, 0.0)], dtype=np.float64)

    def restore(self, saved: Parameters) -> None:
        """Restore them from a checkpoint."""
        for key, tensor in saved.items():
            if key.startswith(PREFIX):
                *charge, owed = to_array(tensor)[1].tolist()
                name, kinds = key.removeprefix(PREFIX), Charge.__struct_fields__
                self._charges[name] = Charge(**dict(zip(kinds, charge, strict=True)))
                self._air.owed[name] = owed
