"""Under DAB nothing about a learner's speed leaves it: every byte sent is read."""

import platform
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from tests.fleets.learners import slow

from melisma import rpc
from melisma.fleets.messages import Ready, Speeds, TrainRequest, Update
from melisma.jobs.schema import Job
from melisma.launch.serve import orchestrate
from melisma.learner.learner import Learner
from melisma.learner.service import Service
from melisma.learner.source import Caller
from melisma.rpc import frames
from melisma.rpc.values import unpack
from melisma.units import Deadline

RATE = 1234.5678  # samples/s: to be found nowhere


class Tap:
    """Forwards TCP connections to a port, and keeps what went from who dials."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.heard: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._port))
            except OSError:  # the run is over
                near.close()
                continue
            heard = bytearray()
            self.heard.append(heard)
            for source, sink, keep in ((near, far, heard), (far, near, bytearray())):
                threading.Thread(
                    target=_forward, args=(source, sink, keep), daemon=True
                ).start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


def _forward(source: socket.socket, sink: socket.socket, keep: bytearray) -> None:
    with source:
        try:
            while data := source.recv(1 << 16):
                keep += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def messages(stream: bytes) -> Iterator[bytes]:
    """The messages of a client's side of a WebSocket, after its HTTP request."""
    at = stream.index(b"\r\n\r\n") + 4
    while at < len(stream):
        opcode, length = stream[at] & 15, stream[at + 1] & 127
        at += 2
        if length == 126:
            (length,) = struct.unpack_from(">H", stream, at)
            at += 2
        elif length == 127:
            (length,) = struct.unpack_from(">Q", stream, at)
            at += 8
        mask, data = stream[at : at + 4], stream[at + 4 : at + 4 + length]
        at += 4 + length
        if opcode == 2:
            key = mask * (length // 4 + 1)
            yield bytes(a ^ b for a, b in zip(data, key, strict=False))


def told(stream: bytes) -> tuple[list[Any], dict[int, bytearray]]:
    """The frames and the memory that a learner sent."""
    heads: list[Any] = []
    memory: dict[int, bytearray] = {}
    for message in messages(stream):
        if message[0] == frames.CHUNK:
            transfer, part = frames.split_chunk(message)
            memory.setdefault(transfer, bytearray()).extend(part)
        elif message[0] == frames.BATCH:
            heads += [frames.decode(frame) for frame in frames.split_batch(message)]
        else:
            heads.append(frames.decode(message))
    return heads, memory


def values(heads: list[Any], memory: dict[int, bytearray]) -> Iterator[Any]:
    """What a learner answered, put together from frames and memory."""
    for head in heads:
        if isinstance(head, frames.Result | frames.Call):
            parts, rest = [], memory.get(head.transfer, bytearray())
            for size in head.sizes:
                parts.append(
                    torch.frombuffer(bytearray(rest[:size]), dtype=torch.uint8).numpy()
                )
                rest = rest[size:]
            body = frames.unwrap(head.body)
            if body is None:
                body, parts = parts[0].tobytes(), parts[1:]
            yield unpack(body, parts)


#: What the requests of that learner said of their deadlines.
deadlines: list[float] = []


class Noting(Learner):
    def train(self, request: TrainRequest, caller: Caller) -> Update:
        deadlines.append(request.deadline_s)
        return super().train(request, caller)


@pytest.fixture(scope="module")
def learner_said(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Everything that a learner sent in two cycles of DAB."""
    folder = tmp_path_factory.mktemp("run")
    job = Job(
        name="dab", scheme="dab", cycles=2, deadline=Deadline(5.0), shard=50, steps=1
    )
    with ExitStack() as stack:

        def start(server: rpc.Server) -> None:
            tap = Tap(server.port)
            stack.callback(tap.close)
            service = Service(Noting(name="a", background=slow(RATE)))
            stack.enter_context(rpc.connect(tap.address, service, name="a"))
            taps.append(tap)

        taps: list[Tap] = []
        orchestrate(job, folder, learners=1, ready=start, port=0, say=lambda text: None)
    (heard,) = taps[0].heard
    return bytes(heard)


@pytest.mark.slow
def test_no_speed_time_or_hardware_leaves_a_learner(learner_said: bytes) -> None:
    heads, memory = told(learner_said)
    kinds = {type(head) for head in heads}
    assert kinds <= {
        frames.Hello,
        frames.Ack,
        frames.Call,
        frames.Result,
        frames.Bye,
    }
    answers = list(values(heads, memory))
    updates = [value for value in answers if isinstance(value, Update)]
    assert len(updates) == 2
    for update in updates:
        assert update.downloaded_s is None
        assert update.trained_s is None
        assert all(t.dtype == torch.float32 for t in update.parameters.values())
    rest = [value for value in answers if not isinstance(value, Update)]
    for value in rest:
        assert not isinstance(value, Speeds)
        # Readiness, a bid, nothing, or the arguments of a request: cycle and keys.
        assert value is None or isinstance(value, int | Ready | list)
        if isinstance(value, list):
            assert not any(isinstance(part, float) for part in _leaves(value))
    called = {head.function for head in heads if isinstance(head, frames.Call)}
    assert called == {"parameters", "shards"}
    # A time limit is the one that the request came with, not what is left of it.
    limits = {head.within_s for head in heads if isinstance(head, frames.Call)}
    assert limits <= {None, *deadlines}


@pytest.mark.slow
def test_neither_the_rate_nor_the_machine_is_named_anywhere(
    learner_said: bytes,
) -> None:
    heads, _ = told(learner_said)
    (hello,) = [head for head in heads if isinstance(head, frames.Hello)]
    assert hello.name == "a"
    request = learner_said[: learner_said.index(b"\r\n\r\n")]
    plain = request + b"".join(
        message for message in messages(learner_said) if message[0] != frames.CHUNK
    )
    for detail in (socket.gethostname(), platform.node(), platform.release()):
        # Two or three letters are in so many bytes by chance.
        assert len(detail) < 4 or detail.encode() not in plain
    for number in (RATE, 1 / RATE):
        assert struct.pack(">d", number) not in plain
        assert struct.pack("<d", number) not in plain


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _leaves(part)
    else:
        yield value
