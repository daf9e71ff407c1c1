"""Carry out requests to control the live run."""

import math
from typing import Literal

import msgspec
from aiohttp import web

from melisma.algorithms.control import Intent
from melisma.rpc.http import problem
from melisma.views.document import Document
from melisma.views.web.live import Live

#: Reason in the records of a learner that was expelled here.
REASON = "sent away from the dashboard"


class Command(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a request to control the run."""

    action: Literal["pause", "resume", "stop", "expel", "deadline"]
    learner: str | None = None
    deadline_s: float | None = None


async def command_of(request: web.Request) -> Command:
    """Return the decoded request; an HTTP error if its body is not valid."""
    if request.content_type != "application/json":
        raise problem(
            web.HTTPUnsupportedMediaType, "send Content-Type: application/json"
        )
    try:
        return msgspec.json.decode(await request.read(), type=Command)
    except (ValueError, RecursionError) as error:
        raise problem(web.HTTPBadRequest, f"the body is not valid: {error}") from None


def steer(command: Command, live: Live | None, document: Document | None) -> None:
    """Carry out a request; an HTTP error if the run does not allow it."""
    if live is None or live.over or document is None:
        raise problem(web.HTTPConflict, "no run is under way here")
    control = live.control
    if control.intent == Intent.STOPPING and command.action != "expel":
        raise problem(web.HTTPConflict, "the run stops after this cycle")
    match command.action:
        case "pause":
            control.pause()
        case "resume":
            control.resume()
        case "stop":
            control.stop()
        case "expel":
            _expel(command.learner, live, document)
        case "deadline":
            _deadline(command.deadline_s, live)


def _expel(name: str | None, live: Live, document: Document) -> None:
    if not name:
        raise problem(web.HTTPBadRequest, "which learner? give 'learner'")
    server = live.server
    if server is None or (
        name not in server.silences_s and name not in document.rows.learners
    ):
        raise problem(web.HTTPNotFound, f"there is no learner {name[:80]!r}")
    server.expel(name, REASON)
    live.control.expelled(name, REASON)


def _deadline(deadline_s: float | None, live: Live) -> None:
    if deadline_s is None or not 0 < deadline_s < math.inf:
        raise problem(
            web.HTTPBadRequest, f"deadline_s is {deadline_s}: give seconds above 0"
        )
    if live.fixed:
        raise problem(web.HTTPConflict, live.fixed)
    live.control.set_deadline(deadline_s)
