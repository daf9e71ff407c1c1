"""A newcomer types what pages print, as it stands, in a folder with the examples.

What is fenced `python`, `sh` or `console` is run, a page from top to bottom in one
process; what is fenced `toml` is read as a job. All else is another machine's: of that,
commands and their options exist.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

import melisma as mel
from melisma.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/*.md", "docs/[!p_]*/*.md")
    for page in ROOT.glob(pattern)
    if page.name != "CHANGELOG.md"
)
TYPED = Path(__file__).with_name("typed.py")
PATIENCE_S = 600
LEARNERS = 3  #: that join whoever serves
#: `.ci/run` runs these: two as `make demo` and `make compare`.
ELSEWHERE = (
    "melisma run",
    "melisma compare examples/demo.toml --schemes csa,eta,sync,dab --seeds 5",
    "melisma papers run csa --quick --figure 2",
)


class Block(NamedTuple):
    """Code that a page prints."""

    where: str
    language: str
    text: str
    prints: str  #: what the page shows right below it, without a language


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return a page's code blocks of some languages, in order."""
    text, found = page.read_text("utf-8"), []
    fences = list(
        re.finditer(r"^```(\S*)\n(.*?)^```\n", text, re.DOTALL | re.MULTILINE)
    )
    for fence, after in zip(fences, [*fences, None][1:], strict=True):
        if fence[1] in languages:
            below = (
                after and not after[1] and not text[fence.end() : after.start()].strip()
            )
            where = (
                f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, fence.start()) + 2}"
            )
            prints = after[2] if after and below else ""
            found.append(Block(where, fence[1], fence[2], prints))
    return found


def name(page: Path) -> str:
    """Return what a test of a page is called."""
    return str(page.relative_to(ROOT))


def commands(block: Block) -> list[tuple[str, str]]:
    """Return the commands of a block, and what it says that each prints."""
    if block.language == "sh":
        return [(line, "") for line in block.text.splitlines()]
    said: list[tuple[str, str]] = []
    for line in block.text.splitlines(keepends=True):
        if line.startswith("$ "):
            said.append((line.removeprefix("$ ").rstrip(), ""))
        else:
            said[-1] = (said[-1][0], said[-1][1] + line)
    return said


def steps(page: Path, port: int) -> list[dict[str, Any]]:
    """Return what is typed of a page: on loopback in place of all addresses."""
    return [
        {
            "where": block.where,
            "language": block.language,
            "text": here(block.text, port),
            "prints": block.prints,
            "commands": [
                (here(command, port), shown)
                for command, shown in commands(block)
                if command.split("#")[0].strip() not in ELSEWHERE
            ]
            if block.language != "python"
            else [],
        }
        for block in blocks(page, "python", "sh", "console")
    ]


def here(text: str, port: int) -> str:
    """Return a block that listens on loopback, at a port that is free."""
    return text.replace("0.0.0.0", "127.0.0.1").replace("8765", str(port))


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return int(any_port.getsockname()[1])


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which `melisma` and `python` are these, with nobody's settings."""
    folder = tmp_path_factory.mktemp("shell")
    for command, words in {"melisma": "-m melisma", "python": ""}.items():
        script = folder / command
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        script.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MELISMA")}
    own = {"PATH": path, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    return {**kept, **own, "COLUMNS": "100", "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that pages open: what `melisma simulate examples/demo.toml` leaves."""
    runs = tmp_path_factory.mktemp("demo") / "runs"
    mel.simulate(ROOT / "examples" / "demo.toml", runs=runs)
    return runs


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder as a newcomer has it: the examples."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    return tmp_path


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("page", [p for p in PAGES if steps(p, 0)], ids=name)
def test_what_a_page_prints_runs(
    page: Path, desk: Path, shell: dict[str, str], request: pytest.FixtureRequest
) -> None:
    """Whoever serves is joined, whoever shows is interrupted."""
    typed = steps(page, free_port())
    (desk / "steps.json").write_text(json.dumps(typed))
    if any("runs/demo" in step["text"] for step in typed):
        shutil.copytree(request.getfixturevalue("demo"), desk / "runs")
    options: dict[str, Any] = {"cwd": desk, "env": shell, "text": True}
    with ExitStack() as open:
        typing = open.enter_context(
            subprocess.Popen(
                [sys.executable, TYPED, "steps.json"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **options,
            )
        )
        open.callback(kill, typing)
        patience = threading.Timer(PATIENCE_S, kill, [typing])
        patience.start()
        open.callback(patience.cancel)
        seen = list(joined(typing, open, options))
    assert typing.returncode == 0, "".join(seen[-60:])


def kill(process: "subprocess.Popen[str]") -> None:
    """End a process, and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def joined(
    typing: "subprocess.Popen[str]", open: ExitStack, options: dict[str, Any]
) -> Iterator[str]:
    """Yield what is printed; start learners wherever they are asked to join."""
    asked = set[str]()
    assert typing.stdout is not None
    for line in typing.stdout:
        yield line
        found = re.search(r"(?:^|melisma join '?)(127\.0\.0\.1:\d+)'?$", line)
        if found and found[1] not in asked:
            asked.add(found[1])
            for number in range(LEARNERS):
                own = ["--name", f"pi{number}", "--quiet"]
                learner = subprocess.Popen(
                    ["melisma", "join", found[1], *own], **options
                )
                open.callback(learner.wait)
                open.callback(learner.kill)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "toml")], ids=name)
def test_the_jobs_of_a_page_are_read(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "toml"):
        job = tmp_path / "job.toml"
        job.write_text(block.text, "utf-8")
        try:
            mel.load(job)
        except mel.ConfigError as error:
            pytest.fail(f"{block.where}: {error}")


def elsewhere(page: Path) -> list[str]:
    """Return the lines that a page prints for other machines, without comments."""
    lines = [
        line.split(" #")[0].split(" > ")[0].strip()
        for block in blocks(page, "")
        for line in block.text.replace("\\\n", " ").splitlines()
    ]
    return [re.sub(r"^(sudo |\$ |[A-Z_]+='?\S+ )+", "", line) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_for_other_machines_exist(page: Path) -> None:
    for line in elsewhere(page):
        match line.split():
            case ["melisma", command, *words] if re.fullmatch(r"[a-z]+", command):
                parse(command, words, line)
            case ["python", file, *words] if file.startswith("benchmarks/"):
                source = (ROOT / file).read_text("utf-8")
                for option in words:
                    if option.startswith("--"):
                        assert option[2:].replace("-", "_") in source, line
            case ["make", *targets]:
                made = (ROOT / "Makefile").read_text("utf-8")
                for target in targets:
                    if "=" not in target and '"' not in target and "." not in target:
                        assert f"\n{target}:" in made, line


def parse(name: str, words: list[str], line: str) -> None:
    """Fail if a command does not exist, or does not have these options."""
    command: Any = typer.main.get_command(app)
    for part in (name, *words):
        if not hasattr(command, "commands"):
            break
        assert part in command.commands, line
        command, words = command.commands[part], words if part == name else words[1:]
    known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    for word in words:
        option = word.partition("=")[0]
        if option.startswith("--") and option != "--help":
            assert option in known, line
