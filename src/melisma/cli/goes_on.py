"""What a command that trains says of its run: its dashboard, how to go on with it."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from melisma.cli.output import note, stopped


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


def ray_flags(address: str | None, data: Path | None) -> str:
    """Return the flags of `resume` for a run on a Ray cluster; none without one."""
    if not address:
        return ""
    return shlex.join(["--address", address, *(["--data", str(data)] if data else [])])
