"""Jobs in which some learners train a part of the model."""

import copy
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.algorithms.resuming import whole_and_resumed
from tests.jobs.small import SMALL, small

from melisma.errors import ConfigError
from melisma.jobs.averaging import learners_of
from melisma.jobs.channel_table import ChannelTable, Placement
from melisma.jobs.families import family_of
from melisma.jobs.files import load
from melisma.jobs.schema import AggregationTable, Job, LearnersTable, TrainingTable
from melisma.jobs.wire_table import WireTable
from melisma.launch import build
from melisma.learning.losses import loss_of
from melisma.learning.parameters import parameters_of, trained
from melisma.learning.settings import (
    HERE,
    Buffers,
    Correction,
    Late,
    Rule,
    ServerRule,
    Weights,
)
from melisma.learning.submodels import Example, submodel_of
from melisma.learning.way import Way
from melisma.runs import records
from melisma.system.law import Mode
from melisma.units import Hertz, Metres


def with_parts(*submodels: str | None, **changes: Any) -> Job:
    """The small demo, whose laptops, jetsons and pis train these."""
    groups: tuple[LearnersTable, ...] = SMALL["learners"]
    learners = tuple(
        msgspec.structs.replace(group, submodel=submodel)
        for group, submodel in zip(groups, submodels, strict=True)
    )
    return small(**({"learners": learners} | changes))


def accuracies(job: Job) -> list[float]:
    """Return the accuracy after each cycle."""
    seen: list[float] = []

    def watch(record: records.Record) -> None:
        if isinstance(record, records.Evaluated):
            seen.append(record.metrics["accuracy"] or 0.0)

    build(job).run(None, watch)
    return seen


def test_the_whole_as_a_part_is_the_whole() -> None:
    plain = accuracies(small(cycles=3))
    assert accuracies(with_parts("width 1", "width 1", "width 1", cycles=3)) == plain
    mixed = accuracies(with_parts(None, "width 1", None, cycles=3))
    assert mixed == pytest.approx(plain, abs=0.01)  # summed in another order


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        (None, None, "width 0.5"),
        ("width 0.8", "width 0.5", "width 0.25"),
        (None, "freeze 0.4", "width 0.5"),
    ],
)
def test_models_of_parts_learn(parts: tuple[str | None, ...]) -> None:
    seen = accuracies(with_parts(*parts, cycles=12))
    assert seen[-1] > 0.75
    assert seen[-1] > seen[0]


def test_a_cycle_is_planned_by_what_a_part_computes_and_sends() -> None:
    _, plain = learners_of(small(), HERE)
    _, some = learners_of(with_parts(None, "freeze 0.5", "width 0.5"), HERE)
    whole, law = plain.true_law(), some.true_law()
    steps, fixed = law.step_s / whole.step_s, law.fixed_s / whole.fixed_s
    # TwoNN, 784-50-20-10: of 40,000 + 1,000… weights, products forward, for weights
    # and for inputs; frozen is the first layer.
    weights = np.array([784 * 50, 50 * 20, 20 * 10])
    all_three = 3 * weights.sum() - weights[0]
    narrow = np.array([784 * 25, 25 * 10, 10 * 10])
    assert steps[:2].tolist() == [1, 1]
    assert steps[2:5] == pytest.approx((weights.sum() + 1000 + 400) / all_three)
    assert steps[5:] == pytest.approx((3 * narrow.sum() - narrow[0]) / all_three)
    sizes = weights.sum() + 80, narrow.sum() + 45
    assert fixed[2:5] == pytest.approx((1 + (1200 + 30) / sizes[0]) / 2)
    assert fixed[5:] == pytest.approx(sizes[1] / sizes[0])
    assert law.sample_s.tolist() == whole.sample_s.tolist()


def test_records_name_a_part_and_the_bytes_that_it_saves() -> None:
    job, seen = with_parts(None, None, "width 0.5", cycles=1), list[Any]()
    simulation = build(job)
    simulation.run(None, seen.append)
    orders = [one for one in seen if isinstance(one, records.Allocated) and one.samples]
    task = simulation.built.task
    like, moving = parameters_of(task.model), trained(task.model)
    example = Example(loss_of(task.training), task.taken.train[:4])
    part = submodel_of("width 0.5").part(copy.deepcopy(task.model), example)
    whole, half = (way.size_bytes(like, moving) for way in (Way(), Way(part=part)))
    saved = sum(whole) - sum(half)
    assert saved > 0
    assert {(one.learner[:2], one.option, one.saved_bytes) for one in orders} >= {
        ("pi", "width 0.5", saved)
    }
    assert all(one.learner.startswith("pi") for one in orders if one.option)


