"""What an example learns live is what it learns simulated, and in plain PyTorch."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tests.examples.own import BASE, NAMES, job_of, learners_of, made, patient
from tests.examples.replay import State, replayed
from tests.fleets.learners import live

import melisma as mel
from melisma.jobs.schema import Job, TrainingTable
from melisma.runs.records import Evaluated
from melisma.runs.store import MODEL

CYCLES = 4
SEEDS = range(5)  #: of the simulated runs; the live one has 0
#: Adam divides gradients by their size: where one is 0 but for rounding, that is
#: rounded up, by up to 3e-4 on x86. A batch too few, or another weight in the mean,
#: is ten times as far.
ROUNDING = 1e-3


@dataclass(frozen=True)
class Band:
    """From the least final to the largest, and as far again on either side."""

    least: float
    most: float

    @classmethod
    def of(cls, finals: list[float]) -> "Band":
        spread = max(finals) - min(finals)
        return cls(min(finals) - spread, max(finals) + spread)

    def __contains__(self, final: float) -> bool:
        return self.least <= final <= self.most


def simulated(job: Job) -> float:
    return mel.simulate(job, runs=None).history.metric[-1]


def distance(one: State, other: State) -> float:
    assert one.keys() == other.keys()
    return math.sqrt(sum(float((one[n] - other[n]).square().sum()) for n in one))


@pytest.mark.slow
@pytest.mark.parametrize("example", NAMES)
def test_live_simulated_and_plain_pytorch_agree(example: str, tmp_path: Path) -> None:
    if example == "lora":  # there has to be something to adapt
        BASE.parent.mkdir(parents=True, exist_ok=True)
        text = mel.simulate(job_of("text", cycles=CYCLES), runs=None)
        save_file(text.parameters, BASE)
    live_job = patient(job_of(example, cycles=CYCLES))
    happened = live(live_job, tmp_path, learners_of(job_of(example)))

    model, begun = load_file(tmp_path / MODEL), made(example, live_job.seed)
    off = distance(model, replayed(live_job, happened))
    assert off < ROUNDING * distance(model, begun.state_dict())

    finals = [simulated(job_of(example, cycles=CYCLES, seed=n)) for n in SEEDS]
    band = Band.of(finals)
    last = [record for record in happened if isinstance(record, Evaluated)][-1]
    final = next(iter(last.metrics.values()))
    assert final is not None
    assert final in band
    unmoved = job_of(example, cycles=1, training=TrainingTable(rate=1e-9))
    assert simulated(unmoved) not in band
