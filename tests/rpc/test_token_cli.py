"""`melisma token`, run as a user runs it."""

import json
import sys
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest

from melisma import rpc
from melisma.cli import main
from melisma.errors import AccessError, TransportError
from melisma.rpc.address import DEFAULT_PORT, Address, reachable
from melisma.rpc.certificates import ensure, fingerprint_of

#: Runs a command and returns its exit code, its output and its errors.
Token = Callable[..., tuple[int, str, str]]


@pytest.fixture
def token(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Token:
    """`melisma token` in this process, with a folder of its own."""
    monkeypatch.setattr(sys, "path", sys.path.copy())

    def run(*words: str) -> tuple[int, str, str]:
        words = ("melisma", "token", *words, "--folder", str(tmp_path))
        monkeypatch.setattr(sys, "argv", [*words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


@rpc.expose
def add(a: int, b: int) -> int:
    return a + b


def test_add_prints_a_join_string_and_nothing_else(
    token: Token, tmp_path: Path
) -> None:
    code, printed, errors = token("add")
    address = Address.of(printed.removesuffix("\n"))
    assert (code, errors) == (0, "")
    assert address.host == reachable("0.0.0.0")
    assert address.port == DEFAULT_PORT
    assert address.fingerprint == fingerprint_of(ensure(tmp_path)[0])


def test_a_running_server_lets_in_who_was_invited_on_the_command_line(
    token: Token, tmp_path: Path
) -> None:
    messages: list[str] = []
    with rpc.serve(
        add, port=0, secure=True, folder=tmp_path, say=messages.append
    ) as here:
        port = str(here.port)
        joins = token("add", "pi", "--host", "127.0.0.1", "--port", port)[1]
        with rpc.connect(joins.strip(), name="pi") as there:
            assert there.add(1, 2) == 3
            assert list(here.peers) == ["pi"]
        with pytest.raises(TransportError, match="this token is for 'pi'"):
            rpc.connect(joins.strip(), name="another")


def test_a_revoked_token_lets_nobody_in(token: Token, tmp_path: Path) -> None:
    with rpc.serve(add, port=0, secure=True, folder=tmp_path, say=len) as here:
        join = here.invite()
        id = str(Address.of(join).token).partition(".")[0]
        assert token("revoke", id) == (0, f"Revoked {id}.\n", "")
        with pytest.raises(AccessError):
            rpc.connect(join)


def test_list_shows_ids_names_and_rights_but_no_secrets(token: Token) -> None:
    words = ("add", "--name", "[b]pi", "--may-call", "add", "--may-call", "read_*")
    id, secret = str(Address.of(token(*words)[1].strip()).token).split(".")
    listed = token("list")[1]
    assert f"{id}  [b]pi  add, read_*" in listed
    assert secret not in listed


def test_list_shows_when_a_token_was_made_and_until_when_it_is_valid(
    token: Token, tmp_path: Path
) -> None:
    old = {"id": "0123abcd", "sha256": "0" * 64}
    (tmp_path / "tokens.json").write_text(json.dumps([old]))
    token("add", "pi7", "--expires", "30d")
    token("add", "gone", "--expires", "1e-9 min")
    first, pi7, gone = (line.split() for line in token("list")[1].splitlines()[-3:])
    assert first == ["0123abcd", "any", "*", "–", "never"]
    _, name, rights, made, _, expires, _ = pi7
    assert (name, rights) == ("pi7", "*")
    assert date.fromisoformat(expires) - date.fromisoformat(made) in (
        *(timedelta(days=30), timedelta(days=29), timedelta(days=31)),  # summer time
    )
    assert gone[5] == "expired"


def test_a_token_of_earlier_documentation_is_still_made(token: Token) -> None:
    assert token("add", "--name", "pi")[0] == 0
    assert "  pi  " in token("list")[1]


def test_list_says_how_to_make_the_first(token: Token) -> None:
    assert token("list") == (0, "No tokens yet: `melisma token add` makes one.\n", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("revoke", "12345678"), "no token has the id '12345678'; known: none"),
        (("add", "--name", "two\nlines"), "is no name for a peer"),
        (("add", "--name", ""), "is no name for a peer"),
        (("add", ""), "is no name for a peer"),
        (("add", "pi", "--name", "pi7"), "give one name"),
        (("add", "pi", "--expires", "soon"), "use one of min, h, d"),
        (("add", "pi", "--expires", "-1 d"), "give a time to come"),
        (("add", "pi", "--expires", "1e999 d"), "give a time to come"),
    ],
)
def test_what_cannot_be_done_gets_one_line_and_exit_code_2(
    token: Token, words: tuple[str, ...], message: str
) -> None:
    code, printed, errors = token(*words)
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    assert message in errors


def test_a_folder_that_cannot_be_made_gets_one_line_and_exit_code_2(
    token: Token, tmp_path: Path
) -> None:
    tmp_path.rmdir()
    tmp_path.write_text("in the way")
    code, _, errors = token("add")
    assert (code, errors.count("\n")) == (2, 1)


@pytest.mark.parametrize("command", ["", "add", "list", "revoke"])
def test_every_command_explains_itself(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "argv", ["melisma", "token", *command.split(), "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "Usage" in capsys.readouterr().out
