"""The tables of a job file, every key with its default: an empty file is the demo."""

import math
from collections.abc import Sequence

import msgspec

from melisma.coding import CODES
from melisma.coding.two_stage import First, Helpers
from melisma.errors import ConfigError, unknown
from melisma.jobs.asynchronous_table import AsynchronousTable
from melisma.jobs.benchmark_table import BenchmarkTable
from melisma.jobs.channel_table import ChannelTable
from melisma.jobs.data_table import DataTable as DataTable
from melisma.jobs.data_table import Split as Split
from melisma.jobs.energy_table import Per, PowerTable
from melisma.jobs.fog_table import FogTable
from melisma.jobs.names import check_folder_name
from melisma.jobs.names import names_of as names_of
from melisma.jobs.table import Given, Named, Rows, Table, Text, given
from melisma.jobs.transmission_table import TransmissionTable
from melisma.jobs.wire_table import OptionTable, WireTable
from melisma.learner.background import Activity
from melisma.learning.lengths import Sizes
from melisma.learning.settings import (
    Argument,
    Buffers,
    Correction,
    Late,
    Rule,
    Schedule,
    ServerRule,
    Weights,
)
from melisma.registry import reference
from melisma.schemes import name_of
from melisma.schemes.participation import TakesPart
from melisma.system.law import Mode
from melisma.system.promise import Promises
from melisma.system.states import heated
from melisma.units import (
    Bytes,
    BytesPerSecond,
    Deadline,
    Grams,
    Hertz,
    Joules,
    Metres,
    SamplesPerSecond,
    Seconds,
)


class TrainingTable(Table, frozen=True, kw_only=True):
    """How every learner trains, where that is not as the task says."""

    optimiser: str | None = None  #: any of torch.optim, by name
    rate: float | None = None  #: the learning rate
    batch: int | None = None  #: samples in a batch
    momentum: float | None = None  #: the optimiser's
    clip: float | None = None  #: largest norm of a batch's gradient
    proximal: float | None = None  #: μ of FedProx: pull back to the cycle's model
    schedule: Schedule | None = None  #: of the rate, over cycles
    warmup: int | None = None  #: cycles over which the rate rises to its full value
    floor: float | None = None  #: share of the rate that is left in the end
    decay: float | None = None  #: factor of each cycle, where it falls exponentially
    buffers: Buffers | None = None  #: averaged, or local: each learner keeps its own
    #: The optimiser's, which may stand in the table itself.
    arguments: dict[str, Argument] = msgspec.field(default_factory=dict)


class StragglingTable(Table, frozen=True, kw_only=True):
    """Artificial stragglers of coded training."""

    number: int = 0  #: workers that straggle, drawn anew in each cycle
    slower: float = 8.0  #: slowdown factor; inf: dead


class AggregationTable(Table, frozen=True, kw_only=True):
    """How the learners' updates become one model."""

    rule: Rule = Rule.MEAN  #: of each coordinate
    trim: float = 0.1  #: share that the trimmed mean leaves out at either end
    clip: float | None = None  #: farthest that an update may lead from the model (L2)
    most_share: float | None = None  #: of the mean, that one update may have
    weights: Weights | None = None  #: of updates; None: as the mode has it
    server: ServerRule = ServerRule.SGD  #: how the model moves along the mean change
    rate: float | None = None  #: of the server; None: its own
    momentum: float | None = None  #: of the server; None: its own
    beta2: float | None = None  #: by which squares fade (adam, yogi)
    epsilon: float | None = None  #: added to their roots (adagrad, adam, yogi)
    correction: Correction = Correction.NONE  #: of learners' gradients

    def _check(self) -> None:
        fading = (ServerRule.ADAM, ServerRule.YOGI)
        keys = {"beta2": fading, "epsilon": (ServerRule.ADAGRAD, *fading)}
        for key, servers in keys.items():
            if getattr(self, key) is not None and self.server not in servers:
                names = " or ".join(repr(server.value) for server in servers)
                raise ConfigError(
                    f"{key} is of server = {names}, and it is "
                    f"{self.server.value!r}: leave it out"
                )


