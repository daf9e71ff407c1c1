"""What a learner says when its memory does not suffice, so that it can go on."""

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from melisma.fleets.messages import ShortOfMemory
from melisma.learner.device import WarmTask
from melisma.learning.memory import is_short, largest_batch, release
from melisma.learning.samples import Samples

log = logging.getLogger("melisma.learner")


@contextmanager
def told_if_short(task: WarmTask, samples: Samples | None = None) -> Iterator[None]:
    """Raise ShortOfMemory in place of what torch raises when memory runs out.

    Where the block trains on ``samples``, it says what batch would fit: that is tried
    out, once a task.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_short(error):
            raise
        traceback.clear_frames(error.__traceback__)  # which hold what filled it
        reason = _reason(task, samples)
        log.warning("%s: %s", task.spec.task, reason)
        raise ShortOfMemory(reason) from None


def _reason(task: WarmTask, samples: Samples | None) -> str:
    if samples is None:
        release(task.model)
        return "out of memory, before a batch was trained: free some of it"
    if task.fits is None:
        task.fits = largest_batch(task.model, samples, task.training)
        release(task.model)
    batch = min(task.training.batch, len(samples))
    reason = f"out of memory with {batch} samples in a batch"
    if not task.fits:
        return f"{reason}, and with one alone: use a smaller model"
    return f"{reason}: [training] batch = {task.fits} would fit"
