"""A monkey kills, freezes and restarts whoever trains; no update is lost or doubled.

Orchestrator and learners are processes, as a user starts them. What is claimed of them
is worked out from their records and from what each of them kept, by other code.
"""

import itertools
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors import safe_open
from tests.launch.chaos.processes import (
    GUARD_S,
    ORCHESTRATOR,
    Process,
    Processes,
    Row,
    free_port,
    freeze,
    processes,
    rows_of,
    running_in,
    seen,
    thaw,
    until,
)

import melisma as mel
from melisma.fleets.messages import TaskSpec
from melisma.jobs.files import load
from melisma.jobs.schema import LearnersTable
from melisma.learner.learner import Learner
from melisma.learning.benchmark import Line
from melisma.learning.settings import Training
from melisma.units import BytesPerSecond, SamplesPerSecond

CYCLES = 30
#: Learners as they slow themselves down; a cycle's work takes each about a second.
RATES = {"ada": 8000, "bea": 6400, "cyd": 5200, "dot": 4400}
#: Twenty shards are a quarter of what there is: with all four there, a cycle sees every
#: sample, and after thirty of them the accuracy has long stopped climbing.
JOB = f"""
name = "chaos"
scheme = "dab"
cycles = {CYCLES}
deadline = "1.5 s"
shard = 50
steps = 4
most = 20

[training]
rate = 0.2
"""


class Cluster:
    """An orchestrator and four learners."""

    def __init__(self, start: Processes) -> None:
        self.start, self.folder, self.port = start, start.folder, free_port()
        self.run = self.folder / "runs" / "chaos"
        self.copies, self.updates = self.folder / "copies", self.folder / "updates"
        for folder in (self.copies, self.updates):
            folder.mkdir()
        (self.folder / "job.toml").write_text(JOB)
        self.orchestrator = self._orchestrate("serve", "job.toml", len(RATES))
        self.learners = {name: self._join(name) for name in RATES}

    def _orchestrate(self, command: str, what: str, learners: int) -> Process:
        where = ("--port", str(self.port), "--learners", str(learners), "--json")
        return self.start(ORCHESTRATOR, str(self.copies), command, what, *where)

    def _join(self, name: str) -> Process:
        pace = ("--rate", f"{RATES[name]} samples/s", "--bandwidth", "8 MB/s")
        return self.start.learner(self.port, name, *pace, keep=str(self.updates))

    def resume(self) -> None:
        self.orchestrator.wait(GUARD_S)
        assert self.orchestrator.returncode == -signal.SIGKILL
        self.orchestrator = self._orchestrate("resume", "runs/chaos", 1)

    def restart(self, name: str) -> None:
        assert self.learners[name].wait(GUARD_S) == -signal.SIGKILL
        self.learners[name] = self._join(name)

    def revive(self) -> None:
        """Start those again, as a service would be, who found nobody for 30 s."""
        for name, process in self.learners.items():
            if process.poll() == 2 and "nobody answers" in self.start.said(process):
                self.learners[name] = self._join(name)

    def finish(self) -> None:
        """See the run end, and then the learners when they are told to."""
        assert self.orchestrator.wait(GUARD_S) == 0, self.start.said(self.orchestrator)
        self.revive()
        for process in self.learners.values():
            assert process.stdin is not None
            process.stdin.close()
        for process in self.learners.values():
            assert process.wait(GUARD_S) == 0, self.start.said(process)
        assert running_in(self.folder) == []

    @property
    def rows(self) -> list[Row]:
        return rows_of(self.run)


#: What records tell of a cycle, in this order.
MOMENTS = ("allocated", "uploaded", "evaluated")
#: Of the orchestrator.
DEATHS = 4


@dataclass(order=True)
class Prank:
    """Something to be done once the records say that a moment has come."""

    cycle: int
    moment: int  #: in MOMENTS
    do: Callable[[], None] = field(compare=False)

    def is_due(self, rows: list[Row]) -> bool:
        event = MOMENTS[self.moment]
        later = any(row["cycle"] > self.cycle for row in rows[-1:])
        return later or bool(seen(rows[-40:], event, cycle=self.cycle))


