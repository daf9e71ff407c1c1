"""pfl-research: FederatedAveraging on its SimulatedBackend, in one process.

pfl evaluates every learner in its first cycle, before and after training; ``metrics``
is empty, so that this costs next to nothing.
"""

from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from melisma.learning.parameters import Parameters, parameters_of
from peers.meter import Meter
from peers.workload import BATCH, RATE, Workload, initial_model, samples


def run(workload: Workload, meter: Meter) -> Parameters:
    """Weight by samples, and let the central optimiser put the mean in place."""
    model = _Network(*initial_model().children())
    learners = _learners(workload)
    backend = SimulatedBackend(
        training_data=learners,
        val_data=learners,
        postprocessors=[WeightByDatapoints()],
    )
    meter.tick()
    FederatedAveraging().run(
        backend=backend,
        model=PyTorchModel(
            model=model,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        ),
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=workload.cycles,
            evaluation_frequency=workload.cycles,
            train_cohort_size=workload.learners,
            val_cohort_size=None,
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[_Ticks(meter)],
        send_metrics_to_platform=False,
    )
    return parameters_of(model)


def _learners(workload: Workload) -> Any:
    """All learners, in turn, their batches cut once and kept."""
    datasets = [
        PyTorchTensorDataset(samples(k), user_id=str(k))
        for k in range(workload.learners)
    ]
    turn = MinimizeReuseUserSampler(range(workload.learners))
    return FederatedDataset(datasets.__getitem__, turn)


class _Network(nn.Sequential):
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        return {}


class _Ticks(TrainingProcessCallback):  # type: ignore[misc]
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Any]:
        self._meter.tick()
        return False, Metrics()
