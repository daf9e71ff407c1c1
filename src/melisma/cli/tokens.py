"""`melisma token`: who may join this user's servers."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from melisma.cli.help import Command, Group
from melisma.cli.options import Json, time_to_come
from melisma.cli.output import json_line, line, show
from melisma.errors import ConfigError

if TYPE_CHECKING:
    from melisma.rpc.tokens import Entry, Tokens

app = typer.Typer(
    cls=Group,
    help="Make, list and revoke the tokens that let devices join this user's servers.",
    no_args_is_help=True,
)


Home = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of the server's certificate and tokens.",
        show_default="~/.melisma",
    ),
]
Expires = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="How long it lets in: '30d', '12h', '90min'.",
        show_default="until it is revoked",
    ),
]
MayCall = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Functions that it may call, such as read_*; repeatable.",
        show_default="all",
    ),
]
ReachedAt = Annotated[
    str | None,
    typer.Option(
        metavar="HOST",
        help="Address at which devices reach the server.",
        show_default="this machine's",
    ),
]


@app.command("add", cls=Command)
def add_token(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="The one device that may use it, under that name alone; any device "
            "under any name if left out.",
            show_default=False,
        ),
    ] = None,
    named: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="NAME, as an option."),
    ] = None,
    expires: Expires = None,
    may_call: MayCall = None,
    host: ReachedAt = None,
    port: Annotated[
        int,
        typer.Option(min=1, max=65535, metavar="PORT", help="The server's port."),
    ] = 8765,
    folder: Home = None,
    as_json: Json = False,
) -> None:
    """Make a token, and print a join string with it.

    Only its hash is kept: it cannot be shown again.
    """
    from melisma.rpc import certificates
    from melisma.rpc.address import Address, reachable
    from melisma.rpc.tokens import EVERYTHING

    if name is not None and named is not None:
        raise ConfigError(f"{name!r} and --name {named!r}: give one name")
    name = named if name is None else name
    rights = tuple(may_call or EVERYTHING)
    lifetime_s = (
        time_to_come("--expires", expires, "30d") if expires is not None else None
    )
    with _tokens(folder) as tokens:
        certificate, _ = certificates.ensure(tokens.path.parent)
        address = Address(
            host=host or reachable("0.0.0.0"),
            port=port,
            tls=True,
            token=tokens.add(name, rights, lifetime_s),
            fingerprint=certificates.fingerprint_of(certificate),
        )
    join = address.join_string()
    if as_json:
        facts = {"id": (address.token or "").partition(".")[0], "name": name}
        json_line(facts | {"may_call": rights, "join": join})
    else:
        line(join)


@app.command("list", cls=Command)
def list_tokens(folder: Home = None, as_json: Json = False) -> None:
    """List the tokens: ids, devices, what these may call, when made, until when."""
    with _tokens(folder) as tokens:
        entries = tokens.list()
    if as_json:
        facts = ("id", "name", "may_call", "made", "expires", "has_expired")
        json_line([{key: getattr(entry, key) for key in facts} for entry in entries])
        return
    if not entries:
        line("No tokens yet: `melisma token add` makes one.")
        return
    from melisma.cli.tables import table_of

    table = table_of("id", "name", "may call", "made", "expires", text_columns=5)
    for entry in entries:
        rights = ", ".join(entry.may_call)
        made = "–" if entry.made is None else _minute(entry.made)
        table.add_row(entry.id, entry.name or "any", rights, made, _expiry(entry))
    show(table)


def _expiry(entry: "Entry") -> str:
    if entry.expires is None:
        return "never"
    return f"{'expired ' if entry.has_expired else ''}{_minute(entry.expires)}"


def _minute(seconds: float) -> str:
    """Return a time, in seconds since 1970, as people here write it."""
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"


@app.command("revoke", cls=Command)
def revoke_token(
    id: Annotated[
        str,
        typer.Argument(help="Id of the token, as `melisma token list` shows it."),
    ],
    folder: Home = None,
) -> None:
    """Revoke a token; a device that is connected stays until it reconnects."""
    with _tokens(folder) as tokens:
        tokens.revoke(id)
    line(f"Revoked {id}.")


@contextmanager
def _tokens(folder: Path | None) -> Iterator["Tokens"]:
    """Yield the tokens in ``folder``, or this user's; ConfigError if it is unusable."""
    from melisma.rpc.server import HOME
    from melisma.rpc.tokens import Tokens

    try:
        yield Tokens((folder or HOME) / "tokens.json")
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
