"""A codec for each learner, measured."""

import bench_menu
import pytest
from tests.benchmarks.printed import output, row


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
