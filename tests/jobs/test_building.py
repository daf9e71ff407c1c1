import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from melisma.errors import ConfigError, DataError
from melisma.jobs.benchmark_table import BenchmarkTable, Known
from melisma.jobs.building import known_law, task_of, training_of, workload_of
from melisma.jobs.families import family_of
from melisma.jobs.files import load
from melisma.jobs.live_task import LiveTask
from melisma.jobs.schema import AggregationTable, Job, TrainingTable
from melisma.launch.simulate import build, simulate
from melisma.learning.parameters import load as load_model
from melisma.learning.settings import (
    Hardware,
    Late,
    Precision,
    ServerRule,
    Weights,
)
from melisma.runs import records
from melisma.runs.records import Aggregated, Allocated, Evaluated, Halted
from melisma.runs.store import RunWriter
from melisma.system.cell import cell
from melisma.system.law import Mode
from melisma.views.history import history

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_demo_learns() -> None:
    accuracy = history(simulate(Job(cycles=3))).metric
    assert len(accuracy) == 3
    assert accuracy[-1] > 0.6


def test_a_run_leaves_configuration_records_and_model(tmp_path: Path) -> None:
    built = build(Job(cycles=1, seed=3))
    happened = built.run(tmp_path)
    assert load(tmp_path / "config.toml") == built.job
    assert records.read(tmp_path / "records.jsonl") == happened
    model = load_model(tmp_path / "model.safetensors")
    assert {name: v.shape for name, v in model.items()} == {
        name: v.shape for name, v in built.built.task.model.state_dict().items()
    }


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for name, threads in (("one", 1), ("two", 2)):
        folder = tmp_path / name
        folder.mkdir()
        build(Job(cycles=2, noise=0.1), Hardware(threads=threads)).run(folder)
        files.append({path.name: path.read_bytes() for path in folder.iterdir()})
        files[-1].pop("checkpoint.safetensors")  # its notes have no order
        files[-1].pop("checkpoint.previous.safetensors", None)  # on a slow machine
    assert files[0] == files[1]
    assert set(files[0]) == {
        "config.toml",
        "run.toml",
        "records.jsonl",
        "model.safetensors",
    }


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_named_with_what_to_do() -> None:
    with pytest.raises(
        ConfigError, match=r"device 'cuda' cannot be used: .*use 'auto' or 'cpu'"
    ):
        build(Job(cycles=1), Hardware(device="cuda"))
    with pytest.raises(ConfigError, match="device 'fridge' cannot be used"):
        build(Job(cycles=1), Hardware(device="fridge"))


def test_coded_training_says_that_it_needs_full_precision() -> None:
    with pytest.raises(ConfigError, match=r"coded training in bf16: .* in fp32"):
        build(Job(scheme="coded"), Hardware(precision=Precision.BF16))


def test_a_cell_in_a_job_is_the_cell_of_the_paper() -> None:
    job = load(EXAMPLES / "csa.toml")
    job = msgspec.structs.replace(
        job, model="CsaNet", data=msgspec.structs.replace(job.data, name="mnist-5k")
    )
    law, paper = build(job).built.crew._law, cell(20, 15.0)
    np.testing.assert_allclose(law.step_s, paper.step_s, rtol=1e-12)
    np.testing.assert_allclose(law.sample_s, paper.sample_s, rtol=1e-12)
    np.testing.assert_allclose(law.fixed_s, paper.fixed_s, rtol=1e-12)


@pytest.mark.parametrize("example", ["demo", "states", "federated"])
def test_the_examples_run(example: str) -> None:
    job = msgspec.structs.replace(load(EXAMPLES / f"{example}.toml"), cycles=1)
    assert isinstance(simulate(job)[-1], Evaluated)


def test_the_demo_file_is_the_default_job() -> None:
    demo = load(EXAMPLES / "demo.toml")
    assert training_of(demo) == training_of(Job())
    assert msgspec.structs.replace(demo, training=Job().training) == Job()


@pytest.mark.parametrize("scheme", ["eta", "sync", "csa", "csa-strict", "csa-sai"])
def test_all_samples_are_shared_out(scheme: str) -> None:
    happened = simulate(Job(scheme=scheme, cycles=1))
    given = [record for record in happened if isinstance(record, Allocated)]
    assert sum(record.samples for record in given) == 4000


def test_csa_keeps_learners_busier_and_closer_than_eta() -> None:
    merged = {}
    for scheme in ("csa", "eta"):
        happened = simulate(Job(scheme=scheme, cycles=1))
        (merged[scheme],) = (r for r in happened if isinstance(r, Aggregated))
    assert merged["csa"].max_staleness <= 1 < merged["eta"].max_staleness
    assert merged["csa"].utilisation > merged["eta"].utilisation


def test_states_of_unequal_number_are_padded_with_probability_nought() -> None:
    job = load(EXAMPLES / "states.toml")
    both = (*job.learners, *Job().learners[:1])
    crew = build(msgspec.structs.replace(job, learners=both)).built.crew
    gamma = crew._conditions.probability
    assert gamma is not None
    assert gamma.shape == (8, 3)
    assert gamma[-1].tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("split", ["iid", "dirichlet", "labels"])
def test_federated_learners_hold_all_rows_between_them(split: str) -> None:
    job = load(EXAMPLES / "federated.toml")
    data = msgspec.structs.replace(job.data, split=split)
    own = build(msgspec.structs.replace(job, data=data)).built.crew._own_rows
    assert own is not None
    assert sorted(np.concatenate(own)) == list(range(4000))


