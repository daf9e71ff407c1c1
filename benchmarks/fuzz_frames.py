"""A million hostile frames: does any of them crash, leak into or get past a server?

    make fuzz                                         a million frames
    python benchmarks/fuzz_frames.py --frames 20000 --seed 1
    python benchmarks/fuzz_frames.py --corpus FOLDER  kept, and gone on with

Valid conversations are spoilt (`peers/conversations.py`) and given to a real server in
this process, before and after the handshake and on its port; `peers/fuzzed_server.py`
says what must hold afterwards. Conversations that reach new code are kept and spoilt
further. Which ones do is told by atheris, where it is installed (it is built from
source, with clang: CLANG_BIN=$(which clang) pip install atheris), else by a tracer of
our own.

A frame counts once the server took it in. The conversation that broke the server is
printed, for `tests/rpc/test_fuzz.py` to keep. Lines are those of functions.
"""

import importlib.util
import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from melisma.provenance import provenance

PACKAGE = Path(__file__).parents[1] / "src" / "melisma" / "rpc"
#: What handles that which arrives at a server.
MODULES = (
    *("caller", "channel", "dispatch", "frames", "http", "hub", "incoming", "link"),
    *("listener", "memory", "request", "session", "streams", "values", "websocket"),
)
#: Longest conversation.
MOST_BYTES = 1 << 16
#: Share of errors that atheris makes, which sees what values are compared with.
BY_ATHERIS = 0.2

#: What may tell which conversations reach new code.
GUIDANCE = ("atheris", "own")

Edge = tuple[CodeType, int, int]
out = Console(width=88)


class Tracer:
    """Records which line follows which in ``MODULES``."""

    def __init__(self) -> None:
        self.edges: set[Edge] = set()
        self._files = {str(PACKAGE / f"{name}.py") for name in MODULES}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record what this thread, and threads that it starts, run."""
        before = sys.gettrace()
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(None)

    def _on_call(self, frame: FrameType, event: str, _: Any) -> Any:
        code, edges, last = frame.f_code, self.edges, 0
        if code.co_filename not in self._files:
            return None

        def on_line(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal last
            if event == "line":
                edges.add((code, last, frame.f_lineno))
                last = frame.f_lineno
            return on_line

        return on_line

    def lines(self) -> dict[str, set[int]]:
        """Return the lines that were run, by module."""
        lines = defaultdict(set)
        for code, _, line in self.edges:
            lines[Path(code.co_filename).stem].add(line)
        return lines


def lines_of(name: str) -> set[int]:
    """Return the lines of a module's functions."""
    path = PACKAGE / f"{name}.py"
    waiting = [compile(path.read_text(), str(path), "exec")]
    lines: set[int] = set()
    while waiting:
        code = waiting.pop()
        inner = [const for const in code.co_consts if isinstance(const, CodeType)]
        waiting += inner
        if code.co_flags & 2:  # a function, not a module or the body of a class
            found = {line for _, _, line in code.co_lines() if line}
            lines |= found - {code.co_firstlineno}
    return lines


