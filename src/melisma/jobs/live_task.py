"""One task of a live run, as the orchestrator holds it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from melisma.algorithms.state import RunState
from melisma.algorithms.task import ScheduledTask
from melisma.bundles.bundle import Bundle
from melisma.errors import ConfigError
from melisma.fleets.audit import Audit
from melisma.fleets.live import LiveLearners
from melisma.fleets.live_carrying import CarryingCrew
from melisma.fleets.messages import MOST_SUBMODELS, Outline, Shaped, TaskSpec
from melisma.fleets.roster import Announcement, Roster
from melisma.fleets.served import ServedTask
from melisma.fleets.ways import ALIKE, Ways
from melisma.jobs.benchmark_table import Known
from melisma.jobs.building import task_of
from melisma.jobs.families import family_of
from melisma.jobs.options import transfers_of
from melisma.jobs.schema import Job
from melisma.jobs.ways import ways_of
from melisma.learning.losses import OwnTraining, numbers
from melisma.learning.outline import check_training, outline_of
from melisma.learning.parameters import digest, frozen_of, parameters_of, trained
from melisma.learning.samples import INPUTS, fields_of
from melisma.learning.settings import OWN, Late, Training
from melisma.learning.shards import ShardStore
from melisma.learning.task import plain
from melisma.runs.store import RunWriter
from melisma.schemes import AS_PRINTED, DECENTRALISED
from melisma.system.law import Mode

#: Share of the mean that one learner may have, unless the job says. What a learner is
#: given, and so its weight, follows from what it says of itself.
MOST_SHARE = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class LiveTask:
    """A task, what learners fetch for it, and the run that records it."""

    job: Job
    task: ScheduledTask
    served: ServedTask
    run: RunWriter
    ways: Ways = ALIKE  #: of taking part
    bundle: str = ""  #: hash of the source that learners make it of

    @classmethod
    def of(cls, job: Job, run: RunWriter, bundle: Bundle | None = None) -> "LiveTask":
        """Load and build a task at its run's checkpoint; ConfigError or DataError."""
        task = task_of(job)
        ways = ways_of(job, task)
        if len(ways.submodels) > MOST_SUBMODELS:
            raise ConfigError(
                f"{len(ways.submodels)} submodels: a live run has up to "
                f"{MOST_SUBMODELS}, give fewer"
            )
        task = replace(task, options=ways.choice, fixed_ways=ways.told)
        if job.aggregation.most_share is None:
            task = replace(task, merging=replace(task.merging, most_share=MOST_SHARE))
        run.restore(task.model)
        done = run.checkpoint
        store = ShardStore(task.data.train, task.shard)
        cycle = done.cycle if done else 0
        served = ServedTask(
            job.name,
            parameters_of(task.model),
            store,
            cycle=cycle,
            frozen=frozen_of(task.model),
            ways=ways.each,
            moving=trained(task.model).keys(),
            seed=job.seed,
        )
        own = bundle and bundle.holds(job.task or job.model)
        hash = bundle.hash if bundle and own else ""
        return cls(job, task, served, run, ways, hash)

    @property
    def began_s(self) -> float:
        """Seconds on the run's clock at its checkpoint."""
        return self.run.checkpoint.time_s if self.run.checkpoint else 0.0

    @property
    def is_done(self) -> bool:
        """Whether all its cycles are over."""
        done = self.run.checkpoint
        if done is None:
            return False
        return done.cycle == self.task.cycles or RunState(self.run.past).stopped

    @property
    def announcement(self) -> Announcement:
        """The task as it is announced to learners."""
        job = self.job
        spec = TaskSpec(
            task=job.name,
            model=job.model,
            seed=job.seed,
            training=plain(self.task.training),
            recipe=job.task or "",
            shard=self.task.shard,
            federated=job.mode == Mode.FEDERATED,
            private=job.scheme in DECENTRALISED,
            steps=job.steps,
            moving=family_of(job).moves_data,
            bundle=self.bundle,
            exact=job.checks > 0 or family_of(job).exact,
            base=digest(self.served.frozen) if self.served.frozen else "",
            states=job.benchmark.known == Known.MEASURED,
            look_every=job.look_every,
            adaptive=job.scheme not in AS_PRINTED,
            benchmarked=job.benchmark.shards,
            sizes=job.benchmark.sizes,
            repeats=job.benchmark.repeats_for(job.scheme),
            patience_s=job.benchmark.patience_s(),
            late_at_most=job.late_at_most or 0.0,
            down=str(self.ways.each[0].wire.down),
            up=str(self.ways.each[0].wire.up),
            submodels=self.ways.submodels,
        )
        shards = len(self.task.data.train) // self.task.shard
        benchmark = self.served.store.first(min(job.benchmark.shards, shards))
        return Announcement(spec=spec, benchmark=benchmark)

    def offer_outline(self) -> None:
        """Let learners without PyTorch ask what to make of the task."""
        # Once: tracing a model is seen by all threads that use torch meanwhile.
        self.served.outline = cache(self._outline)

    def _outline(self) -> Outline:
        return outline_for(self.job, self.task, self.ways)

    def audit(self) -> Audit | None:
        """Return the audit of its updates, if the job has checks."""
        if not self.job.checks:
            return None
        return Audit(
            self.task.model,
            self.served.store,
            self.task.training,
            seed=self.job.seed,
            share=self.job.checks,
        )

    def learners(self, roster: Roster, began_s: float) -> LiveLearners:
        """Return its crew, from the learners that joined."""
        job, audit = self.job, self.audit()
        if job.late == Late.CARRY:
            return CarryingCrew(
                roster,
                self.served,
                late=job.late,
                audit=audit,
                began_s=began_s,
                staleness_at_most=job.staleness_at_most,
            )
        return LiveLearners(
            roster,
            self.served,
            late=job.late,
            audit=audit,
            began_s=began_s,
            transfers=transfers_of(job),
            ways=self.ways,
        )


