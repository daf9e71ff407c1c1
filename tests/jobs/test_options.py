"""Jobs whose scheme chooses for each learner how what it sends is made smaller."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.algorithms.resuming import whole_and_resumed
from tests.jobs.small import small

from melisma.errors import ConfigError, InfeasibleError
from melisma.jobs.building import known_law, task_of, workload_of
from melisma.jobs.families import family_of
from melisma.jobs.files import dump, load
from melisma.jobs.options import wires_of
from melisma.jobs.schema import AggregationTable, Job, LearnersTable, WorkloadTable
from melisma.jobs.ways import ways_of
from melisma.jobs.wire_table import OptionTable, WireTable
from melisma.launch import build
from melisma.learning.parameters import parameters_of, trained
from melisma.learning.settings import Late, Rule
from melisma.runs import records
from melisma.system.options import AS_NOW
from melisma.units import Bytes, BytesPerSecond, Deadline, SamplesPerSecond, Seconds

PLAIN, INT8 = OptionTable(), OptionTable(down="int8", up="int8")
SPARSE = OptionTable(down="int8", up="top-k 1 %")
HALF = OptionTable(submodel="width 0.5")
BOTH = OptionTable(submodel="width 0.5", down="int8", up="int8")
NAMES = {INT8.name, SPARSE.name}
EXAMPLE = Path(__file__).parents[2] / "examples" / "options.toml"
#: Of the learners, five have 3 MB/s, and less than half of the second left.
SPEED: dict[str, Any] = {
    "rate": SamplesPerSecond(1.0),
    "bandwidth": BytesPerSecond(1.0),
}
LARGE = WorkloadTable(model_size=Bytes(1.3e6))


def menu(*options: OptionTable, **changes: Any) -> Job:
    given = options or (PLAIN, INT8, SPARSE)
    said: dict[str, Any] = {"scheme": "csa-options", "workload": LARGE}
    return small(options=given, **(said | changes))


def ran(job: Job) -> list[records.Record]:
    found: list[records.Record] = []
    build(job).run(None, found.append)
    return found


def allocated(job: Job) -> list[records.Allocated]:
    return [r for r in ran(job) if isinstance(r, records.Allocated)]


def test_who_has_a_slow_link_sends_less() -> None:
    found = allocated(menu(cycles=2))
    options = {r.learner: r.option for r in found}
    assert options["pi-1"] == "int8 / int8"
    assert {r.option for r in found} <= {"fp32", "int8 / int8", "int8 / top-k 1 %"}
    task = task_of(menu())
    like, moving = parameters_of(task.model), trained(task.model)
    shares = [wire.share(like, moving) for wire in wires_of(menu())]
    (saved,) = {r.saved_bytes for r in found if r.learner == "pi-1"}
    assert saved == round(2 * 1.3e6 * (1 - shares[1]))


def test_more_is_trained_than_by_csa_and_no_later() -> None:
    job = menu(cycles=1)
    csa = msgspec.structs.replace(job, scheme="csa")
    chosen, plain = (allocated(j) for j in (job, csa))
    passes = [sum(r.samples * r.steps for r in found) for found in (chosen, plain)]
    assert passes[0] > 1.5 * passes[1]
    assert all((r.predicted_s or 0) <= float(job.deadline) for r in chosen)
    assert {r.option for r in plain} == {""}


@pytest.mark.parametrize("parts", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("late_at_most", [None, 0.1])
def test_cycles_take_what_was_predicted(
    late_at_most: float | None, parts: bool
) -> None:
    """Promises, too, learn from what an option's own law says."""
    job = menu(
        *((PLAIN, HALF, BOTH) if parts else ()),
        cycles=4,
        overhead=Seconds(0.1),
        late_at_most=late_at_most,
    )
    found = ran(job)
    predicted = {
        (r.cycle, r.learner): r.predicted_s
        for r in found
        if isinstance(r, records.Allocated) and r.samples
    }
    began = {r.cycle: 0.0 for r in found}
    for r in found:
        if isinstance(r, records.Allocated):
            began[r.cycle] = r.time_s
    took = {
        (r.cycle, r.learner): r.time_s - began[r.cycle]
        for r in found
        if isinstance(r, records.Uploaded)
    }
    assert took == pytest.approx(predicted)


