"""Flower's simulation: FedAvg over messages to virtual clients in two Ray actors.

Actors find this module by its name, as they would find an app's: what an actor has
read of the pool it keeps from one message to the next.
"""

import logging
from functools import partial
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from melisma.learning.parameters import Parameters
from peers.meter import Meter
from peers.workload import Workload, initial_model, samples, train

CLIENTS_AT_ONCE = 2


def run(workload: Workload, meter: Meter) -> Parameters:
    """All clients in every round, no evaluation, a cluster of its own."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    client_app, server_app = ClientApp(), ServerApp()
    client_app.train()(_train)
    final: Parameters = {}
    server_app.main()(partial(_serve, workload, meter, final))
    meter.tick()
    run_simulation(
        server_app,
        client_app,
        num_supernodes=workload.learners,
        backend_config={
            "init_args": {"address": "local", "num_cpus": CLIENTS_AT_ONCE},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    return final


def _serve(
    workload: Workload, meter: Meter, final: Parameters, grid: Any, context: Any
) -> None:
    def tick(cycle: int, arrays: Any) -> None:
        if cycle:
            meter.tick()

    # Without the minima, a first round begins before all clients are there.
    strategy = FedAvg(
        fraction_train=1.0,
        fraction_evaluate=0.0,
        min_train_nodes=workload.learners,
        min_available_nodes=workload.learners,
    )
    result = strategy.start(
        grid,
        ArrayRecord(initial_model().state_dict()),
        num_rounds=workload.cycles,
        evaluate_fn=tick,
    )
    final |= result.arrays.to_torch_state_dict()


def _train(message: Any, context: Any) -> Any:
    torch.set_num_threads(1)
    model = initial_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = samples(context.node_config["partition-id"])
    train(model, x, y)
    content: dict[str, ArrayRecord | MetricRecord | ConfigRecord] = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(y)}),
    }
    return Message(RecordDict(content), reply_to=message)
