"""A run that is under way, shown by the notebook's cell that started it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from melisma.algorithms.control import Control, Intent
from melisma.errors import MelismaError
from melisma.jobs.schema import Job, tasks_of
from melisma.runs.records import (
    Allocated,
    Evaluated,
    Metrics,
    Record,
    Refused,
    Stopped,
    Waited,
)
from melisma.runs.store import Watch, ignore
from melisma.views import notebook
from melisma.views.display import Output
from melisma.views.display import notebook as in_notebook
from melisma.views.document import FINISHED, RUNNING
from melisma.views.history import history
from melisma.views.run import Run

#: How a run ended, on its last table.
FAILED = "failed"


class Showing:
    """While it is entered, a notebook shows a run; its ``watch`` takes the records.

    Whoever watches the run himself shows it himself: then it is his ``watch``. It is
    `ignore` where there is no notebook. ``past`` returns the records of a run that is
    resumed.
    """

    def __init__(
        self,
        job: Job,
        folder: Path | None,
        watch: Watch | None,
        control: Control,
        past: Callable[[], Sequence[Record]] = list,
    ) -> None:
        self.watch: Watch = watch or ignore
        self._is_shown = watch is None and bool(in_notebook())
        self._job, self._folder, self._control = job, folder, control
        self._output: Output | None = None
        self._state, self._waits = RUNNING, ""
        self._kept = list[Record]()
        self._done: dict[str, int] = {}  # last cycle of each task
        if self._is_shown:
            self.watch = self._take
        self._past = past

    def __enter__(self) -> Self:
        if self._is_shown:
            with suppress(MelismaError):  # what is damaged, the run itself will say
                for record in self._past():
                    self._take(record)
            run = Run(self._job, self._folder)
            self._output = Output(self._page, repr(run), over=lambda: False)
        return self

    def _take(self, record: Record) -> None:
        """Keep what the table is made of; a cycle done again replaces what followed."""
        match record:
            case Waited(cycle=cycle, reason=reason):
                self._waits = f"cycle {cycle} waits: {reason}"
            case Allocated():
                self._waits = ""
            case Evaluated(task=task, cycle=cycle):
                if cycle <= self._done.get(task, 0):
                    self._kept = [
                        kept
                        for kept in self._kept
                        if not isinstance(kept, Evaluated)
                        or kept.task != task
                        or kept.cycle < cycle
                    ]
                self._done[task] = cycle
                self._kept.append(record)
            case Metrics() | Refused() | Stopped():
                self._kept.append(record)

    def _page(self) -> str:
        kept, state = self._kept, self._state
        histories = {
            task.name: history([record for record in kept if record.task == task.name])
            for task in tasks_of(self._job)
        }
        note = self._note() if state == RUNNING else ""
        return notebook.html(self._job, self._folder, state, histories, note)

    def _note(self) -> str:
        """Say what a run waits for."""
        if self._control.intent == Intent.PAUSED:
            return "paused"
        gathering = self._control.gathering
        return gathering.line() if gathering and gathering.waiting else self._waits

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._output:
            ended = Run(self._job, records=self._kept).state
            is_failure = isinstance(error, Exception) and ended != FINISHED
            self._state = FAILED if is_failure else ended
            if self._folder and not self._folder.exists():
                self._folder = None
            self._output.close()

    def shown(self, run: Run) -> Run:
        """Return the run, which its cell does not show a second time."""
        if self._output:
            run.cell = self._output.cell
        return run