def test_its_law_is_of_the_bytes_that_travel() -> None:
    job = menu(overhead=Seconds(0.1))
    task = task_of(job)
    options = ways_of(job, task).choice
    law = known_law(job, workload_of(job, task.model, task.data)).known
    pi = len(law.fixed_s) - 1
    taken = np.full((len(law.fixed_s), 1), 1)
    found = options.law(law, taken).fixed_s[pi, 0]
    # By the bytes themselves, of a model that says how large it is.
    share = sum(
        wires_of(job)[1].size_bytes(parameters_of(task.model), trained(task.model))
    )
    whole = 2 * sum(t.nbytes for t in parameters_of(task.model).values())
    assert found == pytest.approx(0.1 + 2 * 1.3e6 * share / whole / 3e6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "late_at_most", [0.1, pytest.param(None, marks=pytest.mark.slow)]
)
def test_a_run_that_was_stopped_goes_on_as_it_would_have(
    late_at_most: float | None, tmp_path: Path
) -> None:
    # Links so slow that options change as promises do.
    sparse = OptionTable(up="top-k 5 %", value=0.9)
    power = OptionTable(down="int8", up="powersgd 2")
    job = menu(
        *(PLAIN, sparse, power, INT8),
        cycles=6,
        noise=0.3,
        late_at_most=late_at_most,
    )
    whole, resumed = whole_and_resumed(job, tmp_path, after=3)
    assert whole == resumed
    lines = b"".join(whole.values())
    assert lines.count(b'"option"') > 6


@pytest.mark.slow
def test_a_run_may_choose_its_deadlines() -> None:
    found = allocated(menu(cycles=2, deadline="auto"))
    assert {r.option for r in found if r.samples} <= {"fp32", *NAMES}
    assert any(r.option in NAMES for r in found)


def test_the_example_shows_what_it_says() -> None:
    job = load(EXAMPLE)
    chosen, plain = (
        allocated(msgspec.structs.replace(job, scheme=scheme, cycles=1))
        for scheme in ("csa-options", "csa")
    )
    passes = [sum(r.samples * r.steps for r in found) for found in (chosen, plain)]
    assert passes[0] > 2 * passes[1]
    assert {r.option for r in chosen} <= {"fp32", "int8 / int4", *NAMES}


def test_a_scheme_that_chooses_none_takes_the_first() -> None:
    first = menu(INT8, PLAIN, scheme="csa", cycles=2)
    wire = small(
        scheme="csa", workload=LARGE, cycles=2, wire=WireTable(down="int8", up="int8")
    )
    assert ran(first) == ran(wire)
    assert ways_of(first, task_of(first)).choice is AS_NOW


def test_without_options_it_is_csa() -> None:
    one, other = (small(scheme=scheme, cycles=2) for scheme in ("csa-options", "csa"))
    assert ran(one) == ran(other)


def test_values_are_measured_unless_they_are_given() -> None:
    given = OptionTable(up="int4", value=0.25)
    job = menu(PLAIN, given, SPARSE)
    value = ways_of(job, task_of(job)).choice.value
    assert value[:2] == pytest.approx([1.0, 0.25])
    assert 0.2 < value[2] < 0.8
    # At a quarter of the worth, nobody takes it whose link is fast enough.
    fast = WorkloadTable(model_size=Bytes(1e5))
    taken = allocated(menu(PLAIN, given, cycles=1, workload=fast))
    assert {r.option for r in taken} == {"fp32"}


