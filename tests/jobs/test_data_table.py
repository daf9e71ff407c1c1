import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from melisma.errors import ConfigError
from melisma.jobs.building import own_rows
from melisma.jobs.data_table import DataTable, Split
from melisma.jobs.files import dump, load
from melisma.jobs.schema import Job
from melisma.launch.simulate import build
from melisma.learning.data import Dataset
from melisma.learning.lengths import Sizes
from melisma.learning.samples import Arrays
from melisma.maths.arrays import Ints
from melisma.system.law import Mode

ROOT = Path(__file__).parents[2]
SECTION = "## How it lies on learners"
FEDERATED = 'mode = "federated"\n'


def as_large_as_mnist() -> Dataset:
    """Return 60,000 samples of ten classes, of which only labels matter."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6_000))
    train = Arrays({"x": np.zeros((60_000, 1), np.float32), "y": labels})
    return Dataset("ten classes", train, train)


def job_of(folder: Path, text: str) -> Job:
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return load(path)


def printed() -> list[str]:
    """Return the settings of papers that the page has."""
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    section = page.partition(SECTION)[2].partition("\n## ")[0]
    return re.findall(r"```toml\n(.*?)```", section, flags=re.DOTALL)


def counts(text: str, folder: Path, learners: int) -> Ints:
    """Return rows of each class (columns) on each learner; all of them, each once."""
    dataset = as_large_as_mnist()
    rows = own_rows(job_of(folder, text), dataset, learners) or []
    assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(60_000))
    labels = dataset.labels()
    return np.array([np.bincount(labels[own], minlength=10) for own in rows])


def test_fedcompass_divides_by_classes(tmp_path: Path) -> None:
    held = (counts(printed()[0], tmp_path, 20) > 0).sum(axis=1)
    assert set(held.tolist()) == {3, 4, 5}


def test_fedcompass_divides_by_two_dirichlets(tmp_path: Path) -> None:
    # Dir(1) of many learners: their amounts are nearly exponential, spread as the mean.
    rows = counts(printed()[1], tmp_path, 500)
    sizes = rows.sum(axis=1)
    assert sizes.std() / sizes.mean() == pytest.approx(1, rel=0.25)
    # Dir(0.05) over ten classes: the greatest share is 0.78 in the mean (by 10⁶ draws).
    assert (rows.max(axis=1) / sizes).mean() == pytest.approx(0.78, abs=0.05)


def test_ringleader_has_equal_amounts(tmp_path: Path) -> None:
    assert (counts(printed()[2], tmp_path, 100).sum(axis=1) == 600).all()


def test_fedprox_has_two_classes_and_ten_rows_at_least(tmp_path: Path) -> None:
    rows = counts(printed()[3], tmp_path, 1_000)
    assert ((rows > 0).sum(axis=1) == 2).all()
    assert rows[rows > 0].min() >= 5
    assert np.median(rows.sum(axis=1)) < 30 < 1_000 < rows.sum(axis=1).max()


@pytest.mark.parametrize(
    ("split", "sizes"),
    [
        ("dirichlet", "equal"),
        *product(["iid", "dirichlet", "labels"], ["normal", "power", "dirichlet"]),
    ],
)
def test_everybody_has_a_shard_whatever_the_sizes(
    split: str, sizes: str, tmp_path: Path
) -> None:
    text = f'{FEDERATED}shard = 25\n[data]\nsplit = "{split}"\nsizes = "{sizes}"'
    assert counts(text, tmp_path, 200).sum(axis=1).min() >= 25


def test_a_drawn_number_of_classes_leaves_everybody_a_shard(tmp_path: Path) -> None:
    text = FEDERATED + 'shard = 60\n[data]\nsplit = "labels"\nclasses = [1, 3]'
    assert counts(text, tmp_path, 200).sum(axis=1).min() >= 60


def test_the_keys_are_written_as_they_are_read(tmp_path: Path) -> None:
    for text in printed():
        job = job_of(tmp_path, text)
        path = tmp_path / "again.toml"
        path.write_text(dump(job), encoding="utf-8")
        assert load(path) == job


def test_a_run_of_uneven_learners_trains(tmp_path: Path) -> None:
    data = DataTable(split=Split.LABELS, classes=(3, 5), sizes=Sizes.POWER)
    job = Job(mode=Mode.FEDERATED, samples=500, cycles=1, data=data)
    own = build(job).built.crew._own_rows
    assert sorted(np.concatenate(own)) == list(range(4000))
    build(job).run(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('sizes = "power"\nsplit = "label"', "unknown split 'label'"),
        ('sizes = "pover"', "unknown sizes 'pover': did you mean 'power'"),
        ('sizes = "equal"', "sizes = 'equal' with split = 'iid', whose parts are even"),
        ('sizes = "equal"\nsplit = "labels"', "'equal' with split = 'labels'"),
        ("sizes_alpha = 2.0", "sizes_alpha is of sizes = 'dirichlet', and it is 'any'"),
        ('sizes = "dirichlet"\nsizes_alpha = 0.0', r"sizes_alpha is 0\.0: give"),
        ('split = "labels"\nclasses = [5, 3]', r"classes = \[5, 3\]: give the fewest"),
        ('split = "labels"\nclasses = [0, 3]', r"classes = \[0, 3\]: give the fewest"),
        ('split = "labels"\nclasses = [3]', r"classes: expected `array` of length 2"),
        ("classes = [3, 5]", r"classes = \[3, 5\] is of split = 'labels', and it is"),
    ],
)
def test_what_has_no_meaning_is_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        job_of(tmp_path, f"{FEDERATED}[data]\n{text}")
    assert "\n" not in str(error.value)


def test_sizes_are_of_data_that_lies_on_learners(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('[data]\nsizes = "power"', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"'power' is of data that lies on learners"):
        load(path)


def test_the_page_of_jobs_has_every_key() -> None:
    page = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
    table = page.partition("`[data]`")[2].partition("`[training]`")[0]
    for key in DataTable.__struct_fields__:
        assert f"`{key}`" in table, key