def test_overhead_is_the_same_for_a_part() -> None:
    overhead = {"overhead": "0.1 s"}
    _, some = learners_of(with_parts(None, None, "width 0.5"), HERE)
    _, more = learners_of(with_parts(None, None, "width 0.5", **overhead), HERE)
    added = more.true_law().fixed_s - some.true_law().fixed_s
    assert added == pytest.approx(0.1)


def test_with_codecs_the_bytes_of_the_part_count() -> None:
    wire = WireTable(down="fp16", up="int8")
    _, plain = learners_of(small(wire=wire), HERE)
    _, some = learners_of(with_parts(None, None, "width 0.5", wire=wire), HERE)
    ratio = some.true_law().fixed_s / plain.true_law().fixed_s
    assert ratio[5:] == pytest.approx(19995 / 40480, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"wire": WireTable(down="int8", up="top-k 10 %")},
        pytest.param(
            {
                "aggregation": AggregationTable(
                    server=ServerRule.ADAM, weights=Weights.FEDNOVA
                )
            },
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"mode": Mode.FEDERATED, "aggregation": AggregationTable(momentum=0.5)},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_that_was_stopped_goes_on_byte_for_byte(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    parts = None, "freeze 0.4", "width 0.5"
    job = with_parts(*parts, cycles=4, **changes)
    whole, resumed = whole_and_resumed(job, tmp_path, after=2)
    assert whole == resumed


@pytest.mark.slow
def test_learners_of_parts_keep_their_own_buffers_through_resume(
    tmp_path: Path,
) -> None:
    job = with_parts(
        *(None, "freeze 0.4", "width 0.5"),
        cycles=4,
        model="tests.jobs.test_submodels:normed",
        training=TrainingTable(buffers=Buffers.LOCAL),
    )
    whole, resumed = whole_and_resumed(job, tmp_path, after=2)
    assert whole == resumed


def normed() -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(784, 20), nn.BatchNorm1d(20), nn.ReLU()),
        nn.Linear(20, 10),
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"scheme": "coded"}, "averaged in cycles"),
        ({"scheme": "async:fedbuff"}, "averaged in cycles"),
        ({"late": Late.CARRY}, "not with late = 'carry'"),
        ({"aggregation": AggregationTable(rule=Rule.MEDIAN)}, "compares updates"),
        ({"checks": 0.1}, "repeat a learner's work"),
        (
            {
                "aggregation": AggregationTable(correction=Correction.SCAFFOLD),
                "mode": Mode.FEDERATED,
            },
            "of the whole model",
        ),
    ],
)
def test_where_parts_have_no_place_they_are_refused(
    changes: dict[str, Any], why: str
) -> None:
    job = with_parts(None, None, "width 0.5", **changes)
    with pytest.raises(ConfigError, match=why):
        family_of(job).checked(job)


def test_live_learners_do_not_bid_for_parts() -> None:
    job = with_parts(None, None, "width 0.5", scheme="dab")
    family_of(job).checked(job)
    with pytest.raises(ConfigError, match="bid for the whole model"):
        family_of(job).checked(job, live=True)


def test_a_submodel_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match=r"tiny.*width 0\.5"):
        learners_of(with_parts(None, None, "tiny"), HERE)


@pytest.mark.slow
def test_the_job_of_the_page_runs(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "submodels.md"
    (tmp_path / "job.toml").write_text(
        page.read_text("utf-8").split("```toml\n")[1].split("```")[0], "utf-8"
    )
    job = msgspec.structs.replace(load(tmp_path / "job.toml"), cycles=1)
    assert len(accuracies(job)) == 1
    _, crew = learners_of(job, HERE)
    whole = [msgspec.structs.replace(g, submodel=None) for g in job.learners]
    _, plain = learners_of(msgspec.structs.replace(job, learners=tuple(whole)), HERE)
    # As the page says: 4.6 s and 1.9 s for the model, there and back.
    assert plain.true_law().fixed_s[-1] == pytest.approx(4.6, abs=0.05)
    assert crew.true_law().fixed_s[-1] == pytest.approx(1.9, abs=0.05)


def test_a_cell_that_changes_has_no_parts() -> None:
    learners = (
        LearnersTable(name="phone", count=2, clock=Hertz(1e9), submodel="width 0.5"),
    )
    job = Job(
        learners=learners,
        channel=ChannelTable(placement=Placement.UNIFORM, radius=Metres(50)),
    )
    with pytest.raises(ConfigError, match="channels change"):
        family_of(job).checked(job)