class ParticipationTable(Table, frozen=True, kw_only=True):
    """Who takes part in a cycle."""

    rule: TakesPart = TakesPart.ALL  #: by which learners are chosen
    learners: int | None = None  #: how many do; of no use where all do
    over: float = 1.3  #: times as many are asked (over-commit)

    def _check(self) -> None:
        if (self.rule == TakesPart.ALL) != (self.learners is None):
            raise ConfigError(
                f"rule = {self.rule.value!r} with learners = "
                f"{self.learners}: give a number of learners and a rule by which they "
                "are chosen"
            )
        if self.learners is not None and self.learners < 1:
            raise ConfigError(f"learners = {self.learners}: give 1 or more")
        if not 1 <= self.over < math.inf:
            raise ConfigError(f"over = {self.over}: give a number from 1 up")


class WorkloadTable(Table, frozen=True, kw_only=True):
    """What the model costs; counted from model and data where not given."""

    sample_size: Bytes | None = None  #: of one sample on the wire
    model_size: Bytes | None = None  #: of the model on the wire
    cycles: float | None = None  #: clock cycles to train on one sample once


class StateTable(Table, frozen=True, kw_only=True):
    """Speeds of a learner while its owner uses the device in one way."""

    probability: float | None = None  #: not given where ``heat`` is
    rate: SamplesPerSecond | None = None  #: in this state
    bandwidth: BytesPerSecond | None = None  #: in this state
    #: Of tasks, by name, in place of ``rate``.
    rates: dict[str, SamplesPerSecond] = msgspec.field(default_factory=dict)
    owner: Activity = Activity.IDLE  #: the load that a live run creates


class StatesFile(Table, frozen=True, kw_only=True):
    """A device whose owner uses it too, for `melisma join --states`."""

    states: tuple[StateTable, ...]
    heat: float | None = None
    changing: float = 0.0
    seed: int | None = None  #: of states that can be foreseen, by the device's name

    def _check(self) -> None:
        probabilities(self.states, self.heat, "these")
        if self.seed is not None and self.seed < 0:
            raise ConfigError(f"seed {self.seed}: give a number from 0 up")


#: Keys that say how fast learners are. In a cell the channel may place them.
WAYS = (["clock"], ["clock", "distance"], ["rate", "bandwidth"], ["states"])


class LearnersTable(Table, frozen=True, kw_only=True):
    """A group of equal learners: by clock and distance, by rates, or by states."""

    name: str  #: with a number behind it where there are several
    count: int = 1  #: how many are alike
    price: float = 1.0  #: of training on a shard, where several tasks share a budget
    clock: Hertz | None = None  #: of a learner in a radio cell
    distance: Metres | None = None  #: to the orchestrator, in a radio cell
    rate: SamplesPerSecond | None = None  #: at which it trains, one pass
    bandwidth: BytesPerSecond | None = None  #: of its link, each way
    states: tuple[StateTable, ...] = ()  #: of use by its owner
    heat: float | None = None  #: of the states: the first is likely, less so with heat
    power: PowerTable | None = None  #: what it draws, costs and emits
    submodel: str | None = None  #: what they train of the model; None: all of it

    def _check(self) -> None:
        if self.states:
            probabilities(self.states, self.heat, f"learners {self.name!r}:")
        elif self.heat is not None:
            raise ConfigError(f"learners {self.name!r} have heat, but no states")
        if self.count < 1:
            raise ConfigError(f"{self.name!r} has count {self.count}: give at least 1")
        given = [
            key
            for key in ("clock", "distance", "rate", "bandwidth", "states")
            if getattr(self, key) not in (None, ())
        ]
        if given not in WAYS:
            raise ConfigError(
                f"learners {self.name!r} have {', '.join(given) or 'no speed'}: give "
                "clock and distance, or rate and bandwidth, or states"
            )


def probabilities(
    states: Sequence[StateTable], heat: float | None, whose: str
) -> list[float]:
    """Return the probability of each state; ConfigError unless given in one way."""
    given = [state.probability for state in states if state.probability is not None]
    if heat is not None and not given:
        return [float(p) for p in heated([0], len(states), heat)[0]]
    if heat is not None or len(given) < len(states):
        raise ConfigError(f"{whose} states need a probability each, or one heat")
    if min(given) < 0 or not math.isclose(sum(given), 1.0, abs_tol=1e-6):
        raise ConfigError(f"{whose} states have probabilities that sum to {sum(given)}")
    return given


