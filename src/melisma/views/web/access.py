"""Authorisation: who may watch a run, and who may control it.

On loopback without tokens every request may watch. Otherwise a request needs a token
that names ``watch`` or ``control``; a join token's ``*`` does not suffice, since it is
for devices. To control always needs a token that names ``control``, or the secret in
the link that is printed at the start.
"""

import secrets

from aiohttp import web

from melisma.rpc.http import problem
from melisma.rpc.listener import Identify
from melisma.rpc.tokens import ANONYMOUS, Identity

WATCH, CONTROL = "watch", "control"


class Access:
    """Checks requests; ``secret`` lets its bearer control until this process ends."""

    def __init__(self) -> None:
        self.secret = secrets.token_urlsafe(32)
        self._also = {self.secret: Identity("dashboard", None, (WATCH, CONTROL))}
        self._identify: Identify

    def guard(self, identify: Identify) -> None:
        """Identify the senders of requests with ``identify``."""
        self._identify = identify

    def may_control(self, request: web.Request) -> bool:
        """Return whether a request may control; HTTP error if it may not even watch."""
        return CONTROL in self._watcher(request).patterns

    def check_watch(self, request: web.Request) -> None:
        """Raise an HTTP error unless the request may watch."""
        self._watcher(request)

    def check_control(self, request: web.Request) -> None:
        """Raise an HTTP error unless the request may control."""
        identity = self._watcher(request)
        if CONTROL in identity.patterns:
            return
        advice = "open the link that the orchestrator printed"
        if identity == ANONYMOUS:
            raise problem(web.HTTPUnauthorized, f"control needs a token: {advice}")
        raise problem(web.HTTPForbidden, f"this token may watch, not control: {advice}")

    def _watcher(self, request: web.Request) -> Identity:
        identity = self._identify(request, self._also)
        if identity != ANONYMOUS and not {WATCH, CONTROL} & set(identity.patterns):
            raise problem(
                web.HTTPForbidden,
                "this token is for devices: watching needs one that names 'watch', "
                "made by `melisma token add --may-call watch`",
            )
        return identity
