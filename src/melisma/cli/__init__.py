"""The command line, a file per group of commands.

Results go to standard output, progress and errors to standard error. What is wrong with
the input is one line and exit code 2. What needs torch is imported by the command that
needs it, after its job was read: --help and a typo answer at once.
"""

import re
import sys
import tempfile
import traceback
from typing import Annotated, Any

import typer

from melisma.cli import (
    comparing,
    costs,
    doctor,
    learner,
    papers,
    resuming,
    schemes,
    tokens,
    training,
    version,
    views,
)
from melisma.cli.help import Command, Group
from melisma.cli.output import STOPPED, note, stop
from melisma.errors import AccessError, MelismaError, UnverifiedError
from melisma.registry import where_failed

__all__ = ["app", "main"]

#: Exit code of one that is not let in: trying again is of no use (as in sysexits.h).
NO_ACCESS = 77
#: Exit code where somebody else than the server answers, which may pass (likewise).
UNVERIFIED = 76

#: Commands by the heading that `melisma --help` shows them under.
_SECTIONS: dict[str, dict[str, Any]] = {
    "Train": {
        "simulate": training.simulate,
        "run": training.run,
        "testbed": training.run_on_testbed,
        "serve": training.serve,
        "resume": resuming.resume,
    },
    "Devices": {
        "join": learner.join,
        "benchmark": learner.benchmark,
        "doctor": doctor.doctor,
        "costs": costs.costs,
        "token": tokens.app,
    },
    "Results": {
        "report": views.report,
        "runs": views.runs,
        "dashboard": views.dashboard,
        "export": views.export,
    },
    "Schemes": {
        "schemes": schemes.schemes,
        "compare": comparing.compare,
        "papers": papers.app,
    },
    "Other": {"version": version.version},
}

app = typer.Typer(
    cls=Group,
    help="Train one model on many unlike devices by a deadline.\n\n"
    "A job is a TOML file: what is trained, on which learners, by which deadline "
    "(docs/jobs.md). `melisma simulate` and `melisma run` have a demo without one.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",  # `help` escapes for it
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        version.version()
        raise typer.Exit


@app.callback()
def _options(
    shown: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            is_eager=True,
            callback=_print_version,
        ),
    ] = False,
) -> None:
    """Options of all commands; the help is the app's."""


for _section, _commands in _SECTIONS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_section)
        else:
            app.command(_name, cls=Command, rich_help_panel=_section)(_command)

#: What typer raises for words that are no command line; it has moved between packages.
_UsageError: Any = typer.BadParameter.__mro__[1]


def main() -> None:
    """Run the command line; bad input is one line and exit code 2, no access 77.

    76 if who answers has not proved to be the server. Of what was not
    foreseen, code 1, the traceback is kept in a file. Stopped by Ctrl-C: 130.
    """
    try:
        code = app(prog_name="melisma", standalone_mode=False)
    except MelismaError as error:
        note(f"melisma: {error}", style="red")
        code = _code_of(error)
    except _UsageError as error:
        if message := _sentences(error.format_message()):
            # An option without its value is told before any command is known.
            command = error.ctx.command_path if error.ctx else "melisma"
            hint = f"See `{command} --help`."
            note(f"melisma: {message} {hint}", style="red")
        code = error.exit_code
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        note(
            f"melisma: {missing} is not installed, which this needs: "
            f"{sys.executable} -m pip install {missing}",
            style="red",
        )
        code = 2
    except Exception as error:  # the edge: people are shown a line, not a stack
        note(
            f"melisma: {where_failed(error)}. This was not foreseen; its traceback is "
            f"in {_kept_traceback()}",
            style="red",
        )
        code = 1
    if code == STOPPED:
        stop()
    sys.exit(code)


def _kept_traceback() -> str:
    """Write the traceback of the exception at hand to a file; return where that is."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="melisma-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        traceback.print_exc(file=file)
    return file.name


def _code_of(error: MelismaError) -> int:
    if isinstance(error, UnverifiedError):
        return UNVERIFIED
    return NO_ACCESS if isinstance(error, AccessError) else 2


def _sentences(message: str) -> str:
    """Return a usage error in one line, without what typer and click both append."""
    message = " ".join(message.split())
    message = re.sub(r"( Did you mean [^?]*\?)\1", r"\1", message)
    return message if message[-1:] in (".", "?", "") else f"{message}."
