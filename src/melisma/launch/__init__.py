"""From a job to a run under way: simulated, served, local processes, testbed."""

from typing import TYPE_CHECKING

from melisma.lazy import offer

if TYPE_CHECKING:
    from melisma.launch.costs import measure
    from melisma.launch.local import run_on_testbed
    from melisma.launch.simulate import build

__all__ = ["build", "measure", "run_on_testbed"]

offer(globals(), costs="measure", local="run_on_testbed", simulate="build")