class Fuzzing:
    """Counts what a server was given; prints and stops where it broke."""

    def __init__(self, converse: Callable[[bytes], int]) -> None:
        self._converse = converse
        self.frames = self.conversations = 0
        self.began = time.perf_counter()

    def give(self, data: bytes) -> None:
        """Have one conversation; print it if it broke the server."""
        from peers.conversations import Conversation

        try:
            self.frames += self._converse(data)
        except Exception:
            print(f"after {self.frames} frames:", Conversation.read(data), flush=True)
            raise
        self.conversations += 1

    def report(self, guidance: str, corpus: list[bytes]) -> None:
        """Print what was done, and what the corpus alone covers."""
        seconds = time.perf_counter() - self.began
        tracer, most = Tracer(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with tracer.watching():
            for data in corpus:
                self._converse(data)
        ran = tracer.lines()
        table = Table(title=f"Guided by {guidance}", title_justify="left")
        for column in ("module", "lines run", "of", "%"):
            table.add_column(column, justify="left" if column == "module" else "right")
        covered = total = 0
        for name in MODULES:
            all_lines = lines_of(name)
            run = len(ran[name] & all_lines)
            covered, total = covered + run, total + len(all_lines)
            share = f"{100 * run / len(all_lines):.0f}"
            table.add_row(name, str(run), str(len(all_lines)), share)
        share = f"{100 * covered / total:.0f}"
        table.add_row("all", str(covered), str(total), share, style="bold")
        out.print(table)
        print(
            f"{self.frames:,} frames in {self.conversations:,} conversations,"
            f" {seconds:.0f} s, {most >> 10} MB at most; {len(tracer.edges):,} edges by"
            f" {len(corpus):,} conversations; nothing crashed"
        )


def own(fuzzing: Fuzzing, frames: int, seed: int, corpus: list[bytes]) -> list[bytes]:
    """Fuzz, guided by the tracer; return the corpus."""
    from peers.conversations import Conversation, seeds, spoilt

    choice, tracer = random.Random(seed), Tracer()
    kept: list[Conversation] = []
    known = 0
    waiting = [*(Conversation.read(data) for data in corpus), *seeds()]
    while fuzzing.frames < frames:
        first = bool(waiting)
        if first:
            conversation = waiting.pop()
        else:  # of those kept, more often a late one
            at = max(choice.randrange(len(kept)), choice.randrange(len(kept)))
            conversation = spoilt(kept[at], choice, kept)
        with tracer.watching():
            fuzzing.give(conversation.written()[:MOST_BYTES])
        if first or len(tracer.edges) > known:
            kept.append(conversation)
            known = len(tracer.edges)
    return [conversation.written() for conversation in kept]


def by_atheris(fuzzing: Fuzzing, frames: int, seed: int, folder: Path) -> None:
    """Fuzz, guided by atheris; report and exit."""
    import atheris
    from peers.conversations import Conversation, seeds, spoilt

    for i, conversation in enumerate(seeds()):
        (folder / f"seed-{i}").write_bytes(conversation.written())
    others = seeds()

    def one_input(data: bytes) -> None:
        fuzzing.give(data)
        if fuzzing.frames >= frames:
            corpus = [path.read_bytes() for path in sorted(folder.iterdir())]
            fuzzing.report("atheris", corpus)
            sys.stdout.flush()
            os._exit(0)

    def mutator(data: bytes, most: int, seed: int) -> bytes:
        choice = random.Random(seed)
        if choice.random() < BY_ATHERIS:
            return bytes(atheris.Mutate(data, most))
        conversation = spoilt(Conversation.read(data), choice, others)
        others[choice.randrange(len(others))] = conversation
        return conversation.written()[:most]

    options = [
        *(f"-max_len={MOST_BYTES}", f"-seed={seed + 1}", "-verbosity=0"),
        *("-timeout=60", "-rss_limit_mb=0", f"-artifact_prefix={folder}/"),
    ]
    arguments = [sys.argv[0], *options, str(folder)]
    atheris.Setup(arguments, one_input, custom_mutator=mutator)
    atheris.Fuzz()


@contextmanager
def instrumented(guidance: str) -> Iterator[None]:
    """Let atheris see what is imported meanwhile, if it is the guidance."""
    if guidance != "atheris":
        yield
        return
    import atheris

    with atheris.instrument_imports(include=["melisma.rpc"]):
        yield


def main(
    frames: Annotated[int, typer.Option(help="Frames to be taken in.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Of the errors made.")] = 0,
    guidance: Annotated[
        str | None, typer.Option(help="atheris or own; atheris if it is there.")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Folder of conversations, gone on with.")
    ] = None,
) -> None:
    """Fuzz a server with so many frames."""
    print(provenance(), flush=True)
    found = importlib.util.find_spec("atheris") is not None
    guidance = guidance or ("atheris" if found else "own")
    if guidance not in GUIDANCE or (guidance == "atheris" and not found):
        raise typer.BadParameter(f"{guidance!r}: give own, or atheris if it is there")
    with instrumented(guidance):
        from peers.fuzzed_server import FuzzedServer
    with FuzzedServer() as server, tempfile.TemporaryDirectory() as temporary:
        fuzzing = Fuzzing(server.converse)
        folder = corpus or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if guidance == "atheris":
            by_atheris(fuzzing, frames, seed, folder)
        earlier = [path.read_bytes() for path in sorted(folder.iterdir())]
        kept = own(fuzzing, frames, seed, earlier)
        for i, data in enumerate(kept):
            (folder / f"{i:05}").write_bytes(data)
        fuzzing.report("our own tracer", kept)


if __name__ == "__main__":
    typer.run(main)
