"""`melisma benchmark`, run as a user runs it."""

import json
from pathlib import Path

import pytest
from tests.cli.running import Melisma

#: Little to train: 100 samples, two shards of 50.
SMALL = "samples = 100\nshard = 50\nsteps = 2\n"


def small_job(folder: Path, text: str = "") -> str:
    (folder / "job.toml").write_text(SMALL + text)
    return "job.toml"


def test_it_shows_rates_conditions_and_both_predictions(
    tmp_path: Path, melisma: Melisma
) -> None:
    words = [small_job(tmp_path), "--shards", "2", "--repeats", "1", "--check"]
    code, out, err = melisma("benchmark", *words)
    assert (code, err) == (0, "")
    for part in (
        *("samples/s", "shards/s", "latency", "GFLOP/s", "threads", "load"),
        "alone, no network: 2 epochs over 100 samples",
        *("subset benchmark", "FLOPS, machine-independent", "error (%)"),
    ):
        assert part in out
    assert list(tmp_path.iterdir()) == [tmp_path / "job.toml"]


def test_as_json_it_is_one_object(tmp_path: Path, melisma: Melisma) -> None:
    words = [small_job(tmp_path), "--shards", "2", "--repeats", "1", "--json"]
    code, out, err = melisma("benchmark", *words)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["shard"], found["trained_s"]) == (50, None)
    assert found["shards_per_s"] == pytest.approx(found["samples_per_s"] / 50)
    # TwoNN: 4·(784·50 + 50·20 + 20·10 + 80) operations, 2 · 100 times.
    assert found["flops_s"] * found["flops"] == pytest.approx(200 * 4 * 40_480)


def test_a_model_that_cannot_be_counted_still_has_a_subset_benchmark(
    tmp_path: Path, melisma: Melisma
) -> None:
    (tmp_path / "uncounted.py").write_text(
        "from torch import nn\n"
        "def model():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.PReLU())\n"
    )
    job = small_job(tmp_path, "model = 'uncounted:model'\n")
    words = [job, "--shards", "2", "--repeats", "1"]
    code, out, _ = melisma("benchmark", *words)
    assert code == 0
    assert "not counted" in out
    assert "give workload.cycles" in out


@pytest.mark.parametrize(
    ("job", "words", "message"),
    [
        ("", ("--shards", "81"), "81 shards of 50 samples: there are 4000 samples"),
        ("steps = 0", (), "steps is 0: give at least 1"),
        ("samples = 5000", (), "5000 samples a cycle: there are 4000"),
        ("model = 'TwoMM'", (), "unknown model 'TwoMM': did you mean 'TwoNN'?"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(
    tmp_path: Path,
    melisma: Melisma,
    job: str,
    words: tuple[str, ...],
    message: str,
) -> None:
    (tmp_path / "job.toml").write_text(job if job else SMALL)
    code, out, err = melisma("benchmark", "job.toml", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
