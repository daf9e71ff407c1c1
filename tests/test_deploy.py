"""The files in deploy/, and the page about them, fit the command line."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from melisma.cli import app

ROOT = Path(__file__).parents[1]
UNIT = (ROOT / "deploy" / "melisma-learner.service").read_text("utf-8")
CONTAINER = (ROOT / "deploy" / "Containerfile").read_text("utf-8")
PAGE = (ROOT / "docs" / "deploy.md").read_text("utf-8")


def params(*words: str) -> dict[str, Any]:
    """What a command takes, by flag or name."""
    command: Any = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    return {flag: param for param in command.params for flag in param.opts}


def values(key: str) -> list[str]:
    """All that the unit says for a key."""
    return re.findall(rf"^{key}=(.*)$", UNIT, flags=re.MULTILINE)


def flags(text: str) -> set[str]:
    return set(re.findall(r"(?<!\S)--[a-z][a-z-]*", text))


def test_the_unit_starts_join_with_flags_that_exist() -> None:
    (start,) = values("ExecStart")
    _, command, *words = shlex.split(start)
    assert command == "join"
    assert flags(" ".join(words)) <= params("join").keys()


def test_flags_that_unit_and_page_suggest_exist() -> None:
    options = re.findall(r"MELISMA_OPTIONS=(.*)", UNIT + PAGE)
    listed = re.findall(r"^- `(--.*?)[ `]", PAGE, flags=re.MULTILINE)
    assert listed
    assert flags(" ".join([*options, *listed])) <= params("join").keys()


def test_the_join_string_comes_from_the_environment_alone() -> None:
    assert params("join")["address"].envvar == "MELISMA_JOIN"
    assert values("EnvironmentFile") == ["/etc/melisma/learner.env"]
    assert "MELISMA_JOIN" not in " ".join(values("ExecStart") + values("Environment"))
    assert "install -D -m 600 /dev/stdin /etc/melisma/learner.env" in PAGE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Restart", "always"),
        ("StartLimitIntervalSec", "0"),
        ("After", "network-online.target"),
        ("DynamicUser", "yes"),
        ("StateDirectory", "melisma"),
        ("ProtectSystem", "strict"),
        ("PrivateTmp", "yes"),
        ("NoNewPrivileges", "yes"),
        ("KillSignal", "SIGINT"),
    ],
)
def test_the_unit_keeps_trying_and_keeps_to_itself(key: str, value: str) -> None:
    assert values(key) == [value]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "melisma-learner.service"
    unit.write_text(UNIT.replace("/opt/melisma/bin/melisma", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_container_joins_as_nobody_special() -> None:
    assert 'ENTRYPOINT ["melisma", "join"]' in CONTAINER
    steps = re.findall(r"^(RUN|USER|ENTRYPOINT)\b", CONTAINER, flags=re.MULTILINE)
    assert steps[-2:] == ["USER", "ENTRYPOINT"]
    assert "USER root" not in CONTAINER


def test_what_the_container_copies_is_there() -> None:
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", CONTAINER, flags=re.MULTILINE)
    assert copied
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("command", ["token add", "serve", "token list"])
def test_commands_on_the_page_exist(command: str) -> None:
    told = re.findall(rf"melisma {command}\b([^`#\n]*)", PAGE)
    assert told
    assert flags(" ".join(told)) <= params(*command.split()).keys()


def test_it_is_five_commands() -> None:
    block = re.findall(r"```\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    assert len(block.splitlines()) == 5
