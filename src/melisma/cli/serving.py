"""An orchestrator at the command line: how devices reach and join it."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from melisma.cli.options import Host, Port, time_to_come
from melisma.cli.output import console, json_line, note
from melisma.errors import ConfigError

if TYPE_CHECKING:
    from melisma.browser.phones import Phones
    from melisma.bundles.bundle import Bundle
    from melisma.cli.progress import Shown
    from melisma.jobs.schema import Job
    from melisma.rpc import Server
    from melisma.runs.records import Record


def _is_url(text: str) -> bool:
    """Return whether a browser can open it: a scheme, a host and a port if any."""
    try:
        url = urlsplit(text)
        return url.scheme in ("https", "http") and bool(url.hostname) and url.port != 0
    except ValueError:  # no port, or no IPv6 address
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Where a server listens, and how devices and phones reach it."""

    host: Host = "127.0.0.1"
    port: Port = 8765
    phones: Annotated[
        bool,
        typer.Option(
            "--phones",
            help="Refuse a job that phones cannot run (docs/phones.md).",
            show_default=False,
        ),
    ] = False
    phones_for: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long the phones' link lets in."),
    ] = "12h"
    phones_at: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where phones reach this server, such as a proxy's "
            "https://lab.example.org.",
            show_default="this machine's address",
        ),
    ] = None
    local_ca: Annotated[
        bool,
        typer.Option(
            "--local-ca",
            help="TLS by an authority of one's own, which phones can install.",
            show_default=False,
        ),
    ] = False
    plain_http: Annotated[
        bool,
        typer.Option(
            "--plain-http",
            help="No TLS: whoever is on the way can read and change what travels.",
            show_default=False,
        ),
    ] = False
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="PEM",
            help="Certificate of one's own, and --key.",
            show_default=False,
        ),
    ] = None
    key: Annotated[
        Path | None,
        typer.Option(metavar="PEM", help="Key of --certificate.", show_default=False),
    ] = None

    def __post_init__(self) -> None:
        chosen = [self.local_ca, self.plain_http, self.certificate is not None]
        if sum(chosen) > 1:
            raise ConfigError(
                "--local-ca, --plain-http and --certificate: choose one of them"
            )
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("--certificate needs its --key, and the key it")
        self._lifetime_s()
        if self.phones_at is not None and not _is_url(self.phones_at):
            raise ConfigError(
                f"--phones-at {self.phones_at!r}: give a URL, such as "
                "https://lab.example.org"
            )

    def _lifetime_s(self) -> float:
        return time_to_come("--phones-for", self.phones_for, "12h")

    def door(self) -> "Phones":
        """Return what lets phones in."""
        from melisma.browser.phones import Phones

        return Phones(
            lifetime_s=self._lifetime_s(),
            required=self.phones,
            url=self.phones_at or "",
        )

    def options(self) -> dict[str, Any]:
        """Return the options of `rpc.serve`."""
        return {
            "host": self.host,
            "port": self.port,
            "plain": self.plain_http,
            "local_ca": self.local_ca,
            "certificate": self.certificate,
            "key": self.key,
        }

    def flags(self) -> str:
        """Return the options on the command line that say all this."""
        words = ["--host", self.host, "--port", str(self.port)]
        words += ["--phones"] * self.phones
        words += ["--phones-for", self.phones_for] * (self.phones_for != "12h")
        words += ["--phones-at", self.phones_at] if self.phones_at else []
        words += ["--local-ca"] * self.local_ca
        words += ["--plain-http"] * self.plain_http
        if self.certificate:
            words += ["--certificate", str(self.certificate), "--key", str(self.key)]
        return shlex.join(words)


def orchestrate(
    job: "Job",
    folder: Path,
    watch: "Shown",
    learners: int,
    reach: Reach,
    as_json: bool,
    bundle: "Bundle | None" = None,
) -> "list[Record]":
    """Train with the learners that join, and print how they do."""
    from melisma.launch.serve import orchestrate as train

    links: list[str] = []
    phones = reach.door()

    def announce(server: "Server") -> None:
        from melisma.launch.inviting import credentials

        join, token = credentials(server, phones)
        if as_json:
            code = {"bundle": bundle.hash} if bundle else {}
            link = {"phones": phones.link} if phones.link else {}
            apart = {"token": token} if token else {}
            json_line({"join": join, "dashboard": links[0]} | apart | link | code)
            return
        note(f"Dashboard: {links[0]}")
        trust = ""
        if bundle:
            note(f"Bundle: {', '.join(bundle.files)}")
            trust = f" --trust {bundle.hash}"
        note(f"Join with: {join_command(join, token)}{trust}")
        _invite(phones, reach)
        if not sys.stderr.isatty():  # where the bar says it
            word = "learner" if learners == 1 else "learners"
            note(f"Waiting for {learners} {word} to join.")

    return train(
        job,
        folder,
        learners=learners,
        watch=watch,
        ready=announce,
        show=links.append,
        bundle=bundle,
        phones=phones,
        gathering=watch.gathering,
        say=lambda text: None,  # announced above
        **reach.options(),
    )


def _invite(phones: "Phones", reach: Reach) -> None:
    """Print the link that makes a phone a learner, as a QR code too."""
    if reach.plain_http:
        note(
            "NO TLS (--plain-http): whoever is on this network can read models, data "
            "and tokens, and change them. Devices of other machines that are no "
            "browsers join by a proxy with TLS alone (docs/howto/proxy.md).",
            style="bold red",
        )
    if phones.why:
        note(f"No link for phones: {phones.why}", style="dim")
        return
    from melisma.rpc.address import is_loopback

    if not reach.phones_at and is_loopback(reach.host):
        note(f"Browsers of this machine join at {phones.link}")
        return
    note(f"Phones join at {phones.link}")
    if console(stderr=True).encoding.startswith("utf"):
        note(phones.drawn(), style="bright_white on black")
    if phones.authority:
        note(f"Phones that warn install {phones.ca_link} first: docs/phones.md")


def join_command(join: str, token: str | None = None) -> str:
    """Return the command with which a device joins; other users do not see a token."""
    from melisma.rpc.address import join_command as command

    return command(join, token)