class Monkey:
    """Makes a seeded plan for a run, and carries it out as the run goes on."""

    def __init__(self, seed: int, cluster: Cluster) -> None:
        self._chance, self._cluster = random.Random(seed), cluster
        self._plan = [*self._on_learners(), *self._on_orchestrator()]
        self.done: Counter[str] = Counter()

    def _on_learners(self) -> Iterator[Prank]:
        for name in RATES:
            cycle = self._chance.randint(2, 5)
            while cycle < CYCLES - 6:
                prank = self._chance.choice([self._kill, self._freeze])
                moment = self._chance.randrange(len(MOMENTS))
                away = self._chance.randint(1, 3)
                yield from prank(name, cycle, moment, away)
                cycle += away + self._chance.randint(6, 10)

    def _kill(self, name: str, cycle: int, moment: int, away: int) -> Iterator[Prank]:
        def kill() -> None:
            self._cluster.learners[name].kill()
            self.done["learner killed"] += 1

        yield Prank(cycle, moment, kill)
        yield Prank(cycle + away, moment, lambda: self._cluster.restart(name))

    def _freeze(self, name: str, cycle: int, moment: int, away: int) -> Iterator[Prank]:
        def stop() -> None:
            freeze(self._cluster.learners[name])
            self.done["learner frozen"] += 1

        yield Prank(cycle, moment, stop)
        # A cycle that misses somebody takes 1.5 s.
        yield Prank(cycle + away, moment, lambda: thaw(self._cluster.learners[name]))

    def _on_orchestrator(self) -> Iterator[Prank]:
        deaths = [*MOMENTS[:2], "before", "after"]  # the checkpoint
        self._chance.shuffle(deaths)
        for place, death in enumerate(deaths):
            cycle = 4 + 6 * place + self._chance.randint(0, 3)
            if death in MOMENTS:
                yield Prank(cycle, MOMENTS.index(death), self._kill_orchestrator)
            else:
                (self._cluster.copies / f"die-{cycle}-{death}").touch()

    def _kill_orchestrator(self) -> None:
        self._cluster.orchestrator.kill()
        self._cluster.orchestrator.wait()

    def play(self) -> None:
        """Carry out the plan; bring the orchestrator back whenever it was killed."""
        plan, cluster = sorted(self._plan), self._cluster

        def over() -> bool:
            cluster.revive()
            while plan and plan[0].is_due(cluster.rows):
                plan.pop(0).do()
            if cluster.orchestrator.poll() == -signal.SIGKILL:
                self.done["orchestrator killed"] += 1
                cluster.resume()
            done = not plan and self.done["orchestrator killed"] == DEATHS
            return done or cluster.orchestrator.poll() not in (None, -signal.SIGKILL)

        until(over, "the end of the plan")


def undisturbed(folder: Path) -> float:
    """Return the accuracy of the same job, simulated, whose learners all stay."""
    learners = tuple(
        LearnersTable(
            name=name, rate=SamplesPerSecond(rate), bandwidth=BytesPerSecond(8e6)
        )
        for name, rate in RATES.items()
    )
    job = msgspec.structs.replace(load(folder / "job.toml"), learners=learners)
    return mel.simulate(job, runs=None).history.metric[-1]


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])  # 2 and 3 were tried by hand
def test_a_monkey_costs_no_update_and_no_accuracy(seed: int, tmp_path: Path) -> None:
    with processes(tmp_path) as start:
        cluster = Cluster(start)
        monkey = Monkey(seed, cluster)
        monkey.play()
        cluster.finish()
    assert monkey.done["orchestrator killed"] == DEATHS
    assert min(monkey.done["learner killed"], monkey.done["learner frozen"]) >= 2
    assert_in_order(cluster.rows)
    assert_counted_once(cluster.rows)
    assert_aggregated_once(cluster)
    # Fewer learners to a mean take longer steps, and may well end higher.
    assert accuracy(cluster) >= undisturbed(tmp_path) - 0.01


def test_who_was_cut_off_once_takes_work_again() -> None:
    learner = Learner(name="a")
    learner.prepare(SPEC)
    speed = learner._prepared("t").speed
    speed.link = Line(latency_s=0.0, rate=8e6)
    speed.compute = Line(latency_s=0.0, rate=5000.0)
    usual = learner.bid("t", 1.5, 2)
    learner._prepared("t").idle = False
    speed.link_drift.see(predicted_s=0.1, took_s=10.0)  # nobody answered for so long
    bids = [learner.bid("t", 1.5, 2) for _ in range(15)]
    assert bids[0] == 0
    assert bids[-1] == usual


SPEC = TaskSpec(
    task="t",
    model="TwoNN",
    seed=0,
    training=Training(rate=0.1),
    shard=50,
    federated=False,
    private=True,
)


