"""A fleet on a Ray cluster: a learner on every node, called as if it had dialled in.

All rules are those of live runs, and so is their code: `Roster` gets learners ready,
`LiveLearners` orders and refuses. Here is how a node is called, and how it gets what
it trains on: the cycle's model by the object store, where it is put once and from where
Ray sends it to each node once, and shards, of which a learner keeps what it has had, by
an actor beside the orchestrator.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from melisma import rpc
from melisma.errors import CallTimeout, RemoteError, TransportError
from melisma.fleets.live import ModelServer, ServedTask
from melisma.fleets.messages import GradientRequest, TrainRequest
from melisma.fleets.roster import HURRY_S, LOOK_S
from melisma.ray.cluster import ray
from melisma.ray.learner import Actor, Make

log = logging.getLogger("melisma.orchestrator")

#: The label of a node that says what its learner is called.
LABEL = "melisma.learner"


class Node:
    """The learner on one node, called as a `rpc.Peer` is: ``await node.bid(…)``."""

    functions = ("train",)  #: what tells learners from other peers

    def __init__(self, name: str, id: str, actor: Any, models: "Models") -> None:
        self.name, self.id = name, id
        self.actor, self.models = actor, models
        self.gone = False  #: the actor, whatever became of the node

    def __getattr__(self, function: str) -> "Function":
        if function.startswith("_"):
            raise AttributeError(function)
        return Function(self, function)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a node's learner."""

    node: Node
    name: str
    within_s: float | None = None

    def within(self, seconds: float) -> "Function":
        """Return the same with a time limit."""
        return replace(self, within_s=seconds)

    async def __call__(self, *args: Any) -> Any:
        """Call it; an RpcError, as of a learner that dialled in, if it fails.

        Whatever ends the waiting before there is an answer stops the learner, too.
        """
        node = self.node
        ref = node.actor.answer.remote(
            self.name, args, node.models.of(args), self.within_s
        )
        try:
            async with asyncio.timeout(self.within_s):
                return await ref
        except ray.exceptions.RayTaskError as error:
            cause = error.cause  # may be a TimeoutError, and so is the whole then
            raise RemoteError(type(cause).__name__, str(cause), str(error)) from None
        except ray.exceptions.RayError as error:
            node.gone = True
            raise TransportError(
                f"the actor of {node.name} is gone: {type(error).__name__}"
            ) from error
        except TimeoutError:
            ray.cancel(ref)
            raise CallTimeout(
                f"{self.name}: no answer from {node.name} within {self.within_s:g} s"
            ) from None
        except asyncio.CancelledError:
            ray.cancel(ref)
            raise


class Models:
    """Each task's model in the object store, put there once a cycle."""

    def __init__(self, served: Sequence[ServedTask]) -> None:
        self._served = {one.task: one for one in served}
        self._put: dict[str, tuple[int, Any]] = {}  # cycle and reference, by task

    def of(self, args: tuple[Any, ...]) -> list[Any]:
        """Return a reference to the model of a request, if that is what they are.

        In a list it is the learner that fetches it, on its own clock, and not Ray
        before the learner is called.
        """
        match args:
            case (TrainRequest() | GradientRequest() as request,):
                served = self._served[request.task]
                cycle, ref = self._put.get(request.task, (None, None))
                if cycle != served.cycle:
                    ref = ray.put(served.parameters)
                    self._put[request.task] = served.cycle, ref
                return [ref]
        return []


class ModelActor(ModelServer):
    """The model server, made of a reference that stays good: it can start again.

    Ray would warn that a plain reference may be gone by then; one that was written
    down is kept for as long as this process has joined the cluster.
    """

    def __init__(self, served: bytes) -> None:
        super().__init__(ray.get(ray.cloudpickle.loads(served)))


class Nodes:
    """The cluster's nodes as a roster calls them; a learner starts on each."""

    def __init__(self, served: Sequence[ServedTask], *, make: Make) -> None:
        self.metrics = rpc.Metrics()  #: of calls over Ray nothing is counted
        self._make, self._models = make, Models(served)
        self._nodes: dict[str, Node] = {}
        self._expelled: set[str] = set()
        for one in served:
            one.shelf.all()  # hashed here once: the actor has a copy
        here = ray.get_runtime_context().get_node_id()
        written = ray.cloudpickle.dumps(ray.put(served))  # type: ignore[no-untyped-call]
        self._models_actor = _pinned(
            ModelActor, here, num_cpus=0, max_restarts=-1, max_task_retries=-1
        ).remote(written)

    @property
    def peers(self) -> rpc.Group:
        """Who is there, as far as is known."""
        nodes: dict[str, Any] = dict(self._nodes)
        return rpc.Group(nodes)

    @property
    def silences_s(self) -> dict[str, float | None]:
        """How long ago each was heard: Ray says only who is there."""
        return dict.fromkeys(self._nodes, 0.0)

    async def wait_until(self, count: int) -> rpc.Group:
        """Look at the cluster until that many are there; return all that are."""
        while True:
            await self._look()
            if len(self._nodes) >= count:
                return self.peers
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        """Start learners on nodes that have none, and forget those that are gone."""
        try:
            async with asyncio.timeout(HURRY_S):
                known = await asyncio.to_thread(nodes)
        except TimeoutError:
            log.warning("the cluster's head does not say who is there")
            return
        ids = {name: node.id for name, node in self._nodes.items()}
        there = learners(known, ids)
        for name, node in list(self._nodes.items()):
            if node.gone or there.get(name) != node.id:
                self._end(name)
        for name, id in there.items():
            if name not in self._nodes and name not in self._expelled:
                actor = _pinned(Actor, id, num_cpus=1).remote(
                    name, self._make, self._models_actor
                )
                self._nodes[name] = Node(name, id, actor, self._models)

    def expel(self, name: str, reason: str) -> None:
        """End a node's learner, and start none of that name again."""
        self._expelled.add(name)
        self._end(name)

    def _end(self, name: str) -> None:
        if node := self._nodes.pop(name, None):
            ray.kill(node.actor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._nodes):
            self._end(name)
        ray.kill(self._models_actor)


def _pinned(kind: type, id: str, **options: Any) -> Any:
    """An actor that runs on this node, or not at all."""
    there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(id, False)
    return ray.remote(kind).options(scheduling_strategy=there, **options)


def nodes() -> list[dict[str, Any]]:
    """Return what the cluster's head knows of its nodes; it is asked anew."""
    known: Any = ray.nodes  # untyped there
    return list(known())


def learners(
    known: Iterable[Mapping[str, Any]], taken: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the nodes that are learners, alive and with a CPU: their ids by name.

    A node is called as its label says, or after its id. Where two want one name, it is
    whose it is in ``taken``, which is ids by name as well, or else the first one's.

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
