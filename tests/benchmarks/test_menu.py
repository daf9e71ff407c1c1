"""A codec for each learner, measured."""

from dataclasses import replace

import bench_menu
import numpy as np
import pytest
from tests.benchmarks.printed import output, row

from melisma.system import DelayLaw, Problem
from melisma.system.menu import Menu


@pytest.mark.slow
def test_bench_menu_has_a_row_for_each_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_menu, "LIMIT_S", 60.0)
    monkeypatch.setattr(bench_menu, "DEADLINES_S", (30.0,))
    bench_menu.main(quick=True, jobs=1)
    text = output(capsys)
    for way in bench_menu.WAYS:
        assert row(text, f"│ {way} ")[0] > 0
    assert "int8 / int" in text


def test_every_way_has_the_same_learners() -> None:
    setting = bench_menu.SETTINGS[0]
    first, *others = (setting.job(way, 30.0, 1).learners for way in bench_menu.WAYS)
    assert all(learners == first for learners in others)


def test_what_cannot_be_planned_counts_as_the_limit() -> None:
    # Nobody has the model within a second.
    assert bench_menu.SETTINGS[0].run("csa", 1.0, 0).time_s == bench_menu.LIMIT_S


def test_the_rule_keeps_every_exchange_as_short_as_the_slowest() -> None:
    law = DelayLaw(
        step_s=np.full(3, 0.01), sample_s=np.zeros(3), fixed_s=np.array([1.0, 4.0, 8.0])
    )
    smaller = [law, law.slowed(network=0.5), law.slowed(network=0.25)]
    problem = Problem.of(law, samples=30, deadline_s=20.0)
    offered = replace(problem, menu=Menu.of(smaller, [1.0, 0.9, 0.8]))
    # 2 s is what the slowest takes by its smallest.
    found = bench_menu.by_bandwidth(offered).options
    assert found is not None
    assert found.tolist() == [0, 1, 2]
