"""Results on disk."""

import io
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec
import numpy as np
import pytest
from papers import (
    csa,
    dab_runs,
    fog_runs,
    med_clusters,
    tsdcfl_times,
    tsdcfl_tolerance,
    tsdcfl_training,
    tsdcfl_transmission,
    tsdcfl_uploads,
)

from melisma.comparison.sweeps import Parts, encoded
from melisma.comparison.trials import Result, TaskFigure
from melisma.errors import DataError
from melisma.maths.arrays import Floats
from melisma.runs.records import Metric
from melisma.views.history import History


class Pair(NamedTuple):
    values: Floats
    number: int


COURSE = History(
    time_s=[1.0],
    kinds=(Metric("mae", more_is_better=False),),
    metrics={"mae": [0.1 + 0.2]},
    loss=[float("nan")],
    cycle_s=[float("inf")],
    samples=[3],
    max_staleness=[0],
    mean_staleness=[0.0],
    utilisation=[1e-300],
    truancy=[0.0],
)


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        (float, 0.1),
        (list[float], [1 / 3, float("inf")]),
        (tuple[float, int], (np.float64(1 / 3), 2)),
        (dict[str, tuple[Pair, int]], {"a": (Pair(np.arange(3.0), 1), 2)}),
        (Floats, np.array([[0.1, np.nan], [np.inf, -0.0]])),
        (dict[str, Floats], {"x": np.array(2.5), "y": np.zeros((0, 4))}),
        (Result, COURSE),
        (Result, [TaskFigure("cycle (s)", 0.1 + 0.2, 2)]),
    ],
)
def test_what_is_read_is_what_was_written(
    tmp_path: Path, kind: Any, result: object
) -> None:
    parts: Parts[object] = Parts(tmp_path / "new", kind)
    assert "a" not in parts
    parts.write("a", result)
    assert "a" in parts
    again = parts.read("a")
    # Bytes, since NaN is not itself.
    assert encoded(again) == encoded(result)
    assert type(again) is type(result) or isinstance(result, np.generic)


@pytest.mark.parametrize(
    "trial",
    [
        csa.accuracies,
        dab_runs.simulated,
        fog_runs.medium_costs,
        fog_runs.outcome,
        fog_runs.unit_cost,
        med_clusters.trial,
        tsdcfl_times.times_of,
        tsdcfl_tolerance.tolerance_of,
        tsdcfl_training.coded,
        tsdcfl_training.learnt,
        tsdcfl_transmission.best_of,
        tsdcfl_transmission.policy_of,
        tsdcfl_uploads.cycles_of,
    ],
)
def test_results_of_every_paper_have_a_form(tmp_path: Path, trial: Any) -> None:
    Parts(tmp_path, get_type_hints(trial)["return"])


def test_a_scalar_of_numpy_stands_for_an_array(tmp_path: Path) -> None:
    parts: Parts[dict[str, Floats]] = Parts(tmp_path, dict[str, Floats])
    parts.write("a", {"x": np.float64(0.1)})  # type: ignore[dict-item]
    np.testing.assert_array_equal(parts.read("a")["x"], np.array(0.1), strict=True)


def test_no_half_of_a_result_is_left(tmp_path: Path) -> None:
    parts: Parts[object] = Parts(tmp_path, object)
    with pytest.raises(TypeError, match="a result of type object cannot be saved"):
        parts.write("a", [1.0, object()])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", [b"", b"\x93\x01", b"\xa1x"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: bytes) -> None:
    parts: Parts[float] = Parts(tmp_path, float)
    parts.write("a", 1.0)
    (tmp_path / "a.msgpack").write_bytes(damage)
    with pytest.raises(DataError, match=r"a\.msgpack: .*: delete it, and"):
        parts.read("a")


def test_an_array_that_would_run_code_is_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.array([Path("x")], dtype=object), allow_pickle=True)
    bad = msgspec.msgpack.encode(msgspec.msgpack.Ext(1, file.getvalue()))
    (tmp_path / "a.msgpack").write_bytes(bad)
    with pytest.raises(DataError, match="allow_pickle"):
        Parts[Floats](tmp_path, Floats).read("a")
