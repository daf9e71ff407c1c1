"""What becomes of late work, measured."""

import bench_carry
import numpy as np
import pytest
from tests.benchmarks.printed import output, row

from melisma.jobs.schema import Job, LearnersTable
from melisma.launch.simulate import build
from melisma.learning.samples import column
from melisma.learning.settings import Late
from melisma.system.law import Mode
from melisma.units import BytesPerSecond, Deadline, SamplesPerSecond


@pytest.mark.slow
def test_bench_carry_has_a_row_for_each_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_carry, "LIMIT", 2)
    bench_carry.main(quick=True, jobs=1)
    text = output(capsys)
    for late in bench_carry.LATE:
        assert row(text, f"│ {late.value} ")[0] > 0


@pytest.mark.parametrize(
    "law", [bench_carry.owners, bench_carry.outages, bench_carry.always]
)
def test_one_in_four_is_far_slower(law: bench_carry.Law) -> None:
    rng = np.random.default_rng(0)
    drawn = np.array([law(rng) for _ in range(400)])
    assert (drawn > 2.0).mean() == pytest.approx(0.25, abs=0.03)


def test_the_same_one_in_four_where_it_is_always() -> None:
    rng = np.random.default_rng(0)
    slow = [
        tuple(np.flatnonzero(bench_carry.always(rng)[0] > 2.0).tolist())
        for _ in range(9)
    ]
    assert set(slow) == {(0, 4, 8)}


def test_learners_differ_from_the_plan_as_the_law_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_carry, "LIMIT", 1)
    setting = bench_carry.SETTINGS[3]  # IID, always
    # All of the cycle is waited for who hangs; the rest is done by the deadline of 1 s.
    assert setting.time_s(Late.WAIT, 0) > 10.0
    assert setting.time_s(Late.DROP, 0) == pytest.approx(1.0)


def test_three_digits_lie_apart_on_who_is_slow() -> None:
    names = [
        LearnersTable(
            name=f"l{k}", rate=SamplesPerSecond(900), bandwidth=BytesPerSecond(1e7)
        )
        for k in range(bench_carry.LEARNERS)
    ]
    job = Job(mode=Mode.FEDERATED, deadline=Deadline(3.0), learners=tuple(names))
    crew = build(job).built.crew
    digits = column(crew._samples, "y").numpy()
    bench_carry.lay_apart(crew, seed=0)
    held = [set(digits[rows].tolist()) for rows in crew._own_rows]
    slow = bench_carry.SLOW.tolist()
    assert [held[k] for k in range(12) if slow[k]] == [{7}, {8}, {9}]
    assert all(held[k] == set(range(7)) for k in range(12) if not slow[k])
    assert sum(map(len, crew._own_rows)) == len(digits)
