"""Learners that tests start on nodes, where this module is imported."""

import os
import time
from typing import Any

import msgspec
from tests.fleets.learners import Steady, slow

from melisma import rpc
from melisma.fleets.messages import Speeds, TrainRequest, Update
from melisma.learner.learner import Learner
from melisma.ray.cluster import ray


def steady(name: str) -> Learner:
    return Steady(name=name)


class Boaster(Learner):
    """Tells of a thousand times the speed that it has."""

    @rpc.expose
    def speeds(self, task: str, drifted: bool) -> Speeds:
        return Speeds(step_s=1e-5, sample_s=1e-6, fixed_s=0.1)


def boaster(name: str) -> Learner:
    return Boaster(name=name, owner=slow(100.0))


class Hanging(Steady):
    """Never comes back from its request of the second cycle."""

    @rpc.expose
    def train(self, request: TrainRequest) -> Update:
        if request.cycle == 2:
            rpc.current().sleep(600.0)
        return super().train(request)


class Poisoner(Steady):
    """Answers with numbers that are none, in the first cycle."""

    @rpc.expose
    def train(self, request: TrainRequest) -> Update:
        update = super().train(request)
        if request.cycle > 1:
            return update
        poison = {name: 0 * t / 0 for name, t in update.parameters.items()}
        return msgspec.structs.replace(update, parameters=poison)


def c_hangs(name: str) -> Learner:
    return (Hanging if name == "c" else Steady)(name=name)


def troublesome(name: str) -> Learner:
    return {"b": Poisoner, "c": Hanging}.get(name, Steady)(name=name)


class Odd(Learner):
    """Has functions that no learner has, to be looked at."""

    naps: list[Any]

    def where(self) -> tuple[str, int]:
        """The node and the process that it is on."""
        id: str = ray.get_runtime_context().get_node_id()
        return id, os.getpid()

    def nap(self, seconds: float) -> None:
        """Do nothing, and keep the call."""
        self.naps = [rpc.current()]
        time.sleep(seconds)

    def given_up(self) -> bool:
        """Whether the last nap was given up by who asked for it."""
        return bool(self.naps[-1].cancelled)

    def fail(self) -> None:
        raise ValueError("on purpose")

    def crash(self) -> None:
        os._exit(1)


def odd(name: str) -> Learner:
    return Odd(name=name)
