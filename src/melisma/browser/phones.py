"""The page on which a phone becomes a learner, the link to it, and its token.

GET  /join                      the page; no data, so no token
GET  /join/static/…             its modules: the wire, the engine, the learner
GET  /join/check                what the link's bearer would take part in
GET  /join/ca                   the authority to install, if there is one of its own

A link carries a token of its own: whoever has it may do what a learner does in a
browser (`CALLS`), under any free name, until it expires; neither watch nor control.
"""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from melisma.browser.qr import drawn
from melisma.errors import ConfigError
from melisma.fleets.messages import Outline, Shaped
from melisma.fleets.served import ServedTask
from melisma.jobs.schema import Job
from melisma.rpc import Server
from melisma.rpc.http import problem
from melisma.rpc.listener import Identify
from melisma.rpc.tokens import ANONYMOUS
from melisma.schemes import DECENTRALISED
from melisma.system.law import Mode

STATIC = Path(__file__).parent / "static"
#: All that a learner in a browser calls (`fleets.messages`).
CALLS = (
    *("away", "back", "correction", "filler", "frozen", "outline", "parameters"),
    "shards",
)
#: How long a link lets in, and the file of its token.
HOURS_12, TOKEN_FILE = 12 * 3600.0, "phones-token"

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; worker-src 'self'; "
    "script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
#: Types that the machine's own table may lack, or have otherwise.
TYPES = {".js": "text/javascript", ".mjs": "text/javascript"}
TYPES |= {".wasm": "application/wasm", ".css": "text/css", ".html": "text/html"}


class About(msgspec.Struct, frozen=True):
    """What the page tells its reader before joining."""

    job: str
    federated: bool  #: learners train on their own data, which stays with them
    private: bool  #: how fast they are stays with them too
    samples: dict[str, dict[str, Shaped]]  #: by task: the arrays of a sample


class Phones:
    """Lets phones join a server: routes of its port, and a link to them.

    With ``required``, a job that they cannot run is refused; else `why` says why there
    is no link. ``url`` is where they reach the server, if it is behind a proxy.
    """

    def __init__(
        self, *, lifetime_s: float = HOURS_12, required: bool = False, url: str = ""
    ) -> None:
        self.link, self.why = "", ""
        self.authority: Path | None = None
        self._lifetime_s, self._required = lifetime_s, required
        self._url = url.rstrip("/")
        self._identify: Identify
        self._about: About

    def check(self, job: Job, served: Iterable[ServedTask]) -> None:
        """Find out whether phones can run a job; ConfigError if they have to."""
        try:
            outlines = outlines_of(served)
        except ConfigError as error:
            if self._required:
                raise ConfigError(f"--phones: {error}") from None
            self.why = str(error)
            return
        self._about = About(
            job=job.name,
            federated=job.mode == Mode.FEDERATED,
            private=job.scheme in DECENTRALISED,
            samples={name: outline.fields for name, outline in outlines.items()},
        )

    def attend(self, server: Server) -> None:
        """Make the link with a token of this server's, unless phones cannot run it."""
        self.authority = server.authority
        if self.why:
            return
        token = server.shared_token(TOKEN_FILE, CALLS, self._lifetime_s)
        secret = f"#token={token}" if token else ""
        self.link = f"{self._url or server.url}/join{secret}"

    @property
    def elsewhere(self) -> bool:
        """Whether phones reach the server at an address of its own."""
        return bool(self._url)

    @property
    def proxy(self) -> str:
        """Return the URL of what ends TLS for this server alone, if anything does."""
        url = urlsplit(self._url)
        alone = url.scheme == "https" and url.hostname and not url.path
        return self._url if alone else ""

    @property
    def ca_link(self) -> str:
        """Return where phones get the authority that they install."""
        return f"{self.link.partition('#')[0]}/ca"

    def drawn(self) -> str:
        """Return the link as a QR code of half blocks."""
        return drawn(self.link)

    def routes(self, app: web.Application, identify: Identify) -> None:
        """Add the routes to a server's port."""
        self._identify = identify
        app.on_response_prepare.append(_protect)
        app.router.add_get("/join", _page)
        app.router.add_get("/join/check", self._check)
        app.router.add_get("/join/ca", self._authority)
        app.router.add_static("/join/static", STATIC)

    async def _check(self, request: web.Request) -> web.StreamResponse:
        identity = self._identify(request)
        if identity != ANONYMOUS and not all(map(identity.may_call, CALLS)):
            raise problem(
                web.HTTPForbidden,
                "this link's token may not train: ask for the link that "
                "`melisma serve` prints for phones",
            )
        if self.why:
            raise problem(web.HTTPConflict, f"phones cannot run this job: {self.why}")
        about = msgspec.to_builtins(self._about)
        body = msgspec.json.encode(about | {"name": identity.name})
        return web.Response(body=body, content_type="application/json")

    async def _authority(self, request: web.Request) -> web.StreamResponse:
        if self.authority is None:
            raise problem(
                web.HTTPNotFound,
                "this server has no authority of its own: start it with --local-ca",
            )
        return web.Response(
            body=self.authority.read_bytes(),
            content_type="application/x-x509-ca-cert",
            headers={"Content-Disposition": 'attachment; filename="melisma-ca.crt"'},
        )


def outlines_of(served: Iterable[ServedTask]) -> dict[str, Outline]:
    """Return what browsers train, by task; ConfigError naming what they cannot do."""
    outlines = {}
    for task in served:
        if task.outline is None:
            raise ConfigError(f"task {task.task!r} has no outline of its model")
        outlines[task.task] = task.outline()
    return outlines


async def _page(request: web.Request) -> web.StreamResponse:
    return web.FileResponse(STATIC / "join" / "index.html")


async def _protect(request: web.Request, response: web.StreamResponse) -> None:
    """Set headers: browsers load only our own files, and store no data."""
    if not request.path.startswith("/join"):
        return
    response.headers.update(HEADERS)
    is_data = request.path == "/join/check"
    response.headers["Cache-Control"] = "no-store" if is_data else "no-cache"
    if request.path.startswith("/join/static/") and response.status == 200:
        suffix = Path(request.path).suffix
        response.headers["Content-Type"] = TYPES.get(suffix, "application/octet-stream")
