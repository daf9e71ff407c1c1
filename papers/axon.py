"""Axon, chapter 2 of the thesis: lines that a remote call takes, and Table 2.1.

melisma papers run axon

Programs are counted as they stand in ``axon_programs``, and each is run: a service in a
process of its own, and a client that must print what the service answers.
"""

import ast
import io
import os
import socket
import subprocess
import sys
import time
import tokenize
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from melisma.errors import ConfigError, LostError

from .axon_programs import CLIENTS, PORT, PROGRAMS, WHO, Program
from .claims import Claim, Kind, at_least, at_most, exact, near
from .kit import Cells, Data, Exhibit, Main, Paper, Spread, in_order

#: What the business of a service is called.
BUSINESS = "simple_hello"
GREETING = "Hello John!!"
#: Guards against hanging; nothing is measured with it.
PATIENCE_S = 60.0
#: Runs a program whose port Axon's module has to be told of.
RUN = (
    "import runpy, sys; from melisma.rpc import axon; "
    "axon.config.port = int(sys.argv[1]); runpy.run_path(sys.argv[2])"
)
#: Table 2.1: ease of use, device-level scheduling, several models of concurrency.
PRINTED = {
    "gRPC": ("no", "yes", "no"),
    "PySyft": ("yes", "yes", "no"),
    "Ray": ("yes", "no", "no"),
    "Axon": ("yes", "yes", "yes"),
}
OURS = "melisma.rpc"


@dataclass(frozen=True, slots=True, kw_only=True)
class AxonStudy:
    """What is counted and run."""

    programs: tuple[str, ...] = tuple(PROGRAMS)
    clients: tuple[str, ...] = tuple(CLIENTS)  #: of ours, one for each way to wait
    devices: int = 3  #: of which each is called by its own address


def code_lines(text: str) -> set[int]:
    """Return the lines that have code, neither blank nor a comment alone.

    >>> sorted(code_lines("import os\\n\\n# why\\nx = 1  # so\\n"))
    [1, 4]
    """
    idle = {tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT}
    idle |= {tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}
    return {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in idle
        for line in range(token.start[0], token.end[0] + 1)
    }


def extra_lines(service: str) -> int:
    """Return the lines of code of a service that are not its function.

    >>> extra_lines("import axon\\n@axon.rpc\\ndef simple_hello(name):\\n    pass\\n")
    2
    """
    business: set[int] = set()
    for node in ast.walk(ast.parse(service)):
        if isinstance(node, ast.FunctionDef) and node.name == BUSINESS:
            business |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code_lines(service) - business)


@contextmanager
def serving(folder: Path, program: str) -> Iterator[int]:
    """Run a service, and give the port that it listens on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = int(free.getsockname()[1])
    with started(folder, "service.py", program, port) as service:
        deadline = time.monotonic() + PATIENCE_S
        while not _listens(port):
            if service.poll() is not None or time.monotonic() > deadline:
                raise LostError(f"a service does not listen: {_heard(folder, port)}")
            time.sleep(0.05)
        yield port


def _heard(folder: Path, port: int) -> str:
    return (folder / f"{port}.txt").read_text()[-2000:]


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


@contextmanager
def started(
    folder: Path, name: str, program: str, port: int
) -> Iterator[subprocess.Popen[str]]:
    """Start a program on a port, and end it."""
    file = folder / f"{port}_{name}"
    file.write_text(program.replace(str(PORT), str(port)))
    modules = os.pathsep.join([str(folder), *sys.path])
    command = [sys.executable, "-c", RUN, str(port), str(file)]
    environment = {**os.environ, "PYTHONPATH": modules}
    with (
        (folder / f"{port}.txt").open("a") as log,
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def said(folder: Path, client: str, port: int) -> str:
    """Run a client, and return what it prints."""
    with started(folder, "client.py", client, port) as process:
        told, _ = process.communicate(timeout=PATIENCE_S)
        return told.strip()


def answers(program: Program) -> bool:
    """Whether a program's client prints what its service returns."""
    with TemporaryDirectory() as made:
        folder = Path(made)
        for name, text in program.compiled.items():
            (folder / name).write_text(text)
        with serving(folder, program.service) as port:
            return said(folder, program.client, port) == GREETING


def called(devices: int) -> float:
    """Start as many services; return the share of calls that the right one answers."""
    ours, right = PROGRAMS[OURS], 0
    with TemporaryDirectory() as made:
        for device in range(devices):
            service = ours.service.replace("Hello", f"Device {device},")
            with serving(Path(made), service) as port:
                told = said(Path(made), WHO, port)
                right += told == GREETING.replace("Hello", f"Device {device},")
    return right / devices


