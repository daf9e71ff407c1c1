"""From a job to a simulated run: virtual time, real gradients."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from melisma import __version__
from melisma.algorithms.control import Control
from melisma.jobs.families import family_of
from melisma.jobs.files import dump
from melisma.jobs.schema import Job, tasks_of
from melisma.launch.loops import blocking, stoppable
from melisma.learning.settings import HERE, Hardware
from melisma.runs.files import BUNDLE
from melisma.runs.records import Record
from melisma.runs.start import started, write_start
from melisma.runs.store import CONFIG, START, RunWriter, Watch, ignore

#: In run.toml, of runs on the virtual clock.
SIMULATION = "simulation"


class Trainable(Protocol):
    """A job with data loaded, models built and delay laws computed."""

    async def train(
        self, runs: Mapping[str, RunWriter], control: Control | None = None
    ) -> None:
        """Train every task, and record it in the run of its name."""


@dataclass(frozen=True, slots=True, eq=False)
class Simulation:
    """A job of any family, made ready to simulate."""

    job: Job
    built: Any  #: as its family builds it; a `Trainable`
    hardware: Hardware

    def how(self) -> str:
        """Say how learners are trained, where there is a choice, and why so."""
        crews = getattr(self.built, "crews", None) or [self.built.crew]
        ways = [crew.how() for crew in crews if hasattr(crew, "how")]
        return "; ".join(dict.fromkeys(ways))

    def run(
        self,
        folder: Path | None = None,
        watch: Watch = ignore,
        control: Control | None = None,
    ) -> list[Record]:
        """Run on the virtual clock; return all records, as `train` does it."""
        runs = self.train(folder, watch, control)
        return [record for run in runs.values() for record in run.records]

    def train(
        self,
        folder: Path | None = None,
        watch: Watch = ignore,
        control: Control | None = None,
    ) -> dict[str, RunWriter]:
        """Run on the virtual clock; return the runs by the tasks' names.

        With a ``folder``, which must exist, the run is written there, and goes on from
        the checkpoint in it if there is one.
        """
        start = {"engine": SIMULATION, **chosen(self.hardware)}
        writing = opened(self.job, folder, start, watch, seldom=True)
        control = control or Control()
        with writing as runs, stoppable():
            blocking(self.built.train(runs, control), control.stop)
        return runs


def build(job: Job, hardware: Hardware = HERE) -> Simulation:
    """Make a job ready to simulate; ConfigError or DataError if it is not valid."""
    family = family_of(job)
    job = family.checked(job)
    return Simulation(job, family.builder.simulated(job, hardware), hardware)


def simulate(job: Job) -> list[Record]:
    """Run a job of any family and return its records, leaving nothing on disk."""
    return build(job).run()


@contextmanager
def opened(
    job: Job,
    folder: Path | None,
    start: dict[str, Any],
    watch: Watch = ignore,
    *,
    seldom: bool = False,
) -> Iterator[dict[str, RunWriter]]:
    """Open the runs of a job, new or resumed: one for each task, by its name."""
    start = {"melisma": __version__} | start
    with ExitStack() as stack:
        runs = {}
        if folder and job.tasks:
            started(folder)
            stack.enter_context(_kept_with_its_runs(folder))
        for task in tasks_of(job):
            own = folder / task.name if folder and job.tasks else folder
            runs[task.name] = stack.enter_context(
                RunWriter.open(own, dump(task), start=start, watch=watch, seldom=seldom)
            )
        if folder and job.tasks:
            write_start(folder, dump(job), start)
        yield runs


@contextmanager
def _kept_with_its_runs(folder: Path) -> Iterator[None]:
    """Remove the configuration of several tasks again if none of their runs is left."""
    try:
        yield
    finally:
        if {path.name for path in folder.iterdir()} - {BUNDLE} == {CONFIG, START}:
            (folder / CONFIG).unlink()
            (folder / START).unlink()


def chosen(hardware: Hardware) -> dict[str, Any]:
    """Return the settings that results depend on: threads do not change them."""
    return {"device": hardware.device, "precision": hardware.precision.value}
