"""A run as an object: finished, cut short or under way."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from melisma.errors import ConfigError, DataError
from melisma.jobs.files import load
from melisma.jobs.schema import Job, tasks_of
from melisma.runs import records as rows
from melisma.runs.files import CONFIG, MODEL, RECORDS
from melisma.runs.records import Evaluated, Record, Refused, Stopped
from melisma.views import display, ledger, notebook
from melisma.views.document import CUT_SHORT, FINISHED, RUNNING, folders_of
from melisma.views.history import History, history
from melisma.views.ledger import LearnerCycle
from melisma.views.summary import progress, summary

if TYPE_CHECKING:
    from pandas import DataFrame

    from melisma.learning.parameters import Model, Parameters

Event = TypeVar("Event", bound=Record)


class Run:
    """One run: read from its folder, or kept in memory by a simulation without one."""

    def __init__(
        self,
        job: Job,
        folder: Path | None = None,
        *,
        records: Sequence[Record] = (),
        models: "Mapping[str, Parameters] | None" = None,
    ) -> None:
        self.job, self.folder = job, folder
        self.cell = 0  #: of a notebook, which shows this run already; 0: none
        self._records, self._models = list(records), models or {}

    @property
    def tasks(self) -> dict[str, "Run"]:
        """Return the run of each task by its name; of a single task, this run."""
        if not self.job.tasks:
            return {self.job.name: self}
        return {job.name: self._task(job) for job in tasks_of(self.job)}

    def _task(self, job: Job) -> "Run":
        if self.folder:
            return Run(job, self.folder / job.name)
        own = [record for record in self._records if record.task == job.name]
        return Run(job, records=own, models=self._models)

    @property
    def state(self) -> str:
        """Return "finished", "running" or "cut short"."""
        if self.folder is not None:
            return summary(self.folder).state
        ended = all(
            task.events(Refused)
            or task.events(Stopped)
            or len(task.events(Evaluated)) == task.job.cycles
            for task in self.tasks.values()
        )
        return FINISHED if ended else CUT_SHORT

    @property
    def records(self) -> list[Record]:
        """Return all records so far, in the order in which they were written."""
        if self.folder is None:
            return self._records
        if self.job.tasks:
            return [r for task in self.tasks.values() for r in task.records]
        path = self.folder / RECORDS
        return rows.read(path) if path.is_file() else []

    @property
    def progress(self) -> list[Record]:
        """Return the few records that say how far the run is; in memory, all."""
        if self.folder is None:
            return self._records
        return [
            r
            for place in folders_of(self.job, self.folder)
            for r in progress(place / RECORDS)
        ]

    def events(self, kind: type[Event]) -> list[Event]:
        """Return the records of one kind: ``run.events(mel.Dropped)``."""
        return [record for record in self.records if isinstance(record, kind)]

    @property
    def history(self) -> History:
        """Return the figures of all learners together, cycle by cycle.

        With several tasks each has its own history: ``run.tasks[name].history``.
        """
        self._check_single("history")
        return history(self.records)

    @property
    def learner_cycles(self) -> list[LearnerCycle]:
        """Return a row for each learner and cycle."""
        return ledger.learner_cycles(self.records)

    @property
    def parameters(self) -> "Parameters":
        """Return the trained parameters; DataError if the run has not ended."""
        from melisma.learning import parameters

        self._check_single("model")
        if self.job.name in self._models:
            return self._models[self.job.name]
        if self.folder is None or not (self.folder / MODEL).is_file():
            raise DataError(f"{self} has no model yet: it has not ended")
        return parameters.load(self.folder / MODEL)

    @property
    def model(self) -> "Model":
        """Return the trained model; DataError if the run has not ended."""
        from melisma.jobs.building import given_task
        from melisma.learning.parameters import put

        model = given_task(self.job).build(self.job.seed)
        put(self.parameters, model)
        return model

    def to_pandas(self) -> "DataFrame":
        """Return a row for each learner and cycle; needs the extra ``pandas``."""
        try:
            from pandas import DataFrame
        except ModuleNotFoundError as error:
            raise ConfigError(
                "pandas is not installed: pip install 'melisma[pandas]'"
            ) from error
        fields = LearnerCycle.__struct_fields__
        by_task = {name: run.learner_cycles for name, run in self.tasks.items()}
        facts: list[dict[str, Any]] = [
            {"task": name, **{field: getattr(row, field) for field in fields}}
            for name, table in by_task.items()
            for row in table
        ]
        return DataFrame(facts, columns=["task", *fields])

    def report(self) -> Path:
        """Write the report into the run's folder; return the page's path."""
        from melisma import views

        if self.folder is None:
            raise ConfigError("a run without a folder has no report: give runs=FOLDER")
        return views.write(self.folder)

    def _check_single(self, what: str) -> None:
        if self.job.tasks:
            names = ", ".join(self.tasks)
            raise ConfigError(
                f"each of several tasks has a {what} of its own: "
                f"run.tasks[NAME].{what}, of {names}"
            )

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else str(self.folder)
        return f"<Run {self.job.name!r} by {self.job.scheme}, {where}>"

    def _repr_html_(self) -> str:
        """Return the run as a notebook shows it: a table and a chart, as of now."""
        histories = {name: history(task.progress) for name, task in self.tasks.items()}
        return notebook.html(self.job, self.folder, self.state, histories)

    def _ipython_display_(self) -> None:
        """Show a run that is under way in a notebook, up to date until it is over.

        NotImplementedError leaves every other to `_repr_html_` or `repr`.
        """
        shell = display.notebook()
        if shell and shell.execution_count == self.cell:
            self.cell = 0  # asked again, it is shown again
        elif shell and self.state == RUNNING:
            over = lambda: self.state != RUNNING  # noqa: E731
            display.Output(self._repr_html_, repr(self), over)
        else:
            raise NotImplementedError


def open(folder: Path | str) -> Run:
    """Open the run in ``folder``; DataError if there is none."""
    folder = Path(folder).expanduser()
    if not (folder / CONFIG).is_file():
        raise DataError(f"{folder} is no run: there is no {CONFIG} in it")
    return Run(load(folder / CONFIG), folder)
