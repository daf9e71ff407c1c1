"""What runs on a device: training, gradients, slots, delivery, its own speed."""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.learner.background import Activity

__all__ = ["Activity"]

offer(globals(), background="Activity")