def test_in_federated_mode_no_data_travels() -> None:
    law = build(Job(mode=Mode.FEDERATED, samples=1000)).built.crew._law
    assert (law.sample_s == 0).all()


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Job(scheme="cas"), "unknown scheme 'cas': did you mean 'csa'"),
        (Job(model="TwoNM"), "unknown model 'TwoNM': did you mean 'TwoNN'"),
        (Job(samples=5000), "5000 samples a cycle: there are 4000 of mnist-5k"),
        (Job(noise=-1.0), "noise of -1.0"),
        (Job(model="CifarCNN"), r"does not take samples of x: \(1, 28, 28\)"),
    ],
)
def test_a_job_that_cannot_be_is_named(job: Job, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(job)


def test_shares_are_limited_where_learners_say_what_they_can_do() -> None:
    assert task_of(Job()).merging.most_share == 1.0
    assert LiveTask.of(Job(), RunWriter()).task.merging.most_share == 0.5
    given = Job(aggregation=AggregationTable(most_share=0.75))
    for task in (task_of(given), LiveTask.of(given, RunWriter()).task):
        assert task.merging.most_share == 0.75
    with pytest.raises(ConfigError, match=r"most_share = 0\.2: give a share from 0\.5"):
        task_of(Job(aggregation=AggregationTable(most_share=0.2)))


def test_updates_count_by_data_where_it_lies_on_learners() -> None:
    def weights(job: Job) -> Weights:
        return task_of(job).merging.weights

    assert weights(Job()) == Weights.SAMPLES
    assert weights(Job(mode=Mode.FEDERATED)) == Weights.DATA
    # A fog moves it.
    assert weights(Job(scheme="fog", mode=Mode.FEDERATED)) == Weights.SAMPLES
    table = AggregationTable(weights=Weights.LEARNERS)
    assert weights(Job(mode=Mode.FEDERATED, aggregation=table)) == Weights.LEARNERS


def test_the_servers_step_is_as_the_job_says() -> None:
    table = AggregationTable(server=ServerRule.YOGI, rate=0.1, beta2=0.9)
    merging = task_of(Job(aggregation=table)).merging
    assert (merging.server, merging.rate, merging.beta2) == (ServerRule.YOGI, 0.1, 0.9)
    assert (merging.momentum, merging.epsilon) == (None, 1e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Job(aggregation=AggregationTable(weights=Weights.DATA)),
            "weights = 'data' is of data that lies on learners",
        ),
        (
            lambda: AggregationTable(server=ServerRule.NESTEROV, beta2=0.9),
            "beta2 is of server = 'adam' or 'yogi', and it is 'nesterov': leave it out",
        ),
        (
            lambda: AggregationTable(epsilon=0.1),
            "epsilon is of server = 'adagrad' or 'adam' or 'yogi', and it is 'sgd'",
        ),
        (
            lambda: family_of(
                fog := Job(
                    scheme="fog",
                    mode=Mode.FEDERATED,
                    aggregation=AggregationTable(weights=Weights.FEDNOVA),
                )
            ).checked(fog),
            "weights = 'fednova' is of data that stays on its learner",
        ),
        (
            lambda: family_of(
                coded := Job(scheme="coded", training=TrainingTable(proximal=0.1))
            ).checked(coded),
            "proximal pulls local steps back to the model, and coded workers take none",
        ),
        (
            lambda: task_of(Job(training=TrainingTable(proximal=-1.0))),
            "proximal = -1.0: give a number from 0 up",
        ),
    ],
)
def test_rules_without_effect_are_refused(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_damaged_data_set_is_named(tmp_path: Path) -> None:
    for name in (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ):
        (tmp_path / name).write_bytes(b"\0\0\x08\x03cut")
    data = msgspec.structs.replace(Job().data, name="mnist", folder=str(tmp_path))
    with pytest.raises(DataError, match="train-images-idx3-ubyte ends after 7 bytes"):
        build(Job(data=data))


def test_one_task_is_planned_by_what_a_benchmark_found() -> None:
    measured = BenchmarkTable(known=Known.MEASURED, shards=20)
    job = Job(noise=0.3, benchmark=measured)
    crew = build(job).built.crew
    task = task_of(job)
    true, known, gamma = known_law(job, workload_of(job, task.model, task.data))
    planned = asyncio.run(crew.law())
    np.testing.assert_array_equal(planned.step_s, known.expected(gamma).step_s)
    np.testing.assert_array_equal(crew.true_law().step_s, true.expected(gamma).step_s)
    assert (planned.step_s != crew.true_law().step_s).all()
    few = msgspec.structs.replace(job, benchmark=BenchmarkTable(known=Known.MEASURED))
    other = known_law(few, workload_of(few, task.model, task.data)).known
    assert (other.step_s != known.step_s).all()  # on 8 shards, not 20


def test_of_both_dabs_the_printed_one_has_no_margin() -> None:
    taken = []
    for scheme in ("dab", "dab-adaptive"):
        happened = build(Job(scheme=scheme, cycles=1)).run()
        taken.append([r.samples for r in happened if isinstance(r, Allocated)])
    printed, ours = map(np.array, taken)
    assert len(printed) == 10
    assert (ours < printed).all()


def test_who_may_overrun_looks_at_the_clock_as_often_as_the_job_says() -> None:
    job = Job(noise=0.5, late=Late.OVERRUN, look_every=7, cycles=2)
    halted = [r for r in build(job).run() if isinstance(r, Halted)]
    assert halted
    assert {r.batches % 7 for r in halted} == {1}
