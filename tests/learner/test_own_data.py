"""Own data stays on the device: what a hostile orchestrator gets is looked through."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
from tests.learner.test_orders import FOG, SLOT, changed, own

from melisma import rpc
from melisma.errors import RemoteError
from melisma.learner.delivery import Inbox
from melisma.learner.fog import FogLearner
from melisma.learner.service import FogService, Listener
from melisma.learning import models
from melisma.learning.parameters import Parameters, parameters_of
from melisma.learning.shards import Shard
from melisma.rpc.session import Session


class Hostile:
    """An orchestrator that hands out a model, and keeps what it is to pass on."""

    def __init__(self, door: str | None = None) -> None:
        self.model, self.door = parameters_of(models.build("FogMLP", 0)), door
        self.relayed: list[Shard] = []

    @rpc.expose
    def parameters(self, task: str, cycle: int) -> Parameters:
        return self.model

    @rpc.expose
    def filler(self, task: str, size: int) -> Any:
        return np.zeros(size, np.uint8)

    @rpc.expose
    def address(self, task: str, to: str) -> str | None:
        return self.door

    @rpc.expose
    def relay(self, task: str, slot: int, to: str, shard: Shard) -> None:
        self.relayed.append(shard)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that either side receives, as it comes out of the WebSocket."""
    received: list[bytes] = []
    receive = Session._receive

    def noted(self: Session, data: bytes) -> None:
        received.append(bytes(data))
        receive(self, data)

    monkeypatch.setattr(Session, "_receive", noted)
    return received


@contextmanager
def device(hostile: Hostile, **options: Any) -> Iterator[Any]:
    """A device that has joined, as the orchestrator calls it."""
    learner = FogLearner(name="pi", own=own(), **options)
    with (
        rpc.serve(hostile, port=0, say=len) as server,
        closing(FogService(learner)) as service,
        rpc.connect(server.address, service, name="pi"),
    ):
        yield server.wait_for("pi")["pi"]


def leaked(wire: list[bytes]) -> int:
    """Samples of the device that went over the wire, byte for byte."""
    everything = b"".join(wire)
    return sum(sample.numpy().tobytes() in everything for sample in own().train[:]["x"])


THEFT = changed(SLOT, collected=20, kept=0, sent={"thief": 20})


def assert_no_slots(pi: Any) -> None:
    for function, *args in (("start", "f", 1, 1), ("slot", THEFT), ("finish", "f", 1)):
        with pytest.raises(RemoteError, match=r"Unprepared|ConfigError"):
            pi[function](*args)


def test_without_the_flag_no_order_gets_a_sample(wire: list[bytes]) -> None:
    hostile = Hostile()
    with device(hostile) as pi:
        with pytest.raises(RemoteError, match="join with --share-data"):
            pi.prepare(FOG)
        # Nor in any other way: not unprepared, nor as a task in which nothing moves.
        assert_no_slots(pi)
        assert pi.prepare(changed(FOG, moving=False)).samples == 20
        assert_no_slots(pi)
        pi.measure("f", ["k"])
    assert len(b"".join(wire)) > 1000
    assert (leaked(wire), hostile.relayed) == (0, [])


def test_with_the_flag_each_delivery_is_logged(
    wire: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "melisma.learner")
    hostile = Hostile()
    with device(hostile, share_data=True) as pi:
        pi.prepare(FOG)
        pi.start("f", 1, 1)
        done = pi.slot(changed(THEFT, ends_s=2.0))
    assert done.delivered == {"thief": 20}
    assert leaked(wire) == 20  # so the search finds what there is
    said = "f, slot 1: 20 samples of this device go to thief, by way of the orch"
    assert [text for text in caplog.messages if text.startswith(said)]


def test_and_so_is_one_that_goes_directly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "melisma.learner")
    inbox = Inbox()
    inbox.open("f", lambda shard: None)
    inbox.start("f", 1)
    with closing(Listener(inbox, "127.0.0.1")) as thief:
        hostile = Hostile(thief.admit("pi"))
        with device(hostile, share_data=True) as pi:
            pi.prepare(FOG)
            pi.start("f", 1, 1)
            done = pi.slot(changed(THEFT, ends_s=30.0))
    assert (done.directly, hostile.relayed) == (["thief"], [])
    assert "f, slot 1: 20 samples of this device go to thief, directly" in (
        caplog.messages
    )
