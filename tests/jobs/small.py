"""The demo with a tenth of its work, for tests of anything but how well it learns."""

from collections.abc import Iterable
from typing import Any

import msgspec

from melisma.jobs.schema import DEMO_LEARNERS, Job, LearnersTable
from melisma.units import SamplesPerSecond


def slower(learners: Iterable[LearnersTable]) -> tuple[LearnersTable, ...]:
    """The same learners at a tenth of their rates."""
    return tuple(
        msgspec.structs.replace(group, rate=SamplesPerSecond(group.rate / 10))
        for group in learners
        if group.rate is not None
    )


#: A cycle has as many passes as ever, over a tenth of the samples.
SMALL: dict[str, Any] = {"samples": 400, "learners": slower(DEMO_LEARNERS)}


def small(**changes: Any) -> Job:
    return Job(**(SMALL | changes))
