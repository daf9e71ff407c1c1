"""What a command that trains says of its run: its dashboard, how to go on with it."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from melisma.cli.output import note, stopped
from melisma.cli.progress import run_bar

if TYPE_CHECKING:
    from melisma.cli.progress import Shown
    from melisma.jobs.schema import Job


def dashboard_note(quiet: bool) -> Callable[[str], None]:
    """Return what prints the dashboard's link, or nothing if ``quiet``."""

    def show(link: str) -> None:
        if not quiet:
            note(f"Dashboard: {link}")

    return show


@contextmanager
def resumable(folder: Path, flags: str, quiet: bool) -> Iterator[None]:
    """When the run is stopped, print the command that goes on with it.

    Stopped by Ctrl-C, or from the dashboard; a ``quiet`` run says the latter in its
    result alone.
    """
    from melisma.views.document import FINISHED
    from melisma.views.summary import summary

    command = f"melisma resume {shlex.quote(str(folder))} {flags}".rstrip()
    hint = f"Stopped. Go on with: {command}"
    try:
        yield
    except KeyboardInterrupt:
        stopped(hint)
        raise
    if not quiet and summary(folder).state != FINISHED:
        note(hint)


@contextmanager
def new_run(
    job: "Job", runs: Path, as_json: bool, flags: str = ""
) -> Iterator[tuple[Path, "Shown"]]:
    """Yield the folder of a run that begins, and what shows its records.

    With ``flags`` `resume` goes on with it, if it is stopped.
    """
    from melisma.runs.store import run_folder

    with (
        run_folder(runs, job.name) as folder,
        run_bar(job, as_json) as watch,
        resumable(folder, flags, as_json),
    ):
        yield folder, watch
