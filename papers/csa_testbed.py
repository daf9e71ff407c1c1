"""CSA, equal shares and the synchronous scheme on emulated devices, by the clock."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from melisma.jobs import DataTable, Job, LearnersTable, TrainingTable
from melisma.learning import Late
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond
from melisma.views import plots

from . import live
from .claims import Claim, above
from .kit import NO_LIMIT, Data, Spread, in_order

#: The paper's names, which Figure 3 has too.
NAMES = {"csa": "HA-Asyn", "sync": "HA-Sync", "eta": "HU-Asyn"}
FULL = live.LiveStudy(
    schemes=tuple(NAMES),
    testbed=True,
    cycles=6,
    trials=3,
    deadline_s=2.5,
    samples=1_500,
    target=0.8,
    samples_per_s=1_700.0,
)
QUICK = replace(FULL, testbed=False, trials=10, cycles=12)


def learners(study: live.LiveStudy) -> tuple[LearnersTable, ...]:
    """The devices as a simulation knows them: a share of a core, and a link."""
    return tuple(
        LearnersTable(
            name=place.name,
            rate=SamplesPerSecond(study.samples_per_s * (place.cpu or 1.0)),
            bandwidth=BytesPerSecond((place.down_bps or 1e9) / 8),
        )
        for place in study.places
    )


def job_of(study: live.LiveStudy, scheme: str, trial: int) -> Job:
    """One scheme on the devices; nobody is halted, and a cycle lasts for all."""
    return Job(
        name="csa",
        scheme=scheme,
        model=study.model,
        cycles=study.cycles,
        deadline=Deadline(study.deadline_s),
        seed=trial,
        samples=study.samples,
        epochs_at_most=NO_LIMIT,
        late=Late.WAIT,
        noise=study.noise,
        data=DataTable(name=study.dataset),
        training=TrainingTable(rate=0.05),
        learners=learners(study),
    )


def run_csa_live(study: live.LiveStudy, spread: Spread = in_order) -> Data:
    """Run all schemes."""
    return live.race(job_of, study, spread)


def claims_of_csa_live(data: Data) -> list[Claim]:
    """What a testbed can say of Figure 3: who has the accuracy first, by the clock."""
    ours = live.seconds_to_target(data, "csa")
    target = f"{100 * float(data['target'][0]):.0f} %"
    rivals = [
        live.saved(
            f"Time to {target} that HA-Asyn saves on {NAMES[rival]}",
            ours,
            live.seconds_to_target(data, rival),
            above(0.0),
            "with four devices and whole passes schemes differ by a step or two",
        )
        for rival in ("eta", "sync")
    ]
    return [*rivals, *live.foreseen(NAMES, data)]


LOOKS: dict[str, plots.Look] = {name: plots.LOOKS[name] for name in NAMES}
draw: Callable[..., None] = partial(live.draw_race, NAMES, LOOKS)
EXHIBIT = live.live_exhibit(
    QUICK,
    FULL,
    run_csa_live,
    draw,
    partial(live.table_of_race, NAMES),
    claims_of_csa_live,
    title="accuracy by the clock on four devices",
)