def run_axon(study: AxonStudy, spread: Spread = in_order) -> Data:
    """Count lines, and run what was counted."""
    # Its parent is asked for first: `find_spec` raises where that is missing.
    if not all(map(find_spec, ("grpc", "google"))) or not find_spec("google.protobuf"):
        raise ConfigError("Table 2.1 runs gRPC: pip install grpcio protobuf")
    programs = {name: PROGRAMS[name] for name in study.programs}
    service = PROGRAMS[OURS].service
    ways = [Program(service=service, client=CLIENTS[name]) for name in study.clients]
    found = spread(answers, [*programs.values(), *ways])
    data: Data = {"clients": np.array(float(sum(found[len(programs) :])))}
    data["devices"] = np.array(called(study.devices))
    for (name, program), answered in zip(programs.items(), found, strict=False):
        data[f"{name}/service"] = np.array(float(extra_lines(program.service)))
        data[f"{name}/client"] = np.array(float(len(code_lines(program.client))))
        data[f"{name}/interface"] = np.array(
            float(sum(bool(line.strip()) for line in program.interface.splitlines()))
        )
        data[f"{name}/answers"] = np.array(float(answered))
    return data


def names_in(data: Data) -> list[str]:
    """Return the frameworks that were run."""
    return [key.removesuffix("/service") for key in data if key.endswith("/service")]


def table_of_axon(data: Data) -> Cells:
    """Lines of every program, and Table 2.1 below."""
    rows = [["", "interface", "service, beyond the function", "client", "it answers"]]
    for name in names_in(data):
        cells = [int(data[f"{name}/{what}"]) for what in ("interface", "service")]
        answered = "yes" if data[f"{name}/answers"] else "no"
        rows.append(
            [name, *map(str, cells), str(int(data[f"{name}/client"])), answered]
        )
    rows.append(["*Table 2.1*", "*easy to use*", "*device*", "*concurrency*", ""])
    rows += [[f"{name}, printed", *features, ""] for name, features in PRINTED.items()]
    ours = (
        "yes" if data[f"{OURS}/service"] <= data["Axon/service"] else "no",
        "yes" if data["devices"] == 1.0 else "no",
        "yes" if data["clients"] > 1 else "no",
    )
    return [*rows, [f"{OURS}, as it was run", *ours, ""]]


def claims_of_axon(data: Data) -> list[Claim]:
    """Sections 2.4.1 and 2.4.4."""
    lines = {name: float(data[f"{name}/service"]) for name in names_in(data)}
    return [
        Claim(
            what="Lines of a gRPC service beyond its function",
            printed="13",
            ours=exact(lines["gRPC"]),
            rule=near(13.0, 1.0, weaker=3.0),
            digits=0,
            why="the printed program has one line more than its text counts",
        ),
        Claim(
            what="Lines of an Axon service beyond its function, by our module of that "
            "name",
            printed="3",
            ours=exact(lines["Axon"]),
            rule=near(3.0, 0.0, weaker=1.0),
            digits=0,
        ),
        Claim(
            what=f"Lines of a service of {OURS} beyond its function",
            printed="3 (Axon's)",
            ours=exact(lines[OURS]),
            rule=at_most(3.0, weaker=5.0),
            kind=Kind.OWN,
            digits=0,
        ),
        Claim(
            what=f"Calls of {OURS} that the device answers whose address was given",
            printed="yes (Axon)",
            ours=exact(100.0 * float(data["devices"])),
            rule=at_least(100.0),
            unit="%",
            kind=Kind.OWN,
            digits=0,
        ),
        Claim(
            what=f"Ways of {OURS} to wait for an answer: at once, joined, awaited",
            printed="more than one (Axon)",
            ours=exact(float(data["clients"])),
            rule=at_least(2.0),
            kind=Kind.OWN,
            digits=0,
        ),
    ]


PAPER = Paper(
    key="axon",
    title="Axon: remote calls for mobile edge learning",
    citation="D. Mays, *Data Allocation and Benchmarking in Parallelized Mobile Edge "
    "Learning*, thesis, Queen's University, 2023, chapter 2.",
    differences=(
        "Programs are our own, as short as the thesis's and to the same end; those of "
        "gRPC need an interface, and modules made of it, which are not counted. Every "
        "program is run.",
        "Axon's is its API on top of our wire (`melisma.rpc.axon`); Axon itself is "
        "raced in [rpc.md](../rpc.md#speed).",
        "PySyft is not run. Ray has let a caller choose the machine since the thesis "
        "was written (`NodeAffinitySchedulingStrategy`), by which our "
        "[engine](../ray.md) has a learner on each node.",
    ),
    main=(
        Main(
            "A service takes three lines, where gRPC's takes thirteen",
            "Table 2.1",
            "Lines of an Axon service beyond its function, by our module of that name",
        ),
    ),
    exhibits=(
        Exhibit(
            kind="Table",
            name="2.1",
            title="frameworks, and the lines that they take",
            file="table2.1_frameworks",
            caption="Lines with code of a service that greets, and of its client, as "
            "they were run.",
            quick=AxonStudy(),
            full=AxonStudy(),
            run=run_axon,
            table=table_of_axon,
            claims=claims_of_axon,
        ),
    ),
)
