"""What commands print: results on standard output, all else on standard error.

No text is markup: names, paths and messages are printed as they are.
"""

import os
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Exit code of what was stopped by Ctrl-C, as shells have it.
STOPPED = 130
#: Columns of a table that goes to a file or a pipe: nothing is wrapped or cut there.
WIDE = 10_000


def line(text: str) -> None:
    """Print a line of the result."""
    print(text)


def note(text: str, style: str = "") -> None:
    """Print a line that is no result, above the progress bar if there is one."""
    console(stderr=True).print(text, style=style, soft_wrap=True)


_told = False


def stopped(text: str) -> None:
    """Print what a command that is stopped leaves behind."""
    global _told
    note(text)
    _told = True


def stop() -> NoReturn:
    """End this process, which was stopped by Ctrl-C, at once."""
    if not _told:
        note("Stopped.")
    end(STOPPED)


def end(code: int) -> NoReturn:
    """End this process, which has closed all that it opened.

    Taking torch's modules down would take a second of a core.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(code)


def json_line(value: object) -> None:
    """Print a value as a line of JSON, at once: the reader may wait for it."""
    import msgspec

    print(msgspec.json.encode(value).decode(), flush=True)


def show(table: "Table", title: str = "") -> None:
    """Print a table of the result, under its title."""
    if title:
        console().print(title, style="italic", soft_wrap=True)
    console().print(table)


@cache
def console(*, stderr: bool = False) -> "Console":
    """Return the console of one of the two streams."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        width=None if stream.isatty() else WIDE,
        markup=False,
        emoji=False,
        highlight=False,
    )


def known(value: float | None, digits: int) -> str:
    """Return a figure as text, a dash where it is not known."""
    return "–" if value is None else f"{value:,.{digits}f}"