def test_options_are_tables_of_a_job_file(tmp_path: Path) -> None:
    text = """
    scheme = "csa-options"
    [[options]]
    [[options]]
    down = "fp16"
    up = "top-k 1 %"
    value = 0.5
    """
    sparse = OptionTable(down="fp16", up="top-k 1 %", value=0.5)
    path = tmp_path / "job.toml"
    path.write_text(text)
    assert load(path).options == (PLAIN, sparse)
    path.write_text(dump(load(path)))
    assert load(path).options == (PLAIN, sparse)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (menu(scheme="async:fedbuff"), "averaged in cycles"),
        (menu(late=Late.CARRY), "not with late = 'carry'"),
        (menu(checks=0.1), "leave one of them out"),
        (menu(wire=WireTable(up="int8")), "leave one of them out"),
        (menu(PLAIN, PLAIN), "has one twice"),
        (menu(HALF, PLAIN), "one of the whole model first"),
        (menu(PLAIN, HALF, coverage=1.5), "from 0 to 1"),
        (menu(PLAIN, INT8, coverage=0.1), "some have a submodel"),
        (menu(PLAIN, HALF, coverage=0.1, scheme="csa"), "under a scheme that"),
        (
            menu(
                PLAIN, HALF, learners=(LearnersTable(name="a", submodel="x", **SPEED),)
            ),
            r"in \[\[options\]\] alone",
        ),
        (
            menu(PLAIN, HALF, aggregation=AggregationTable(rule=Rule.MEDIAN)),
            "compares updates",
        ),
    ],
)
def test_where_they_have_no_place_they_are_refused(job: Job, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        family_of(job).checked(job)


def by_part(found: list[records.Allocated]) -> dict[int, float]:
    """Return the share of each cycle's samples that train all of the model."""
    shares: dict[int, float] = {}
    for cycle in {r.cycle for r in found}:
        those = [r for r in found if r.cycle == cycle]
        whole = sum(r.samples for r in those if not r.option.startswith("width"))
        shares[cycle] = whole / sum(r.samples for r in those)
    return shares


@pytest.mark.slow
@pytest.mark.parametrize("coverage", [None, 0.0, 0.6])
def test_who_is_slow_trains_a_part_and_none_of_the_model_starves(
    coverage: float | None,
) -> None:
    # Worth as much as the whole, and faster: all would take it.
    half = OptionTable(submodel="width 0.5", value=1.0)
    found = allocated(menu(PLAIN, half, cycles=2, coverage=coverage))
    assert {r.option for r in found if r.samples} <= {"fp32", "width 0.5"}
    least = 0.1 if coverage is None else coverage
    for share in by_part(found).values():
        assert least - 1e-9 <= share < least + 0.3
    taken = {r.learner: r.option for r in found if r.samples}
    assert taken["pi-1"] == "width 0.5"


@pytest.mark.slow
def test_a_run_of_parts_and_codecs_goes_on_byte_for_byte(tmp_path: Path) -> None:
    sparse = OptionTable(submodel="width 0.5", up="top-k 5 %", value=0.9)
    frozen = OptionTable(submodel="freeze 0.4", down="int8", up="powersgd 2")
    options = (PLAIN, sparse, frozen, INT8)
    job = menu(*options, cycles=6, noise=0.4, late_at_most=0.1)
    whole, resumed = whole_and_resumed(job, tmp_path, after=3)
    assert whole == resumed
    lines = b"".join(whole.values())
    assert lines.count(b"width 0.5, top-k 5 %") > 1


@pytest.mark.parametrize("scheme", ["csa-options", "csa"])
@pytest.mark.parametrize("submodel", ["", "tiny"])
def test_a_submodel_that_is_none_is_named(scheme: str, submodel: str) -> None:
    job = menu(PLAIN, OptionTable(submodel=submodel, value=0.5), scheme=scheme)
    with pytest.raises(ConfigError, match=f"unknown submodel '{submodel}'"):
        ways_of(job, task_of(job))


def test_what_cannot_be_covered_is_said() -> None:
    # No device exchanges the whole model in time.
    large = WorkloadTable(model_size=Bytes(3e7))
    tiny = OptionTable(submodel="width 0.1", down="int8", up="top-k 1 %", value=0.1)
    with pytest.raises(InfeasibleError, match=r"least coverage of 0\.1: lower it"):
        ran(menu(PLAIN, tiny, cycles=1, workload=large, deadline=Deadline(2.0)))


def test_a_value_is_a_share() -> None:
    with pytest.raises(ConfigError, match="above 0, up to 1"):
        OptionTable(value=0.0)
