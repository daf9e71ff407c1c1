"""Sizes that only show with many learners."""

import subprocess
import sys

import numpy as np
import pytest

from melisma.schemes import SCHEMES
from melisma.system.problem import Problem

TEN_THOUSAND = """
import asyncio, resource
import numpy as np, torch
from melisma.learning import models
from melisma.learning.data import Dataset
from melisma.learning.samples import pairs
from melisma.learning.settings import Training
from melisma.algorithms.averaging import Averaging
from melisma.algorithms.loop import train
from melisma.runs.store import RunWriter
from melisma.algorithms.task import ScheduledTask
from melisma.fleets.simulated import SimulatedLearners
from melisma.system.law import DelayLaw

K = 10_000
x, y = torch.rand(60_000, 1, 28, 28), torch.randint(0, 10, (60_000,))
data = Dataset("pool", pairs(x, y), pairs(x[:100], y[:100]))
model = models.build("TwoNN", 0)
law = DelayLaw(step_s=np.full(K, 1e-3), sample_s=np.zeros(K), fixed_s=np.full(K, 0.1))
names = [f"learner-{k}" for k in range(K)]
fleet = SimulatedLearners(
    names, law, model=model, samples=data.train, training=Training(), seed=0
)
task = ScheduledTask(
    name="many", model=model, data=data, scheme="dab", steps=1, cycles=1,
    deadline_s=1.0, seed=0, most=100,
)
run = RunWriter()
asyncio.run(train(task, fleet, Averaging(fleet), run))
merged = run.records[-2]
# Not ru_maxrss: that is at least the memory of the process that forked this one.
status = dict(l.split(":", 1) for l in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) * 1024
print(merged.learners, merged.samples, peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_ten_thousand_learners_fit_in_two_gigabytes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TEN_THOUSAND], capture_output=True, text=True
    )
    learners, samples, peak = map(int, done.stdout.split())
    assert (learners, samples) == (10_000, 1_000_000)
    assert peak < 2e9


@pytest.mark.parametrize("scheme", ["eta", "sync", "csa", "csa-strict", "dab"])
def test_a_million_learners_get_an_allocation_that_holds(scheme: str) -> None:
    K = 1_000_000
    rng = np.random.default_rng(0)
    problem = Problem(
        step_s=rng.uniform(4e-4, 2e-3, K),
        sample_s=rng.uniform(1e-5, 1e-4, K),
        fixed_s=rng.uniform(0.05, 0.5, K),
        samples=1000 * K,
        deadline_s=15.0,
    )
    allocation = SCHEMES[scheme](problem)
    t = problem.seconds(allocation.samples, allocation.steps)
    assert t.max() <= problem.deadline_s
    if scheme != "dab":
        assert allocation.samples.sum() == problem.samples
    if scheme.startswith("csa"):
        assert np.ptp(allocation.steps) <= 1
