"""Live learners that send what codecs make of their changes."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.fleets.learners import Steady, changed, joined, live, of

from melisma import rpc
from melisma.fleets.messages import TrainRequest, Update
from melisma.jobs.building import task_of
from melisma.jobs.wire_table import WireTable
from melisma.launch.serve import orchestrate
from melisma.learner.source import Caller
from melisma.learning.parameters import Parameters, load, parameters_of, trained
from melisma.learning.wire import Wire
from melisma.runs import records
from melisma.runs.store import MODEL

JOB = changed(scheme="csa", cycles=3)


def wired(down: str, up: str, **changes: Any) -> Any:
    return changed(JOB, wire=WireTable(down=down, up=up), **changes)


@pytest.mark.slow
@pytest.mark.parametrize(("down", "up"), [("fp16", "int8"), ("int8", "top-k 5 %")])
def test_so_many_bytes_come_back_as_were_planned(
    tmp_path: Path, down: str, up: str
) -> None:
    heard: list[rpc.Server] = []

    def start(server: rpc.Server) -> None:
        heard.append(server)
        stack.enter_context(joined(server, [Steady(name=name) for name in "ab"]))

    job = wired(down, up)
    with ExitStack() as stack:
        happened = orchestrate(
            job, tmp_path, learners=2, ready=start, port=0, say=lambda text: None
        )
    model = task_of(job).model
    like, moving = parameters_of(model), trained(model)
    up_bytes = Wire.of(down, up).size_bytes(like, moving)[1]
    assert not of(records.Dropped, happened)
    planned = 2 * job.cycles * up_bytes
    # Beside updates there are greetings, bids, measurements: some kB.
    assert planned < heard[0].metrics.received_bytes < 1.02 * planned + 20_000


@pytest.mark.slow
def test_eight_bits_lead_nearly_where_all_of_them_do(tmp_path: Path) -> None:
    runs: dict[str, Parameters] = {}
    for up in ("fp32", "int8"):
        (tmp_path / up).mkdir()
        learners = [Steady(name=name) for name in "ab"]
        live(wired("fp32", up), tmp_path / up, learners)
        runs[up] = load(tmp_path / up / MODEL)
    start = parameters_of(task_of(JOB).model)

    def apart(one: Parameters, other: Parameters) -> float:
        return float(sum((one[n] - t).square().sum() for n, t in other.items()))

    assert 0 < apart(runs["int8"], runs["fp32"]) < 0.01 * apart(runs["fp32"], start)


@pytest.mark.slow
def test_learners_go_on_with_what_they_left_out_when_a_run_is_resumed(
    tmp_path: Path,
) -> None:
    job, names = wired("fp32", "top-k 1 %", cycles=4), "ab"

    def cut(record: records.Record) -> None:
        if isinstance(record, records.Evaluated) and record.cycle == 2:
            raise KeyboardInterrupt

    def resumed(folder: Path, *, anew: bool) -> Parameters:
        learners = [Steady(name=name) for name in names]
        with pytest.raises(KeyboardInterrupt):
            live(job, folder, learners, cut)
        live(job, folder, [Steady(name=n) for n in names] if anew else learners)
        return load(folder / MODEL)

    def same(one: Parameters, other: Parameters) -> bool:
        return all(torch.allclose(one[n], t, atol=1e-6) for n, t in other.items())

    live(job, tmp_path / "whole", [Steady(name=name) for name in names])
    whole = load(tmp_path / "whole" / MODEL)
    assert same(resumed(tmp_path / "resumed", anew=False), whole)
    # Processes that are started anew owe nothing.
    assert not same(resumed(tmp_path / "anew", anew=True), whole)


class Cheat(Steady):
    """Sends something else in place of its change."""

    def __init__(self, name: str, **changes: Any) -> None:
        super().__init__(name=name)
        self._changes = changes

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        update = super().train(request, caller)
        assert update.packed is not None
        if not self._changes:  # its parameters as they are
            plain = {n: t.clone() for n, t in self.plain.items()}
            return msgspec.structs.replace(update, packed=None, parameters=plain)
        encoded = msgspec.structs.replace(update.packed.encoded, **self._changes)
        packed = msgspec.structs.replace(update.packed, encoded=encoded)
        return msgspec.structs.replace(update, packed=packed)

    @property
    def plain(self) -> Parameters:
        return parameters_of(task_of(JOB).model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "parameters came in place of what int8 makes"),
        ({"codec": "int4"}, "'int4' came in place of int8"),
        ({"seed": -1}, "a seed that is none"),
        ({"seed": 1}, "draws of another seed"),
        ({"payload": b""}, "cannot be decoded"),
        ({"payload": np.zeros(1, np.uint8)}, "other than the"),
    ],
)
def test_what_no_codec_made_is_an_offence(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    learners = [Steady(name="a"), Cheat("b", **changes)]
    happened = live(wired("fp32", "int8", cycles=1), tmp_path, learners)
    (dropped,) = of(records.Dropped, happened)
    assert (dropped.learner, dropped.offence) == ("b", True)
    assert reason in dropped.reason
    assert [r.learners for r in of(records.Aggregated, happened)] == [1]
