"""What the cycles of a crew took, for its promises, and their place in a checkpoint."""

from collections.abc import AsyncIterator, Sequence

import numpy as np

from melisma.algorithms.task import ScheduledTask
from melisma.fleets.protocols import NOT_THERE, Lost, Order, Report, Updates
from melisma.learning.parameters import Parameters, from_arrays, to_arrays
from melisma.system.law import DelayLaw
from melisma.system.promise import Promises, Took

#: Before the names of learners in a checkpoint; no module of a model is called so.
PREFIX = "promise:"
#: Least time that is compared, in seconds: less is rounding.
LEAST_S = 1e-6


class Observed:
    """Compares what comes of a cycle's orders with a law, on its way to the merge.

    A learner whose work was lost for another reason than time is not counted.
    """

    def __init__(
        self, law: DelayLaw, orders: Sequence[Order], task: ScheduledTask
    ) -> None:
        self._law, self._task = law, task
        self._orders = {order.learner: order for order in orders}
        self.learners: list[int] = []
        self._ratio: list[tuple[float, float]] = []
        self._late: list[bool] = []

    async def through(
        self, arriving: AsyncIterator[Updates | Lost]
    ) -> AsyncIterator[Updates | Lost]:
        """Yield what arrives."""
        async for updates in arriving:
            if isinstance(updates, Updates):
                for report in updates.reports:
                    self._arrived(report)
            elif updates.reason == NOT_THERE:
                self._see(updates.learner, (np.nan, np.nan), late=True)
            yield updates

    def took(self) -> Took:
        """Return what was seen, in the order of `learners`."""
        return Took(
            ratio=np.array(self._ratio).reshape(-1, 2).T,
            late=np.array(self._late, dtype=bool),
        )

    def _arrived(self, report: Report) -> None:
        order = self._orders[report.learner]
        passes = min(
            report.batches * self._task.training.batch, order.samples * order.steps
        )
        trained_s = report.trained_s - report.downloaded_s
        law, k = self._law, order.learner
        link_s = float(law.sample_s[k] * order.samples + law.fixed_s[k])
        compute_s = float(law.step_s[k]) * passes
        transferred_s = report.uploaded_s - trained_s - order.waits_s
        ratio = (
            trained_s / compute_s if compute_s > LEAST_S else np.nan,
            transferred_s / link_s if link_s > LEAST_S else np.nan,
        )
        late = report.halted or report.uploaded_s > self._task.deadline_s * (1 + 1e-9)
        self._see(report.learner, ratio, late=late)

    def _see(self, learner: int, ratio: tuple[float, float], *, late: bool) -> None:
        self.learners.append(learner)
        self._ratio.append(ratio)
        self._late.append(late)


def stored(promises: Promises) -> Parameters:
    """Return what is known of learners as tensors of a checkpoint."""
    return from_arrays({PREFIX + name: v for name, v in promises.state().items()})


def restore(promises: Promises, saved: Parameters) -> None:
    """Go on with what a checkpoint knows of learners."""
    known = {name: saved[name] for name in saved if name.startswith(PREFIX)}
    promises.restore(
        {name.removeprefix(PREFIX): v for name, v in to_arrays(known).items()}
    )
