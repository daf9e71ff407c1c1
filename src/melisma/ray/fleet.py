"""Learners on a Ray cluster, one on every node.

All rules are those of live runs, and so is their code: `Roster` gets learners ready,
`LiveLearners` orders and refuses. Here is how a node is called, and how it gets what
it trains on: the cycle's model by the object store, where it is put once and from where
Ray sends it to each node once, and shards, of which a learner keeps what it has had, by
an actor beside the orchestrator.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from melisma import rpc
from melisma.errors import CallTimeout, RemoteError, TransportError
from melisma.fleets.messages import GradientRequest, TrainRequest
from melisma.fleets.roster import HURRY_S, LOOK_S
from melisma.fleets.served import ModelServer, ServedTask
from melisma.ray.cluster import ray
from melisma.ray.learner import Actor, Make

log = logging.getLogger("melisma.orchestrator")

#: The label of a node with its learner's name.
LABEL = "melisma.learner"


@dataclass(slots=True)
class Node:
    """A node, and the actor that is its learner."""

    id: str
    actor: Any
    gone: bool = False  #: the actor, whatever became of the node


class Models:
    """Each task's model in the object store, put there once a cycle."""

    def __init__(self, served: Sequence[ServedTask]) -> None:
        self._served = {task.task: task for task in served}
        self._put: dict[str, tuple[int, Any]] = {}  # cycle and reference, by task

    def of(self, name: str, args: tuple[Any, ...]) -> list[Any]:
        """Return a reference to the model of a request, if that is the argument.

        And one to the learner's correction, if it has one.

        In a list it is the learner that fetches it, on its own clock, and not Ray
        before the learner is called.
        """
        match args:
            case (TrainRequest() | GradientRequest() as request,):
                served = self._served[request.task]
                cycle, reference = self._put.get(request.task, (None, None))
                if cycle != request.cycle:
                    reference = ray.put(served.models[request.cycle])
                    self._put[request.task] = request.cycle, reference
                correction = served.corrections.get(name)
                return [reference, *([ray.put(correction)] if correction else [])]
        return []


class ModelActor(ModelServer):
    """The model server as an actor, made of a reference so that it can restart.

    Ray would warn that a plain reference may be gone by then; a serialised one is kept
    for as long as this process has joined the cluster.
    """

    def __init__(self, served: bytes) -> None:
        super().__init__(ray.get(ray.cloudpickle.loads(served)))


class Nodes:
    """The learners of a cluster: one is started on each node with a CPU."""

    def __init__(self, served: Sequence[ServedTask], *, make: Make) -> None:
        self.metrics = rpc.Metrics()  #: empty: Ray's calls are not counted
        self._make, self._models = make, Models(served)
        self._nodes: dict[str, Node] = {}
        self._expelled: set[str] = set()
        for task in served:
            task.store.all()  # hashed here once: the actor has a copy
        here = ray.get_runtime_context().get_node_id()
        reference = ray.cloudpickle.dumps(  # type: ignore[no-untyped-call]
            ray.put(served)
        )
        self._model_server = _pinned(
            ModelActor, here, num_cpus=0, max_restarts=-1, max_task_retries=-1
        ).remote(reference)

    @property
    def silences_s(self) -> Mapping[str, float | None]:
        """Zero for every node that is there: Ray does not say when each was heard."""
        return dict.fromkeys(self._nodes, 0.0)

    async def wait_until(self, count: int) -> Collection[str]:
        """Look at the cluster until that many learners are there; return them all."""
        while True:
            await self._look()
            if len(self._nodes) >= count:
                return list(self._nodes)
            await asyncio.sleep(LOOK_S)

    async def call(
        self, name: str, function: str, *args: Any, within_s: float | None = None
    ) -> Any:
        """Call a node's learner; RpcError as of a learner that dialled in.

        Cancelling the call, or its timeout, stops the learner too.
        """
        if (node := self._nodes.get(name)) is None:
            raise TransportError(f"{function}: no node has the learner {name}")
        models = self._models.of(name, args)
        reference = node.actor.answer.remote(function, args, models, within_s)
        try:
            async with asyncio.timeout(within_s):
                return await reference
        except ray.exceptions.RayTaskError as error:
            cause = error.cause  # may be a TimeoutError, and so is the whole then
            raise RemoteError(type(cause).__name__, str(cause), str(error)) from None
        except ray.exceptions.RayError as error:
            node.gone = True
            raise TransportError(
                f"the actor of {name} is gone: {type(error).__name__}"
            ) from error
        except TimeoutError:
            ray.cancel(reference)
            raise CallTimeout(
                f"{function}: no answer from {name} within {within_s:g} s"
            ) from None
        except asyncio.CancelledError:
            ray.cancel(reference)
            raise

    def expel(self, name: str, reason: str) -> None:
        """End a node's learner, and start none of that name again."""
        self._expelled.add(name)
        self._end(name)

    async def _look(self) -> None:
        """Start learners on new nodes, and forget those that are gone."""
        try:
            async with asyncio.timeout(HURRY_S):
                known = await asyncio.to_thread(nodes)
        except TimeoutError:
            log.warning("the cluster's head did not answer within %g s", HURRY_S)
            return
        ids = {name: node.id for name, node in self._nodes.items()}
        there = learners(known, ids)
        for name, node in list(self._nodes.items()):
            if node.gone or there.get(name) != node.id:
                self._end(name)
        for name, id in there.items():
            if name not in self._nodes and name not in self._expelled:
                actor = _pinned(Actor, id, num_cpus=1).remote(
                    name, self._make, self._model_server
                )
                self._nodes[name] = Node(id, actor)

    def _end(self, name: str) -> None:
        if node := self._nodes.pop(name, None):
            ray.kill(node.actor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._nodes):
            self._end(name)
        ray.kill(self._model_server)


def _pinned(kind: type, id: str, **options: Any) -> Any:
    """An actor that runs on this node, or not at all."""
    there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(id, False)
    return ray.remote(kind).options(scheduling_strategy=there, **options)


def nodes() -> list[dict[str, Any]]:
    """Ask the cluster's head for its nodes."""
    known: Any = ray.nodes  # untyped there
    return list(known())


def learners(
    known: Iterable[Mapping[str, Any]], taken: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the ids of nodes that are learners, alive and with a CPU, by name.

    A node's name is its label, or made of its id. Of two nodes with one name, the one
    that has it in ``taken`` keeps it, or else the first.

    >>> pi = {"Alive": True, "Resources": {"CPU": 4.0}, "Labels": {LABEL: "pi"}}
    >>> head = {"Alive": True, "Resources": {}, "Labels": {}}
    >>> learners([{**head, "NodeID": "0a"}, {**pi, "NodeID": "0b"}])
    {'pi': '0b'}
    """
    taken = taken or {}
    found: dict[str, list[str]] = {}
    for node in known:
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1:
            id = str(node["NodeID"])
            name = node["Labels"].get(LABEL) or f"node-{id[:8]}"
            found.setdefault(name, []).append(id)
    return {
        name: taken[name] if taken.get(name) in ids else ids[0]
        for name, ids in found.items()
    }
