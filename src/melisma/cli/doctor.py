"""`melisma doctor`: what this machine has for training, and what to change."""

from pathlib import Path
from typing import Annotated

import typer

from melisma.cli.learner import token_of
from melisma.cli.options import Json, Token, TokenFile
from melisma.cli.output import console, json_line, line

#: How each level is shown at a terminal.
_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


def doctor(
    address: Annotated[
        str | None,
        typer.Argument(
            envvar="MELISMA_JOIN",
            metavar="[HOST]",
            help="An orchestrator's HOST:PORT or join string: whether it can be "
            "reached, whether certificate and token are right, and the link's speed. "
            "Nothing joins.",
        ),
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option(
            "--job", metavar="JOB.toml", help="A job: whether it can be trained here."
        ),
    ] = None,
    token: Token = None,
    token_file: TokenFile = None,
    runs: Annotated[
        Path, typer.Option("--runs", metavar="DIR", help="Folder that runs go to.")
    ] = Path("runs"),
    port: Annotated[
        int,
        typer.Option(
            min=1, max=65535, metavar="PORT", help="Port that a server would take."
        ),
    ] = 8765,
    as_json: Json = False,
) -> None:
    """Check this machine, and the way to an orchestrator; say what to change.

    A line for each thing: ok, note (training works, and would be better otherwise) or
    problem (it does not), with what to do. Exit code 1 if there is a problem. Takes
    some seconds (docs/doctor.md).
    """
    from melisma import __version__
    from melisma.doctor import Level, examine, verdict

    token = token_of(token, token_file)
    findings = []
    for finding in examine(address, token=token, job=job, runs=runs, port=port):
        findings.append(finding)
        if not as_json:
            _show(finding.level, finding.check, finding.says, finding.fix)
    sound = all(finding.level != Level.PROBLEM for finding in findings)
    if as_json:
        told = {"melisma": __version__, "ok": sound, "findings": findings}
        json_line(told)
    else:
        line(verdict(findings))
    raise typer.Exit(0 if sound else 1)


def _show(level: str, check: str, says: str, fix: str) -> None:
    from rich.text import Text

    text = Text(f"{level:8}", style=_STYLES[level])
    text.append(f"{check:13}", style="default not bold")
    text.append(f"{says}. {_sentence(fix)}" if fix else says, style="default")
    console().print(text, soft_wrap=True)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(("?", "…")) else ".")
