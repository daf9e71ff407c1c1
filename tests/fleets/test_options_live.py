"""Live learners, each of which sends by the codec that its order names."""

from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from tests.fleets.learners import Steady, changed, joined, live, of

from melisma import rpc
from melisma.errors import ConfigError, TrainingError
from melisma.fleets.messages import Speeds, TrainRequest, Update
from melisma.fleets.protocols import Order
from melisma.fleets.served import ServedTask
from melisma.jobs.building import task_of
from melisma.jobs.live_task import LiveTask
from melisma.jobs.options import wires_of
from melisma.jobs.wire_table import OptionTable
from melisma.launch.serve import orchestrate
from melisma.learner import orders
from melisma.learner.source import Caller
from melisma.learning.parameters import parameters_of, trained
from melisma.learning.settings import Late
from melisma.learning.shards import ShardStore
from melisma.learning.way import Way
from melisma.learning.wire import Packed, Sender, seed_of
from melisma.runs import records
from melisma.runs.store import RunWriter

OPTIONS = (
    OptionTable(),
    OptionTable(down="int8", up="int8", value=0.9),
    OptionTable(down="int8", up="top-k 5 %", value=0.1),
)
JOB = changed(scheme="csa-options", cycles=3, options=OPTIONS)


class Far(Steady):
    """Behind a link that takes most of a cycle for models as they are."""

    def speeds(self, task: str, drifted: bool) -> Speeds:
        return Speeds(step_s=0.01, sample_s=0.001, fixed_s=27.0)


def test_each_sends_by_its_own_codec_and_so_many_bytes(tmp_path: Path) -> None:
    heard: list[rpc.Server] = []

    def start(server: rpc.Server) -> None:
        heard.append(server)
        stack.enter_context(joined(server, [Steady(name="near"), Far(name="far")]))

    with ExitStack() as stack:
        happened = orchestrate(
            JOB, tmp_path, learners=2, ready=start, port=0, say=lambda text: None
        )
    assert not of(records.Dropped, happened)
    allocated = of(records.Allocated, happened)
    assert {(r.learner, r.option) for r in allocated} == {
        ("near", "fp32"),
        ("far", "int8 / int8"),
    }
    model = task_of(JOB).model
    like, moving = parameters_of(model), trained(model)
    plain, int8, _ = (wire.size_bytes(like, moving) for wire in wires_of(JOB))
    planned = JOB.cycles * (plain[1] + int8[1])
    # Beside updates there are greetings, bids, measurements: some kB.
    assert planned < heard[0].metrics.received_bytes < 1.02 * planned + 20_000
    saved = {r.saved_bytes for r in allocated if r.learner == "far"}
    assert saved == {sum(plain) - sum(int8)}
    # Predicted by the bytes, at the rate that the learner said.
    (far_s,) = {r.predicted_s for r in allocated if r.learner == "far"}
    (work,) = {(r.samples, r.steps) for r in allocated if r.learner == "far"}
    share = sum(int8) / sum(plain)
    expected_s = 27.0 * share + 0.001 * work[0] + 0.01 * work[0] * work[1]
    assert far_s == pytest.approx(expected_s, rel=1e-6)


class Other(Far):
    """Sends its change by a codec that its order does not name."""

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        update = super().train(request, caller)
        model = task_of(JOB).model
        like, moving = parameters_of(model), trained(model)
        changed_by = {n: t + 0.01 for n, t in like.items()}
        seed = seed_of(JOB.seed, request.cycle, self.name)
        (wire,) = [w for w in wires_of(JOB) if str(w.up) == "top-k 5 %"]
        packed = Sender(wire.up).update(changed_by, like, moving, seed)
        return msgspec.structs.replace(update, packed=packed)


def test_an_update_by_another_codec_is_an_offence(tmp_path: Path) -> None:
    learners = [Steady(name="near"), Other(name="far")]
    happened = live(changed(JOB, cycles=1), tmp_path, learners)
    (dropped,) = of(records.Dropped, happened)
    assert (dropped.learner, dropped.offence) == ("far", True)
    assert "'top-k 5 %' came in place of int8" in dropped.reason
    assert [r.learners for r in of(records.Aggregated, happened)] == [1]


def served() -> ServedTask:
    task = task_of(JOB)
    return ServedTask(
        JOB.name,
        parameters_of(task.model),
        ShardStore(task.data.train, task.shard),
        ways=[Way(wire) for wire in wires_of(JOB)],
        moving=trained(task.model).keys(),
    )


def test_a_learner_is_sent_the_model_by_its_own_codec() -> None:
    task = served()
    task.renew(1, task.parameters)
    task.options = {"near": 0, "far": 1}
    for name, codec in (("near", "fp32"), ("far", "int8")):
        sent = task.model_for(1, lambda name=name: name)  # type: ignore[misc]
        assert isinstance(sent, Packed)
        assert sent.encoded.codec == codec
    with pytest.raises(TrainingError, match="third has no order in cycle 1"):
        task.model_for(1, lambda: "third")
    with pytest.raises(TrainingError, match="cycle 0 is over"):
        task.model_for(0, lambda: "near")


def test_an_order_that_names_no_codec_is_refused() -> None:
    spec = LiveTask.of(JOB, RunWriter()).announcement.spec
    order = Order(learner=0, samples=50, steps=1, option=2)
    request = served().request(order, 5.0, Late.HALT)
    assert (request.down, request.up) == ("int8", "top-k 5 %")
    request = msgspec.structs.replace(request, keys=["a"])
    orders.check_train(request, spec, None)
    for down, up in [
        ("int8", ""),
        ("", "int8"),
        ("int9", "int8"),
        ("top-k 1 %", "fp32"),
    ]:
        wrong = msgspec.structs.replace(request, down=down, up=up)
        with pytest.raises(ConfigError):
            orders.check_train(wrong, spec, None)
