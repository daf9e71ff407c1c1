"""Schemes side by side: sweeps over processes, trials, comparison and its report."""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.comparison.sweeps import (
        Engine,
        Parts,
        Tick,
        encoded,
        in_turn,
        over_processes,
    )

__all__ = ["Engine", "Parts", "Tick", "encoded", "in_turn", "over_processes"]

offer(globals(), sweeps="Engine Parts Tick encoded in_turn over_processes")
