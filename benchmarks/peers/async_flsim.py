"""FedBuff on FLSim's `AsyncTrainer`: ``python async_flsim.py problem.npz weights.npz``.

Needs FLSim and what it imports, in an environment of their own (``flsim.txt``).
Metrics, evaluation and progress bars are off. A client starts every second, in turn,
and takes half a second more than K of them do to start: so each starts anew just before
its update counts, as melisma's learners do, and both train from the same models.

FLSim is of 2022. Its configurations have defaults that Python 3.11 takes for mutable
ones, unless their classes can be hashed: so they are made hashable while it is
imported, and nothing else is changed.
"""
# ruff: noqa: E402, D102  that is before imports; methods are FLSim's

import dataclasses
import json
import os
import sys
import time
from functools import partial
from typing import Any

os.environ["TQDM_DISABLE"] = "1"

import hydra
import numpy as np
import opacus
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

assert hydra, opacus  # imported before dataclasses are changed: theirs stay as they are
plain_dataclass = dataclasses.dataclass
dataclasses.dataclass = partial(plain_dataclass, unsafe_hash=True)
from flsim.clients.base_client import ClientConfig
from flsim.data.data_provider import FLDataProviderFromList
from flsim.interfaces.model import IFLModel
from flsim.optimizers.async_aggregators import FedAvgWithLRFedBuffAggregatorConfig
from flsim.optimizers.local_optimizers import LocalOptimizerSGDConfig
from flsim.trainers.async_trainer import AsyncTrainer, AsyncTrainerConfig
from flsim.utils.async_trainer.async_staleness_weights import (
    PolynomialStalenessWeightConfig,
)
from flsim.utils.async_trainer.async_user_selector import AsyncUserSelectorType
from flsim.utils.async_trainer.async_weights import AsyncWeightConfig
from flsim.utils.async_trainer.training_event_generator import (
    AsyncTrainingEventGeneratorConfig,
    ConstantAsyncTrainingStartTimeDistrConfig,
)
from flsim.utils.simple_batch_metrics import FLBatchMetrics
from flsim.utils.timing.training_duration_distribution import (
    PerUserGaussianDurationDistributionConfig,
)
from omegaconf import OmegaConf

dataclasses.dataclass = plain_dataclass

Batch = tuple[Tensor, Tensor]


class Perceptron(IFLModel):  # type: ignore[misc]
    """A model as FLSim takes it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def fl_forward(self, batch: Batch) -> Any:
        x, y = batch
        outputs = self.module(x)
        return FLBatchMetrics(
            loss=cross_entropy(outputs, y),
            num_examples=len(y),
            predictions=outputs,
            targets=y,
            model_inputs=x,
        )

    def fl_create_training_batch(self, batch: Batch) -> Batch:
        return batch

    def fl_get_module(self) -> nn.Module:
        return self.module

    def fl_cuda(self) -> None:
        raise NotImplementedError

    def get_eval_metrics(self, batch: Batch) -> Any:
        return self.fl_forward(batch)

    def get_num_examples(self, batch: Batch) -> int:
        return len(batch[1])


def model_of(data: Any) -> nn.Sequential:
    """Return the perceptron, with melisma's names and weights."""
    layers: list[nn.Module] = [nn.Flatten()]
    state = {n: torch.from_numpy(data[n]) for n in data.files if n[0].isdigit()}
    for name in sorted(n for n in state if n.endswith("weight")):
        units, features = state[name].shape
        layers += [nn.Linear(features, units), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    model.load_state_dict(state)
    return model


def batches_of(data: Any) -> list[list[Batch]]:
    """Return the batches of each client."""
    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    learners, size = int(data["learners"]), int(data["batch"])
    users = zip(x.chunk(learners), y.chunk(learners), strict=True)
    return [
        list(zip(torch.split(xs, size), torch.split(ys, size), strict=True))
        for xs, ys in users
    ]


def config_of(data: Any) -> AsyncTrainerConfig:
    """Return FedBuff with melisma's numbers, and all that reports turned off."""
    learners, buffer = int(data["learners"]), int(data["buffer"])
    return AsyncTrainerConfig(
        epochs=float(data["rounds"]),
        do_eval=False,
        report_train_metrics=False,
        client=ClientConfig(
            epochs=int(data["epochs"]),
            optimizer=LocalOptimizerSGDConfig(lr=float(data["rate"])),
        ),
        aggregator=FedAvgWithLRFedBuffAggregatorConfig(
            buffer_size=buffer, lr=1.0 / buffer
        ),
        async_user_selector_type=AsyncUserSelectorType.ROUND_ROBIN,
        async_weight=AsyncWeightConfig(
            staleness_weight=PolynomialStalenessWeightConfig(
                exponent=0.5, avg_staleness=0
            )
        ),
        training_event_generator=AsyncTrainingEventGeneratorConfig(
            training_start_time_distribution=(
                ConstantAsyncTrainingStartTimeDistrConfig(training_rate=1.0)
            ),
            duration_distribution_generator=PerUserGaussianDurationDistributionConfig(
                training_duration_mean=learners - 0.5
            ),
        ),
    )


def main(problem: str, weights: str) -> None:
    """Train, print the seconds as JSON, and write the weights."""
    torch.set_num_threads(1)
    data = np.load(problem)
    model = Perceptron(model_of(data))
    users = FLDataProviderFromList(batches_of(data), [], [], model)
    trainer = AsyncTrainer(model=model, **OmegaConf.structured(config_of(data)))
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    trainer.train(users, None, int(data["learners"]))
    seconds = time.perf_counter() - began_s
    cpu_s = time.process_time() - began_cpu_s
    np.savez(weights, **{n: t.numpy() for n, t in model.module.state_dict().items()})
    versions = trainer.aggregator.global_seqnum
    print(json.dumps({"wall_s": seconds, "cpu_s": cpu_s, "versions": versions}))


if __name__ == "__main__":
    main(*sys.argv[1:])