def assert_in_order(rows: list[Row]) -> None:
    evaluated = seen(rows, "evaluated")
    assert [row["cycle"] for row in evaluated] == list(range(1, CYCLES + 1))
    assert [row["cycle"] for row in seen(rows, "aggregated")] == [
        row["cycle"] for row in evaluated
    ]
    numbers = [row["cycle"] for row in rows]
    assert numbers == sorted(numbers)
    over_s = {row["cycle"]: row["time_s"] for row in evaluated}
    for row in rows:
        assert over_s.get(row["cycle"] - 1, 0.0) <= row["time_s"]
        assert row["time_s"] <= over_s[row["cycle"]]


def accepted(rows: list[Row], cycle: int) -> dict[str, int]:
    """Whose updates count in a cycle, with the samples they were trained on."""
    names = Counter(row["learner"] for row in seen(rows, "uploaded", cycle=cycle))
    assert set(names.values()) <= {1}
    dropped = {row["learner"] for row in seen(rows, "dropped", cycle=cycle)}
    trained = [
        row for event in ("trained", "halted") for row in seen(rows, event, cycle=cycle)
    ]
    assert Counter(row["learner"] for row in trained) == names
    return {
        row["learner"]: row["samples"]
        for row in trained
        if row["learner"] not in dropped
    }


def assert_counted_once(rows: list[Row]) -> None:
    for merged in seen(rows, "aggregated"):
        counted = accepted(rows, merged["cycle"])
        assert merged["learners"] == len(counted)
        assert merged["samples"] == sum(counted.values())
    # Who crashes is no offender.
    assert not [row for row in rows if row.get("offence")]
    assert not seen(rows, "expelled")


Kept = tuple[int, torch.Tensor]  #: samples, and all parameters in a row


def assert_aggregated_once(cluster: Cluster) -> None:
    """After each cycle the model is the mean of its accepted updates and no others'."""
    before = None
    for cycle in range(1, CYCLES + 1):
        after = flat(cluster.copies / f"{cycle}.safetensors")[1]
        counted = accepted(cluster.rows, cycle)
        if counted:
            assert merged_from(after, updates_of(cluster, cycle)) == counted, cycle
        elif before is not None:
            assert torch.equal(after, before)
        before = after
    assert before is not None
    assert torch.equal(before, flat(cluster.run / "model.safetensors")[1])


def merged_from(model: torch.Tensor, updates: dict[str, list[Kept]]) -> dict[str, int]:
    """Whose updates a model is the mean of, by trying all there were.

    A learner may have made several in a cycle, where the orchestrator was killed in it.
    """
    ways = [
        {name: update for name, update in zip(updates, choice, strict=True) if update}
        for choice in itertools.product(*([None, *kept] for kept in updates.values()))
    ]
    fit = [way for way in ways if way and is_mean(model, list(way.values()))]
    whose = [{name: samples for name, (samples, _) in way.items()} for way in fit]
    assert len(whose) == 1, f"{len(whose)} ways to make this model of {list(updates)}"
    return whose[0]


def is_mean(model: torch.Tensor, updates: list[Kept]) -> bool:
    weights = believed([float(samples) for samples, _ in updates])
    weighted = zip(weights, updates, strict=True)
    mean = sum(weight / sum(weights) * values for weight, (_, values) in weighted)
    return torch.allclose(torch.as_tensor(mean), model, rtol=1e-5, atol=1e-6)


def believed(samples: list[float]) -> list[float]:
    """Of three updates or more none counts for more than all the others together."""
    others = sum(samples) - max(samples)
    return [min(n, others) for n in samples] if len(samples) > 2 else samples


def updates_of(cluster: Cluster, cycle: int) -> dict[str, list[Kept]]:
    """All different updates that were made in a cycle, by learner."""
    made: dict[str, list[Kept]] = defaultdict(list)
    for path in sorted(cluster.updates.glob(f"{cycle}.*.safetensors")):
        samples, values = flat(path)
        mine = made[path.name.split(".")[1]]
        known = any(n == samples and torch.equal(v, values) for n, v in mine)
        if samples and not known:
            mine.append((samples, values))
    return made


def flat(path: Path) -> Kept:
    with safe_open(path, "pt") as file:
        samples = int((file.metadata() or {}).get("samples", 0))
        parts = [file.get_tensor(name).flatten() for name in sorted(file.keys())]
    return samples, torch.cat(parts).double()


def accuracy(cluster: Cluster) -> float:
    last: float = seen(cluster.rows, "evaluated")[-1]["metrics"]["accuracy"]
    return last
