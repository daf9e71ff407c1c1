"""Flower's own FedAvg on the benchmark's setting, as an app or in its simulation.

    python flower_fedavg.py     # in Flower's simulation: a Ray actor for each client

SuperNodes are told by ``partition-id`` which learner they are.
"""

import logging
from contextlib import suppress
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from peers import emulated

client = ClientApp()
server = ServerApp()


class Accurate(Exception):
    """The target is reached: Flower has no other way to end its rounds early."""


@client.train()
def train(message: Any, context: Any) -> Any:
    """Train one order of the learner that this node is."""
    model = emulated.loaded(message.content["arrays"].to_torch_state_dict())
    samples = emulated.train(model, int(context.node_config["partition-id"]))
    content: dict[str, ArrayRecord | MetricRecord | ConfigRecord] = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": samples}),
    }
    return Message(RecordDict(content), reply_to=message)


@server.main()
def serve(grid: Any, context: Any) -> None:
    """All nodes in every round; the server evaluates after each."""
    numbers = emulated.setting()
    learners = len(numbers["sample_s"])
    strategy = FedAvg(
        fraction_train=1.0,
        fraction_evaluate=0.0,
        min_train_nodes=learners,
        min_available_nodes=learners,
    )
    with suppress(Accurate):
        strategy.start(
            grid,
            ArrayRecord(emulated.Perceptron().state_dict()),
            num_rounds=numbers["rounds"],
            evaluate_fn=_evaluate,
        )


def _evaluate(cycle: int, arrays: Any) -> None:
    if cycle and emulated.evaluate(emulated.loaded(arrays.to_torch_state_dict())):
        raise Accurate


def simulate() -> None:
    """Run it in Flower's simulation, every client on a core of its own: it sleeps."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    learners = len(emulated.setting()["sample_s"])
    run_simulation(
        server,
        client,
        num_supernodes=learners,
        backend_config={
            "init_args": {"address": "local", "num_cpus": learners},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    # By its own name, as actors find it.
    from peers import flower_fedavg

    flower_fedavg.simulate()