def outline_for(job: Job, task: ScheduledTask, ways: Ways) -> Outline:
    """Return what learners without PyTorch make a task of.

    ConfigError naming what of the job they cannot do.
    """
    family = family_of(job)
    wire = ways.each[0].wire
    wrong = {
        f"scheme {job.scheme!r}": bool(family.name and family.exact),
        "samples that move between devices": family.moves_data,
        "checks of work, which is redone": job.checks > 0,
        f"codecs {wire.down} and {wire.up}": len(ways.each) > 1 or not wire.is_plain,
        "submodels": bool(ways.submodels),
    }
    wrong |= _functions_of_its_own(task.training)
    if refused := next((what for what, is_so in wrong.items() if is_so), None):
        raise ConfigError(f"a browser does not do {refused}: use Python learners")
    check_training(task.training)
    fields = fields_of(task.data.train)
    if INPUTS not in fields:
        raise ConfigError(f"samples have no {INPUTS!r}, which a browser trains on")
    return Outline(
        layers=outline_of(task.model, fields[INPUTS].shape),
        training=plain(task.training),
        parameters={
            name: Shaped(dtype=str(p.dtype).removeprefix("torch."), shape=[*p.shape])
            for name, p in parameters_of(task.model).items()
        },
        fields={
            name: Shaped(dtype=field.dtype, shape=[*field.shape])
            for name, field in fields.items()
        },
    )


def _functions_of_its_own(training: Training) -> Mapping[str, bool]:
    """Return which functions of the task's own no other language has."""
    if not isinstance(training, OwnTraining):
        return {}
    return {
        "a loss of the task's own": training.own_loss is not None,
        "a transform of the task's own": training.own_transform not in (None, numbers),
        "an optimiser of the task's own": training.optimiser == OWN,
    }
