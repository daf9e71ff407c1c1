"""What the cycles of a crew took, for its promises, and their place in a checkpoint."""

from collections.abc import AsyncIterator, Sequence

import numpy as np

from melisma.algorithms.log import ROUNDING
from melisma.algorithms.task import Plan, ScheduledTask
from melisma.fleets.protocols import NOT_THERE, Lost, Order, Report, Updates
from melisma.learning.parameters import Parameters, from_arrays, to_arrays
from melisma.system.promise import Promises, Took

#: Before the names of learners in a checkpoint; no module of a model is called so.
PREFIX = "promise:"
#: Least time that is compared, in seconds: less is rounding.
LEAST_S = 1e-6


class Observed:
    """Compares what comes of a plan with what was known, on its way to the merge.

    Compute and link are compared with the plan's law, or the whole with what is known
    of whole orders. A learner whose work was lost for another reason than time is not
    counted.
    """

    def __init__(
        self, plan: Plan, orders: Sequence[Order], task: ScheduledTask
    ) -> None:
        self._plan, self._task = plan, task
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
                    if not report.age:  # else it was late, and counted as that
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
        late_s = self._task.deadline_s * (1 + ROUNDING)
        late = report.halted or report.uploaded_s > late_s
        self._see(report.learner, self._ratios(report, order), late=late)

    def _ratios(self, report: Report, order: Order) -> tuple[float, float]:
        """What compute and link took, over what was known of what was done."""
        k, due = order.learner, order.samples * order.steps
        # Samples that are fewer than a batch make one batch of as many.
        most = min(order.samples, self._task.training.batch)
        passes = min(report.batches * most, due)
        compute_s = report.trained_s - report.downloaded_s
        idle_s = max(order.waits_s, report.waited_s)
        link_s = report.uploaded_s - compute_s - idle_s
        if law := self._plan.law:
            known_s = float(law.sample_s[k] * order.samples + law.fixed_s[k])
            return (
                _over(compute_s, float(law.step_s[k]) * passes),
                _over(link_s, known_s),
            )
        assert self._plan.known_s is not None
        whole_s = link_s + (compute_s * due / passes if passes else np.nan)
        ratio = _over(whole_s, float(self._plan.known_s[k]))
        return ratio, ratio

    def _see(self, learner: int, ratio: tuple[float, float], *, late: bool) -> None:
        self.learners.append(learner)
        self._ratio.append(ratio)
        self._late.append(late)


def _over(took_s: float, known_s: float) -> float:
    return took_s / known_s if known_s > LEAST_S else np.nan


def stored(promises: Promises) -> Parameters:
    """Return what is known of learners as tensors of a checkpoint."""
    return from_arrays({PREFIX + name: v for name, v in promises.state().items()})


def restore(promises: Promises, saved: Parameters) -> None:
    """Go on with what a checkpoint knows of learners."""
    known = {name: saved[name] for name in saved if name.startswith(PREFIX)}
    promises.restore(
        {name.removeprefix(PREFIX): v for name, v in to_arrays(known).items()}
    )
