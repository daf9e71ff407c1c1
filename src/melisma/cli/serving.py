"""An orchestrator at the command line: how devices join it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from melisma.cli.output import json_line, note

if TYPE_CHECKING:
    from melisma.bundles.bundle import Bundle
    from melisma.jobs.schema import Job
    from melisma.rpc import Server
    from melisma.runs.records import Record


def orchestrate(
    job: "Job",
    folder: Path,
    watch: "Callable[[Record], None]",
    learners: int,
    host: str,
    port: int,
    as_json: bool,
    bundle: "Bundle | None" = None,
) -> "list[Record]":
    """Train with the learners that join, and print how they do."""
    from melisma.launch.serve import orchestrate as train

    links: list[str] = []

    def announce(server: "Server") -> None:
        join = server.join_string()
        if as_json:
            code = {"bundle": bundle.hash} if bundle else {}
            json_line({"join": join, "dashboard": links[0]} | code)
            return
        note(f"Dashboard: {links[0]}")
        trust = ""
        if bundle:
            note(f"Bundle: {', '.join(bundle.files)}")
            trust = f" --trust {bundle.hash}"
        note(f"Join with: {join_command(join)}{trust}")

    return train(
        job,
        folder,
        learners=learners,
        watch=watch,
        ready=announce,
        show=links.append,
        host=host,
        port=port,
        bundle=bundle,
        say=lambda text: None,  # announced above
    )


def join_command(join: str) -> str:
    """Return the command with which a device joins; other users do not see a token."""
    from melisma.rpc.address import Address

    if Address.of(join).token is None:
        return f"melisma join '{join}'"
    return f"MELISMA_JOIN='{join}' melisma join"
