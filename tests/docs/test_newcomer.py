"""A newcomer types what pages print, as it stands, in a folder with the examples."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("docs/from/*.md"), *ROOT.glob("docs/howto/*.md")]
PATIENCE_S = 240
LEARNERS = 3  #: that join whoever serves
PIPES: dict[str, Any] = {
    "stdout": subprocess.PIPE,
    "stderr": subprocess.STDOUT,
    "text": True,
}


def blocks(page: Path, language: str) -> list[str]:
    """Return a page's code blocks of one language."""
    text = page.read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a newcomer has it: the examples, and a home of one's own."""
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder


@pytest.fixture(scope="module")
def shell(desk: Path) -> dict[str, str]:
    """Environment in which `melisma` is this one."""
    bin = desk / "bin"
    bin.mkdir()
    script = bin / "melisma"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m melisma "$@"\n')
    script.chmod(0o755)
    path = f"{bin}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(desk), "COLUMNS": "100"}


def run(command: list[str], desk: Path, shell: dict[str, str]) -> str:
    """Run a command to its end; return what it printed."""
    done = subprocess.run(
        command, cwd=desk, env=shell, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-2000:]}"
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    sorted(page for page in PAGES if blocks(page, "python")),
    ids=lambda p: p.stem,
)
def test_the_python_of_a_page_runs(
    page: Path, desk: Path, shell: dict[str, str]
) -> None:
    if "runs/demo" in page.read_text("utf-8") and not (desk / "runs/demo").exists():
        run(["melisma", "simulate", "examples/demo.toml"], desk, shell)
    for code in blocks(page, "python"):
        run([sys.executable, "-c", code], desk, shell)


@pytest.mark.slow
def test_the_commands_of_the_how_to_pages_run(
    desk: Path, shell: dict[str, str]
) -> None:
    commands = [
        line.removeprefix("$ ")
        for page in sorted(PAGES)
        for block in blocks(page, "console")
        for line in block.splitlines()
        if line.startswith("$ ")
    ]
    assert len(commands) > 5
    for command in sorted(commands, key=lambda line: "simulate" not in line):
        words = command.split()
        if words[1] == "join":  # dials until somebody is there
            words += ["127.0.0.1:9"]
            with subprocess.Popen(words, cwd=desk, env=shell, **PIPES) as joining:
                line = until(joining, "127.0.0.1:9")
                assert "127.0.0.1:9" in line
                joining.kill()
        else:
            run(words, desk, shell)


def until(process: subprocess.Popen[str], text: str) -> str:
    """Return the first line with a text in it."""
    seen = []
    assert process.stdout is not None
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"{text!r} was never printed:\n{''.join(seen)}")


def interrupt(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C, and wait for the end."""
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode in (0, 130, -signal.SIGINT), process.returncode


@pytest.mark.slow
@pytest.mark.alone
def test_the_commands_of_the_readme_run(desk: Path, shell: dict[str, str]) -> None:
    """In their order: whoever serves is joined, whoever shows is interrupted."""
    text = (ROOT / "README.md").read_text("utf-8")
    (block,) = re.findall(r"## On the command line\n\n```\n(.*?)```", text, re.DOTALL)
    for line in block.splitlines():
        words = line.split("#")[0].split()
        match words[1]:
            case "serve":
                served(words, desk, shell)
            case "dashboard":
                with subprocess.Popen(words, cwd=desk, env=shell, **PIPES) as process:
                    assert until(process, "http://127.0.0.1")
                    interrupt(process)
            case "run" | "compare" | "papers":
                pass  # `.ci/run` has all three
            case _:
                run(words, desk, shell)


def served(words: list[str], desk: Path, shell: dict[str, str]) -> None:
    """Serve on loopback in place of all addresses, join by the printed command."""
    words = [word.replace("0.0.0.0", "127.0.0.1") for word in words]
    with ExitStack() as open:
        command = [*words, "--port", "0"]
        options: dict[str, Any] = {"cwd": desk, "env": shell, **PIPES}
        server = open.enter_context(subprocess.Popen(command, **options))
        join = shlex.split(until(server, "melisma join").partition("Join with:")[2])
        quiet = {**options, "stdout": subprocess.DEVNULL}
        for number in range(LEARNERS):
            name = ["--name", f"pi{number}", "--quiet"]
            learner = open.enter_context(subprocess.Popen([*join, *name], **quiet))
            open.callback(learner.kill)
        output, _ = server.communicate(timeout=PATIENCE_S)
        assert server.returncode == 0, output
