"""How a device is given its token, out of sight of `ps`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.running import Melisma

from melisma import rpc
from melisma.cli import NO_ACCESS
from melisma.cli.serving import join_command
from melisma.rpc.address import Address


@rpc.expose
def nothing() -> None:
    """All that this server offers."""


@contextmanager
def server(folder: Path) -> Iterator[Address]:
    """A server that lets in by token and sends away at once: where, and the token."""

    def send_away(peer: rpc.Peer) -> None:
        here.expel(peer.name, "it was seen")

    with rpc.serve(
        nothing, port=0, secure=True, folder=folder, joined=send_away, say=len
    ) as here:
        yield Address.of(here.join_string())


@contextmanager
def standard_input(text: str) -> Iterator[None]:
    """Let this process read ``text`` from file 0."""
    before, (reads, writes) = os.dup(0), os.pipe()
    os.write(writes, text.encode())
    os.dup2(reads, 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        for file in (before, reads, writes):
            os.close(file)


@pytest.mark.parametrize("way", ["variable", "join variable", "file", "standard input"])
def test_a_token_need_not_be_on_the_command_line(
    way: str, melisma: Melisma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server(tmp_path / "home") as address, standard_input(f"{address.token}\n"):
        words = [replace(address, token=None).join_string()]
        match way:
            case "variable":
                monkeypatch.setenv("MELISMA_TOKEN", str(address.token))
            case "join variable":
                monkeypatch.setenv("MELISMA_JOIN", address.join_string())
                words = []
            case "file":
                (tmp_path / "token").write_text(f"{address.token}\n")
                words += ["--token-file", "token"]
            case "standard input":
                words += ["--token", "-"]
        done = melisma("join", *words, "--name", "pi", "--quiet")
    assert (done.code, done.err.count("\n")) == (NO_ACCESS, 1)
    assert "it was seen" in done.err  # so it had been let in


@pytest.mark.parametrize(
    ("content", "says"), [(None, "No such file"), (b"\xff", "no token in token")]
)
def test_a_file_without_a_token_is_one_line(
    content: bytes | None, says: str, melisma: Melisma, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    done = melisma("join", "127.0.0.1:1", "--token-file", "token")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert says in done.err


def test_the_printed_command_has_its_token_in_the_environment() -> None:
    join = f"melisma://ab12.secret@10.0.0.7:8765#{'0f' * 32}"
    assert join_command(join) == f"MELISMA_JOIN='{join}' melisma join"
    assert join_command("127.0.0.1:8765") == "melisma join '127.0.0.1:8765'"
