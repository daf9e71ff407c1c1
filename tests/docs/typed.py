"""Type the blocks of a page one after another: ``python typed.py STEPS.json``.

Python blocks share the names of one process, as in a shell; commands are run where the
page has come to with ``cd``. What a block is said to print, it has to print.
"""

import io
import json
import linecache
import shlex
import signal
import subprocess
import sys
from contextlib import ExitStack, chdir, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

#: How a file begins that a page prints.
FILE = "# "


class Both(io.StringIO):
    """Keeps what is printed, and passes it on."""

    def __init__(self, onward: TextIO) -> None:
        super().__init__()
        self.onward = onward

    def write(self, text: str) -> int:
        """Write to both."""
        self.onward.write(text)
        self.onward.flush()
        return super().write(text)


def main() -> None:
    """Type all blocks; end with the first that fails."""
    steps = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    sys.path[0] = ""  # modules are those of the folder
    page = ModuleType("__main__")
    sys.modules["__main__"] = page
    with ExitStack() as open:
        for step in steps:
            print(f"--- {step['where']}", flush=True)
            if step["language"] == "python":
                printed = python(step["text"], step["where"], vars(page))
                compare(printed, step["prints"], step["where"])
            else:
                for command, shown in step["commands"]:
                    compare(shell(command, open), shown, command)


def compare(printed: str, shown: str, what: str) -> None:
    """Raise if a page shows what is not printed."""
    if shown and printed.strip() != shown.strip():
        raise AssertionError(f"{what} shows\n{shown}\nand prints\n{printed}")


def python(text: str, where: str, names: dict[str, Any]) -> str:
    """Run a block of Python, or write the file that it is; return what it printed."""
    first = text.partition("\n")[0]
    if first.startswith(FILE) and first.endswith(".py"):
        Path(first.removeprefix(FILE)).write_text(text, "utf-8")
        return ""
    linecache.cache[where] = (len(text), None, text.splitlines(True), where)
    with redirect_stdout(Both(sys.stdout)) as printed:
        exec(compile_at(text, where), names)
    return printed.getvalue()


def compile_at(text: str, where: str) -> Any:
    """Return a block's code, whose tracebacks say where it stands."""
    return compile(text, where, "exec", dont_inherit=True)


def shell(line: str, open: ExitStack) -> str:
    """Run a line of a shell; return what it printed."""
    print(f"$ {line}", flush=True)
    words = shlex.split(line, comments=True)
    match words:
        case []:
            return ""
        case ["cd", folder]:
            open.enter_context(chdir(folder))
            return ""
        case [*command, "&"]:
            started(command, "", open)  # until its first line
            return ""
        case ["melisma", "dashboard", *_]:
            process = started(words, "http://127.0.0.1", open)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) in (0, 130), process.returncode
            return ""
        case ["melisma", "serve", *_]:
            line = f"{line.partition('#')[0]} --port 0"
    done = subprocess.Popen(
        line, shell=True, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert done.stdout is not None
    printed = Both(sys.stdout)
    with done:
        for text in done.stdout:
            printed.write(text)
    assert done.returncode == 0, f"{line}: exit code {done.returncode}"
    return printed.getvalue()


def started(words: list[str], text: str, open: ExitStack) -> "subprocess.Popen[str]":
    """Start a command that goes on, once a line with a text in it was printed."""
    process = subprocess.Popen(
        words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    open.callback(process.wait)
    open.callback(process.kill)
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        if text in line:
            return process
    raise AssertionError(f"{' '.join(words)} never printed {text!r}")


if __name__ == "__main__":
    main()