#: Two laptops, three Jetsons, five Raspberry Pis.
DEMO_LEARNERS = (
    LearnersTable(
        name="laptop",
        count=2,
        rate=SamplesPerSecond(8000),
        bandwidth=BytesPerSecond(20e6),
    ),
    LearnersTable(
        name="jetson",
        count=3,
        rate=SamplesPerSecond(2500),
        bandwidth=BytesPerSecond(10e6),
    ),
    LearnersTable(
        name="pi", count=5, rate=SamplesPerSecond(600), bandwidth=BytesPerSecond(3e6)
    ),
)


class TaskTable(Table, frozen=True, kw_only=True):
    """One of several tasks; keys that it leaves out are as in the job."""

    name: str  #: of the task, and its folder
    arrives: Seconds = Seconds(0.0)  #: when it is there to be trained
    task: str | None = None
    model: str | None = None
    loss: str | None = None
    metrics: tuple[str, ...] | None = None
    cycles: int | None = None
    stop: str | tuple[str, ...] | None = None
    deadline: Deadline | None = None
    samples: int | None = None
    shard: int | None = None
    least: int | None = None
    steps: int | None = None
    data: DataTable | None = None
    training: TrainingTable | None = None
    aggregation: AggregationTable | None = None
    workload: WorkloadTable | None = None

    def _check(self) -> None:
        check_folder_name(self.name)


