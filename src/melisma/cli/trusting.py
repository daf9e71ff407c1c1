"""Asking a device's owner at a terminal whether to run code of the orchestrator."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from melisma.cli.output import line, note

if TYPE_CHECKING:
    from melisma.bundles.bundle import Bundle


def asker(*, silent: bool) -> "Callable[[Bundle, Path], bool] | None":
    """Return what asks the owner; None if ``silent``, or where nobody can answer."""
    streams = (sys.stdin, sys.stdout)  # None where they are closed
    there = all(stream is not None and stream.isatty() for stream in streams)
    return ask if there and not silent else None


def ask(bundle: "Bundle", folder: Path) -> bool:
    """Show all files of a bundle, and return whether the owner said yes."""
    encoding = sys.stdout.encoding
    for text in shown(bundle):
        line(text.encode(encoding, "backslashreplace").decode(encoding))
    note(
        "The orchestrator asks this device to run the code above, which also lies in "
        f"{folder}: bundle {bundle.hash}"
    )
    note("Trust it, until this learner ends? Type yes to run it; all else refuses it:")
    yes = typed() == "yes"
    note("Trusted." if yes else "Refused; nothing of it runs here.")
    return yes


def shown(bundle: "Bundle") -> Iterator[str]:
    """Yield the lines of all files, numbered: no text can pass for one of ours.

    What a terminal would not print, or would obey, is written as its code.
    """
    for name, content in bundle.files.items():
        yield f"{name}, {len(content):,} bytes"
        for number, text in enumerate(bundle.text(name).splitlines(), start=1):
            yield f"{number:5} | {''.join(map(_visible, text))}"


def _visible(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    return character.encode("unicode_escape").decode()


def typed(terminal: int = 0) -> str:
    """Return the line that is typed from now on; "" if the terminal is gone.

    Not by sys.stdin, whose lock a process that exits meanwhile would wait for.
    """
    import termios

    try:
        termios.tcflush(terminal, termios.TCIFLUSH)
        return os.read(terminal, 1 << 10).decode(errors="replace").strip()
    except (OSError, termios.error):
        return ""
