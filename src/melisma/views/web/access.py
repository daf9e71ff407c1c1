"""Who may look, and who may steer.

On loopback without tokens everybody who reaches the port may look. Otherwise it takes a
token that names ``watch`` or ``control``: a join token's ``*`` is for devices, which
have no business here. To steer always takes a token that names ``control``, or the
secret of this start.
"""

import secrets

from aiohttp import web

from melisma.rpc.http import problem
from melisma.rpc.listener import Identify
from melisma.rpc.tokens import ANONYMOUS, Identity

WATCH, CONTROL = "watch", "control"


class Access:
    """Checks requests; ``secret`` lets its bearer steer, until this process ends."""

    def __init__(self) -> None:
        self.secret = secrets.token_urlsafe(32)
        self._also = {self.secret: Identity("dashboard", None, (WATCH, CONTROL))}
        self._identify: Identify

    def guard(self, identify: Identify) -> None:
        """Ask this one who sends a request."""
        self._identify = identify

    def may_control(self, request: web.Request) -> bool:
        """Return whether who asks may steer; an HTTP error if it may not even look."""
        return CONTROL in self._watcher(request).patterns

    def check_watch(self, request: web.Request) -> None:
        """Raise an HTTP error unless who asks may look."""
        self._watcher(request)

    def check_control(self, request: web.Request) -> None:
        """Raise an HTTP error unless who asks may steer."""
        identity = self._watcher(request)
        if CONTROL in identity.patterns:
            return
        advice = "open the link that the orchestrator printed"
        if identity == ANONYMOUS:
            raise problem(web.HTTPUnauthorized, f"to steer takes a token: {advice}")
        raise problem(web.HTTPForbidden, f"this token may look, not steer: {advice}")

    def _watcher(self, request: web.Request) -> Identity:
        identity = self._identify(request, self._also)
        if identity != ANONYMOUS and not {WATCH, CONTROL} & set(identity.patterns):
            raise problem(
                web.HTTPForbidden,
                "this token is a device's: to look takes one that names 'watch', as "
                "`melisma token add --may-call watch` makes",
            )
        return identity
