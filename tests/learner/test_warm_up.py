"""A benchmark's warm-up on a device that is slowed down."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn

from melisma.learner.measuring import _throttled
from melisma.learner.throttle import Throttle
from melisma.learning.benchmark import time_training
from melisma.learning.samples import Arrays
from melisma.learning.settings import Training


@pytest.mark.parametrize("samples", [40, 400])
def test_only_the_last_batch_of_the_warm_up_is_slowed_down(samples: int) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    throttle = Throttle(samples_per_s=100.0, clock=lambda: now[0], sleep=sleep)
    # No more than these two is asked of a task and of a link.
    task: Any = SimpleNamespace(training=Training(batch=32))
    link: Any = SimpleNamespace(throttle=throttle)
    x = np.zeros((samples, 2), dtype=np.float32)
    data = Arrays({"x": x, "y": np.zeros(samples, dtype=np.int64)})
    line = time_training(
        nn.Linear(2, 2),
        data,
        task.training,
        sizes=[samples],
        repeats=3,
        clock=lambda: now[0],
        before_batch=_throttled(task, data, link),
    )
    # 100 samples/s: three passes, none of them twice, after 8 or 32 samples.
    last = {40: 8, 400: 32}[samples]
    assert now[0] == pytest.approx((3 * samples + last) / 100)
    assert line.rate == pytest.approx(100)
