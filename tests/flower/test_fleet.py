"""A fleet of SuperNodes in this process: who does what, and what counts."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Error, Message, MessageType, UserConfig
from flwr.common.constant import ErrorCode
from tests.flower.grids import LocalGrid
from tests.flower.replay import farthest, replayed

from melisma.fleets.protocols import NOT_THERE
from melisma.flower import fleet, mailbox, messages
from melisma.flower.job import configured
from melisma.flower.run import run
from melisma.launch import serve as serving
from melisma.learning import data
from melisma.learning.parameters import Parameters, load
from melisma.runs import records
from melisma.runs.records import Record
from melisma.runs.store import MODEL, RECORDS

#: Four shards a learner, which are done in no time.
CONFIG: UserConfig = {
    "name": "test",
    "nodes": 2,
    "cycles": 2,
    "scheme": "dab",
    "deadline": "20 s",
    "shard": 50,
    "most": 4,
    "steps": 1,
}
LOAD = cache(data.load)
NODES: dict[int, UserConfig] = {3: {"name": "a"}, 4: {"name": "b"}}


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "GRACE_S", -18.0)  # wait 2 s of 20 s for the silent
    monkeypatch.setattr(fleet, "LOOK_S", 0.01)
    monkeypatch.setattr(mailbox, "POLL_S", 0.01)
    monkeypatch.setattr(serving, "_write_report", lambda folder: None)
    monkeypatch.setattr(data, "load", LOAD)


def trained(
    folder: Path,
    change: Callable[[LocalGrid], object] = lambda grid: None,
    there: dict[int, UserConfig] = NODES,
    **config: Any,
) -> tuple[list[Record], LocalGrid]:
    run_config: UserConfig = {**CONFIG, **config, "runs": str(folder)}
    grid = LocalGrid(there, run_config)
    change(grid)
    run(grid, run_config)
    return records.read(folder / "test" / RECORDS), grid


def of(kind: type[Any], happened: list[Record]) -> list[Any]:
    return [record for record in happened if isinstance(record, kind)]


def tampered(**facts: Any) -> Callable[[Message], Message]:
    """What changes facts of an update."""

    def change(reply: Message) -> Message:
        if reply.has_content() and messages.UPDATE in reply.content:
            reply.content.config_records[messages.UPDATE].update(facts)
        return reply

    return change


def remade(make: Callable[[Parameters], Parameters]) -> Callable[[Message], Message]:
    """What changes the parameters of an update."""

    def change(reply: Message) -> Message:
        if messages.UPDATE in reply.content:
            parameters = messages.tensors_of(reply.content, messages.PARAMETERS)
            record = messages.arrays_of(make(parameters))
            reply.content[messages.PARAMETERS] = record
        return reply

    return change


def test_a_run_is_what_its_records_say(tmp_path: Path) -> None:
    happened, _ = trained(tmp_path)
    assert {r.learner for r in of(records.Trained, happened)} == {"a", "b"}
    assert [r.samples for r in of(records.Aggregated, happened)] == [400, 400]
    job = configured(CONFIG).job
    model = load(tmp_path / "test" / MODEL)
    assert farthest(model, replayed(job, happened)) < 1e-6


def test_a_node_is_asked_twice_and_then_works(tmp_path: Path) -> None:
    _, grid = trained(tmp_path, cycles=3)
    kinds = [
        m.metadata.message_type for m in grid.pushed if m.metadata.dst_node_id == 3
    ]
    assert kinds == [MessageType.QUERY] * 2 + [MessageType.TRAIN] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (tampered(samples=201), "201 samples claimed of 200 given"),
        (tampered(batches=0), "0 batches claimed for 200 samples"),
        (tampered(cycle=7), "an update of cycle 7"),
        (tampered(loss="little"), "'update' of a message"),
        (remade(lambda p: {"w": torch.ones(2)}), "parameters of another model"),
        (
            remade(lambda p: {name: t * torch.nan for name, t in p.items()}),
            "parameters are not finite",
        ),
    ],
)
def test_a_wrong_update_is_refused(
    tmp_path: Path, change: Callable[[Message], Message], said: str
) -> None:
    happened, _ = trained(tmp_path, lambda grid: grid.changes.update({3: change}))
    refused = of(records.Dropped, happened)
    assert {(r.learner, r.offence) for r in refused} == {("a", True)}
    assert all(said in record.reason for record in refused)
    assert [r.samples for r in of(records.Aggregated, happened)] == [200, 200]


def test_who_offends_three_times_is_given_no_more_work(tmp_path: Path) -> None:
    change = {3: tampered(samples=201)}
    happened, _ = trained(tmp_path, lambda grid: grid.changes.update(change), cycles=4)
    assert [r.learner for r in of(records.Expelled, happened)] == ["a"]
    last = [r.learner for r in of(records.Allocated, happened) if r.cycle == 4]
    assert last == ["b"]


def test_false_work_is_found_by_doing_it_again(tmp_path: Path) -> None:
    change = remade(lambda p: {name: t + 0.01 for name, t in p.items()})
    update = {3: change}
    happened, _ = trained(
        tmp_path, lambda grid: grid.changes.update(update), checks=1.0
    )
    assert {r.learner for r in of(records.Dropped, happened)} == {"a"}
    assert "not what its work leads to" in of(records.Dropped, happened)[0].reason


@pytest.mark.parametrize(
    ("code", "offence"),
    [
        (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, True),
        (ErrorCode.NODE_UNAVAILABLE, False),
    ],
)
def test_an_error_costs_a_share(tmp_path: Path, code: int, offence: bool) -> None:
    def fail(reply: Message) -> Message:
        if reply.metadata.message_type == MessageType.TRAIN:
            reply.__dict__.update(_content=None, _error=Error(code, "so it is"))
        return reply

    happened, _ = trained(tmp_path, lambda grid: grid.changes.update({3: fail}))
    first = of(records.Dropped, happened)[0]
    assert (first.learner, first.offence) == ("a", offence)
    assert first.reason.endswith("so it is")
    assert of(records.Aggregated, happened)[0].learners == 1


@pytest.mark.alone
@pytest.mark.slow
def test_who_is_silent_costs_a_share_and_is_not_waited_for(tmp_path: Path) -> None:
    def vanish(reply: Message) -> Message | None:
        return reply if reply.metadata.message_type == MessageType.QUERY else None

    happened, grid = trained(tmp_path, lambda grid: grid.changes.update({3: vanish}))
    (lost,) = of(records.Dropped, happened)
    assert (lost.cycle, lost.learner, lost.reason) == (1, "a", NOT_THERE)
    assert [r.learner for r in of(records.Left, happened)] == ["a"]
    sent = [m for m in grid.pushed if m.metadata.dst_node_id == 3]
    assert len(sent) == 3  # two queries and its work; it owes an answer


@pytest.mark.alone
@pytest.mark.slow
def test_a_late_answer_brings_a_node_back(tmp_path: Path) -> None:
    def with_delay(grid: LocalGrid) -> None:
        kept: dict[str, Message] = {}

        def late(reply: Message) -> Message | None:
            if reply.metadata.group_id != "1":
                return reply
            kept[reply.metadata.reply_to_message_id] = reply
            return None

        def on_time(reply: Message) -> Message:
            if reply.metadata.group_id == "2":
                grid.replies.update(kept)
            return reply

        grid.changes |= {3: late, 4: on_time}

    happened, grid = trained(tmp_path, with_delay, cycles=3)
    taking = {
        cycle: [r.learner for r in of(records.Trained, happened) if r.cycle == cycle]
        for cycle in (1, 2, 3)
    }
    assert taking == {1: ["b"], 2: ["b"], 3: ["a", "b"]}
    queries = [m for m in grid.pushed if m.metadata.message_type == MessageType.QUERY]
    assert len(queries) == 4


def test_of_two_nodes_with_one_name_the_first_takes_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes: dict[int, UserConfig] = {3: {"name": "a"}, 4: {"name": "a"}}
    happened, _ = trained(tmp_path, there=nodes | {5: {"name": "b"}})
    assert {r.learner for r in of(records.Joined, happened)} == {"a", "b"}
    assert [r.learners for r in of(records.Aggregated, happened)] == [2, 2]
    assert "node 4 is called 'a', as another node is" in caplog.text


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"name": ""}, "'' is no name"),
        ({"name": "a\nb"}, "'a\\nb' is no name"),
        ({"bid": "many"}, "'status' of a message"),
        ({"name.nested": 1}, "'status' of a message"),
        (
            {"speeds.step_s": 0.0, "speeds.sample_s": 0.0, "speeds.fixed_s": 1.0},
            "step_s = 0.0 s cannot be",
        ),
    ],
)
def test_a_node_that_reports_nonsense_takes_no_part(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, facts: Any, said: str
) -> None:
    def nonsense(reply: Message) -> Message:
        reply.content.config_records[messages.STATUS].update(facts)
        return reply

    change = {3: nonsense}
    happened, _ = trained(tmp_path, lambda grid: grid.changes.update(change), nodes=1)
    assert {r.learner for r in of(records.Allocated, happened)} == {"b"}
    assert said in caplog.text


def test_data_can_lie_on_the_nodes(tmp_path: Path) -> None:
    nodes: dict[int, UserConfig] = {
        3 + k: {"name": name, "partition-id": k, "num-partitions": 2}
        for k, name in enumerate("ab")
    }
    happened, grid = trained(tmp_path, there=nodes, mode="federated")
    assert [r.samples for r in of(records.Aggregated, happened)] == [400, 400]
    assert not any(messages.SHARDS in message.content for message in grid.pushed)
