"""Learners that tests start on nodes, where this module is imported."""

import os
import time
from typing import Any

import msgspec
from tests.fleets.learners import Steady, slow

from melisma.fleets.messages import Speeds, TrainRequest, Update
from melisma.learner.learner import Learner
from melisma.learner.source import Caller
from melisma.learner.throttle import sleep_unless
from melisma.ray.cluster import ray


def steady(name: str) -> Learner:
    return Steady(name=name)


class Boaster(Learner):
    """Tells of a thousand times the speed that it has."""

    def speeds(self, task: str, drifted: bool) -> Speeds:
        return Speeds(step_s=1e-5, sample_s=1e-6, fixed_s=0.1)


def boaster(name: str) -> Learner:
    return Boaster(name=name, background=slow(30.0))


class Hanging(Steady):
    """Never answers in the second cycle."""

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        if request.cycle == 2:
            sleep_unless(caller.gave_up, 600.0)
        return super().train(request, caller)


class Poisoner(Steady):
    """Answers with numbers that are none, in the first cycle."""

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        update = super().train(request, caller)
        if request.cycle > 1:
            return update
        poison = {name: 0 * t / 0 for name, t in update.parameters.items()}
        return msgspec.structs.replace(update, parameters=poison)


def c_hangs(name: str) -> Learner:
    return (Hanging if name == "c" else Steady)(name=name)


def troublesome(name: str) -> Learner:
    return {"b": Poisoner, "c": Hanging}.get(name, Steady)(name=name)


class Odd(Learner):
    """Answers what no learner is asked."""

    caller: Caller

    def prepare(self, spec: Any) -> Any:
        """Say where it runs, or what became of its caller; or fail, or crash."""
        match spec:
            case "where":
                return ray.get_runtime_context().get_node_id(), os.getpid()
            case "given up":
                return self.caller.gave_up()
            case "fail":
                raise ValueError("on purpose")
            case "crash":
                os._exit(1)

    def measure(self, name: str, keys: Any, caller: Caller) -> None:
        """Do nothing for ``keys`` seconds, and keep the caller."""
        self.caller = caller
        time.sleep(keys)


def odd(name: str) -> Learner:
    return Odd(name=name)
