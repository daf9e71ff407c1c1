"""Every command that prints facts prints them as JSON too, and nothing else then."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.running import Melisma, quick_job

from melisma.cli import app

#: Commands that print no facts: they do something until they are ended, or once.
WITHOUT = {"join", "dashboard", "token revoke"}


def commands(command: Any, *words: str) -> dict[str, Any]:
    """Every command that does something, by its words."""
    if not hasattr(command, "commands"):
        return {" ".join(words): command}
    return {
        name: found
        for word, sub in command.commands.items()
        for name, found in commands(sub, *words, word).items()
    }


COMMANDS = commands(typer.main.get_command(app))


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_that_prints_facts_takes_json(words: str) -> None:
    flags = {flag for param in COMMANDS[words].params for flag in param.opts}
    assert ("--json" in flags) == (words not in WITHOUT)


def test_the_walk_meets_commands_of_groups() -> None:
    assert {"version", "token list", "papers run"} <= COMMANDS.keys()
    assert COMMANDS.keys() >= WITHOUT


@pytest.mark.parametrize(
    ("words", "has"),
    [
        ("version", "version"),
        ("schemes", "csa"),
        ("papers list", "csa"),
        ("token add pi1 --folder . --host pi --expires 30d", "join"),
        ("doctor", "findings"),
    ],
)
def test_what_is_printed_is_one_document(
    melisma: Melisma, words: str, has: str
) -> None:
    done = melisma(*words.split(), "--json")
    assert (done.code, done.err) == (0, "")
    assert has in json.loads(done.out)


def test_tokens_are_listed_without_what_is_secret(melisma: Melisma) -> None:
    made = json.loads(melisma("token", "add", "pi1", "--folder", ".", "--json").out)
    secret = made["join"].partition("//")[2].partition("@")[0].partition(".")[2]
    out = melisma("token", "list", "--folder", ".", "--json").out
    (listed,) = json.loads(out)
    assert (listed["id"], listed["name"]) == (made["id"], "pi1")
    assert (listed["may_call"], listed["has_expired"]) == (["*"], False)
    assert secret
    assert secret not in out
    assert "sha256" not in out


def test_a_run_is_told_by_all_commands_that_show_it(
    melisma: Melisma, tmp_path: Path
) -> None:
    told = json.loads(melisma("simulate", quick_job(tmp_path), "--json").out)
    assert told["folder"] == "runs/quick"
    (listed,) = json.loads(melisma("runs", "--json").out)
    assert listed["id"] == "quick"
    report = json.loads(melisma("report", "runs/quick", "--json").out)
    assert len(report["cycles"]) == 2
    words = ("export", "runs/quick", "--to", "tensorboard", "--json")
    exported = json.loads(melisma(*words).out)
    assert exported["figures"] > 0
    assert Path(exported["folder"]).is_dir()