class Job(Table, frozen=True, kw_only=True):
    """Everything that decides a run."""

    name: str = "demo"  #: of the run, and its folder
    #: a name that `melisma schemes` lists, or module:function
    scheme: Given[str, Named] = given("csa")
    #: module:function of a Task: model, data, loss, metrics
    task: Given[str | None, Named | None] = given(None)
    model: Given[str, Named] = given("TwoNN")  #: a name in MODELS, or module:factory
    loss: str = "cross-entropy"  #: a name in LOSSES
    metrics: tuple[str, ...] | None = None  #: names in METRICS; the first counts
    #: whether samples are sent to learners, or theirs
    mode: Given[Mode, str] = given(Mode.PARALLEL)
    cycles: int = 10  #: global updates
    stop: str | tuple[str, ...] = ()  #: before that: "accuracy >= 0.97", …
    deadline: Deadline = Deadline(1.0)  #: of a cycle; "auto": the run chooses it
    seed: int = 0  #: of all that is drawn
    samples: int | None = None  #: to train on in a cycle; all there are if not given
    shard: int = 1  #: samples that are allocated together
    least: int = 1  #: shards of a learner at least
    most: int | None = None  #: shards of a learner at most
    learners_at_most: int | None = None  #: in a cycle: the best of them
    steps: int = 5  #: epochs, for schemes that do not choose them (dab)
    epochs_at_most: int = 100  #: in a cycle, for schemes that choose them (csa)
    batches: int | None = None  #: of an order in place of epochs, where work is fixed
    #: what happens to a learner not done by the deadline
    late: Given[Late, str] = given(Late.HALT)
    late_at_most: float | None = None  #: share of a learner's cycles that may be late
    staleness_at_most: int = 5  #: cycles that an update is waited for (late = "carry")
    look_every: int = 10  #: batches between two looks at the clock (late = "overrun")
    code: str = "two-stage"  #: of coded training: a name in CODES
    stragglers: int | None = None  #: that a code tolerates; predicted if not given
    helpers: Helpers = "finished"  #: of a two-stage code
    first: First = "chosen"  #: who starts, where helpers wait
    channels: int | None = None  #: that coded answers share; each has its own if None
    straggling: StragglingTable = StragglingTable()
    transmission: TransmissionTable | None = None  #: batteries of coded training
    fog: FogTable = FogTable()
    checks: float = 0.0  #: share of live updates that are redone and compared
    noise: float = 0.0  #: spread of times around the law (σ of the logarithm)
    overhead: Seconds = Seconds(0.0)  #: of each learner in a cycle, whatever it does
    changing: float = 0.0  #: chance that a learner's state changes within a cycle
    data: DataTable = DataTable()
    training: TrainingTable = TrainingTable()
    aggregation: AggregationTable = AggregationTable()
    participation: ParticipationTable = ParticipationTable()
    asynchronous: AsynchronousTable = AsynchronousTable()
    wire: WireTable = WireTable()
    options: tuple[OptionTable, ...] = ()  #: in its place: the scheme chooses of these
    coverage: float | None = None  #: of samples, that train each parameter (options)
    workload: WorkloadTable = WorkloadTable()
    channel: ChannelTable = ChannelTable()
    benchmark: BenchmarkTable = BenchmarkTable()
    tasks: tuple[TaskTable, ...] = ()  #: several that share the learners
    budget: float | None = None  #: money: of all learners, or tasks, for a cycle
    energy: Given[Joules | None, Text] = given(None)  #: of all learners
    carbon: Given[Grams | None, Text] = given(None)  #: of all learners
    per: Given[Per, str] = given(Per.CYCLE)  #: what energy, budget and carbon are of
    #: groups of devices; ten unlike ones if left out
    learners: Given[tuple[LearnersTable, ...], Rows] = given(DEMO_LEARNERS)

    def __post_init__(self) -> None:
        # A function is stored as the name by which it can be found again.
        for key in ("scheme", "model", "task"):
            if callable(value := getattr(self, key)):
                named = name_of if key == "scheme" else reference
                msgspec.structs.force_setattr(self, key, named(value))
        Table.__post_init__(self)

    def _check(self) -> None:
        check_folder_name(self.name)
        for key in ("cycles", "shard", "steps", "look_every", "staleness_at_most"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{key} is {getattr(self, key)}: give at least 1")
        for key in ("epochs_at_most", "learners_at_most", "batches"):
            if (given := getattr(self, key)) is not None and given < 1:
                raise ConfigError(f"{key} is {given}: give 1 up")
        if not 0 <= self.overhead < math.inf:
            raise ConfigError(f"overhead of {self.overhead} s: give a time from 0 s up")
        if self.late_at_most is not None:
            Promises(self.late_at_most)  # which says what is wrong with it
        if self.seed < 0:
            raise ConfigError(f"seed {self.seed}: give a number from 0 up")
        if self.code not in CODES:
            raise unknown("code", self.code, CODES)
        if not 0 <= self.changing <= 1:
            raise ConfigError(f"changing = {self.changing}: give a chance from 0 to 1")
        if not 0 <= self.checks <= 1:
            raise ConfigError(f"checks = {self.checks}: give a share from 0 to 1")
        if self.checks and self.mode == Mode.FEDERATED:
            raise ConfigError(
                "checks redo work, and in federated mode its data stays on the "
                "learners: use checks = 0, or [aggregation] against false updates"
            )
        if self.aggregation.weights == Weights.DATA and self.mode == Mode.PARALLEL:
            raise ConfigError(
                "[aggregation] weights = 'data' is of data that lies on learners (mode "
                "'federated'): give 'samples', 'learners' or 'fednova'"
            )
        if self.data.sizes != Sizes.ANY and self.mode == Mode.PARALLEL:
            raise ConfigError(
                f"[data] sizes = {self.data.sizes.value!r} is of data that lies on "
                "learners (mode 'federated'): leave it out"
            )
        if not self.learners:
            raise ConfigError("no learners: give at least one [[learners]] table")
        names = names_of(self) if len(self.learners) > 1 else []
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(
                f"two learners have the name {twice!r}: give each [[learners]] "
                "table a name of its own"
            )
        self.channel.check_learners(self.learners, self.deadline)


def tasks_of(job: Job) -> list[Job]:
    """Return each task as a job of its own; the job itself if it is a single task."""
    if not job.tasks:
        return [job]
    return [
        msgspec.structs.replace(
            job,
            tasks=(),
            **{
                key: value
                for key in table.__struct_fields__
                if key != "arrives" and (value := getattr(table, key)) is not None
            },
        )
        for table in job.tasks
    ]


def own_code(job: Job) -> list[tuple[str, str]]:
    """Return the user's own tasks and models, as kind and ``module:function``."""
    used = [("task", t.task) if t.task else ("model", t.model) for t in tasks_of(job)]
    return [(what, name) for what, name in used if ":" in name]
