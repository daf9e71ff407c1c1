"""The files in deploy/, and the page about them, fit the command line."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer
from packaging.specifiers import SpecifierSet

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


def stages() -> list[list[tuple[str, str]]]:
    """The container file's instructions with their words, by stage."""
    text = re.sub(r"^#.*\n", "", CONTAINER, flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.partition(" ") for line in text.splitlines() if line.strip()]
    found: list[list[tuple[str, str]]] = []
    for word, _, rest in lines:
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest.strip()))
    return found


#: All that the format has, in as far as we use it.
INSTRUCTIONS = {
    *("FROM", "WORKDIR", "COPY", "RUN", "ENV", "ARG", "USER", "STOPSIGNAL"),
    "ENTRYPOINT",
}


def test_the_container_file_is_well_formed() -> None:
    assert {word for stage in stages() for word, _ in stage} <= INSTRUCTIONS
    named = re.findall(r"^FROM .* AS (\w+)$", CONTAINER, flags=re.MULTILINE)
    taken = re.findall(r"^COPY --from=(\w+)", CONTAINER, flags=re.MULTILINE)
    assert set(taken) == set(named)
    for _, rest in (i for stage in stages() for i in stage if i[0] == "RUN"):
        checked = subprocess.run(["sh", "-n"], input=rest, text=True)
        assert checked.returncode == 0, rest


def test_the_container_is_for_both_kinds_of_machine() -> None:
    build, image = (stage[0][1] for stage in stages())
    # The pure wheel is built natively; the image is whatever --platform asks for.
    assert build.startswith("--platform=$BUILDPLATFORM ")
    assert "--platform" not in image
    assert not re.search(r"amd64|x86_64|aarch64|arm64", str(stages()))
    assert "--platform linux/amd64,linux/arm64" in CONTAINER
    assert "--platform linux/amd64,linux/arm64" in PAGE


def test_the_containers_python_is_one_of_ours() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (version,) = set(re.findall(r"python:(\d+\.\d+)-slim", CONTAINER))
    assert SpecifierSet(project["requires-python"]).contains(version)


def test_what_the_builder_is_sent_is_what_is_copied() -> None:
    sent = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", CONTAINER, flags=re.MULTILINE)
    assert set(sent) == set(" ".join(copied).split())


@pytest.mark.slow
def test_the_containers_wheel_can_be_built_of_what_it_copies(tmp_path: Path) -> None:
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for word, rest in stages()[0]:
        if word == "COPY":
            *names, into = rest.split()
            for name in names:
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, tmp_path / into, ignore=skipped)
                else:
                    shutil.copy(ROOT / name, tmp_path / into)
    build = "from setuptools.build_meta import build_wheel; build_wheel('.')"
    subprocess.run(
        [sys.executable, "-c", build], cwd=tmp_path, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    assert {"melisma/cli/doctor.py", "melisma_papers/csa.py"} <= inside
    assert "melisma/views/web/static/index.html" in inside


@pytest.mark.parametrize("command", ["token add", "serve", "token list"])
def test_commands_on_the_page_exist(command: str) -> None:
    told = re.findall(rf"melisma {command}\b([^`#\n]*)", PAGE)
    assert told
    assert flags(" ".join(told)) <= params(*command.split()).keys()


def test_it_is_five_commands() -> None:
    block = re.findall(r"```\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    assert len(block.splitlines()) == 5
