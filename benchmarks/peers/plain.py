"""A plain loop in PyTorch: one module, loaded and trained for one learner at a time."""

import torch

from melisma.learning.parameters import Parameters, parameters_of
from peers.meter import Meter
from peers.workload import SAMPLES, Workload, initial_model, samples, train


def run(workload: Workload, meter: Meter) -> Parameters:
    """Sum in double precision: the others are held against this result."""
    model = initial_model()
    mean = parameters_of(model)
    learners = [samples(k) for k in range(workload.learners)]
    meter.tick()
    for _ in range(workload.cycles):
        total = {name: torch.zeros_like(p).double() for name, p in mean.items()}
        for x, y in learners:
            model.load_state_dict(mean)
            train(model, x, y)
            for name, value in model.state_dict().items():
                total[name].add_(value, alpha=len(y))
        weight = SAMPLES * workload.learners
        mean = {name: (p / weight).float() for name, p in total.items()}
        meter.tick()
    return mean
