from pathlib import Path

import pytest

from melisma.errors import ConfigError
from melisma.jobs.demo import DEMO
from melisma.jobs.files import dump, load, load_states
from melisma.jobs.schema import Job
from melisma.learning.data import EMBEDDED
from melisma.system.law import Mode

EXAMPLES = Path(__file__).parents[2] / "examples"


def job_file(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_empty_file_is_the_demo(tmp_path: Path) -> None:
    assert load(job_file(tmp_path, "")) == Job()
    assert load(str(job_file(tmp_path, ""))) == Job()  # as one types it


def test_the_job_for_devices_is_what_run_trains_without_one() -> None:
    assert load(EXAMPLES / "live.toml") == DEMO


def test_the_demo_needs_no_download() -> None:
    assert Job().data.name == EMBEDDED


def test_every_kind_of_key_is_read(tmp_path: Path) -> None:
    job = load(
        job_file(
            tmp_path,
            """
            deadline = "1.5 min"
            mode = "federated"
            channel.power = "20 dBm"
            [[learners]]
            name = "phone"
            count = 3
            states = [
                { probability = 0.75, rate = "900 samples/s", bandwidth = "8 Mbit/s" },
                { probability = 0.25, rate = "90 samples/s", bandwidth = "1 MB/s" },
            ]
            """,
        )
    )
    assert (job.deadline, job.mode) == (90.0, Mode.FEDERATED)
    assert job.channel.power == pytest.approx(0.1)
    assert [state.bandwidth for state in job.learners[0].states] == [1e6, 1e6]


def test_a_job_survives_being_written_and_read(tmp_path: Path) -> None:
    text = (
        'deadline = "3 ms"\nmost = 7\n[[learners]]\nname = "a"\nrate = 3\nbandwidth = 4'
    )
    job = load(job_file(tmp_path, text))
    assert load(job_file(tmp_path, dump(job))) == job


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dedline = 3", "unknown key 'dedline': did you mean 'deadline'?"),
        ("data.nmae = 'x'", "unknown key in data 'nmae': did you mean 'name'?"),
        ("deadline = '3 parsec'", "deadline: unknown unit 'parsec' in '3 parsec'"),
        ("deadline = true", "deadline: True is not a number and a unit"),
        ("cycles = 'ten'", "cycles: expected `int`, got `str`"),
        ("mode = 'paralel'", "unknown mode 'paralel': did you mean 'parallel'?"),
        ("late = 'stop'", "unknown late 'stop'"),
        ("helpers = 'finish'", "unknown helpers 'finish': did you mean 'finished'?"),
        ("first = 'randm'", "unknown first 'randm': did you mean 'random'?"),
        ("first = 2.5", "first: expected `int | str`, got `float`"),
        ("checks = 1.5", "checks = 1.5: give a share from 0 to 1"),
        (
            "checks = 0.1\nmode = 'federated'",
            "in federated mode its data stays",
        ),
        ("aggregation.rule = 'mediam'", "unknown rule 'mediam': did you mean 'median'"),
        ("learners = []", "no learners: give at least one"),
        ("name = '../x'", "name '../x' is to be a folder"),
        ("seed = -1", "seed -1: give a number from 0 up"),
        ("deadline = = 3", "is not TOML: Invalid value"),
        ("[[learners]]\nname = 'a'", "learners[0]: learners 'a' have no speed: give"),
        (
            "[[learners]]\nname = 'a'\nclock = 1\ndistance = 1\nrate = 1",
            "have clock, distance, rate: give clock and distance, or",
        ),
        (
            "[[learners]]\nname = 'a'\nclock = 1\ndistance = 1\ncount = 0",
            "'a' has count 0: give at least 1",
        ),
        (
            "[[learners]]\nname = 'a'\nstates = [{ probability = 0.4 }]",
            "probabilities that sum to 0.4",
        ),
        (
            "[[learners]]\nname = 'a'\nheat = 1\nstates = [{ probability = 1 }]",
            "a probability each, or one heat",
        ),
        ("[[learners]]\nname = 'a'\nheat = 1\nrate = 1\nbandwidth = 1", "no states"),
        (
            "[[learners]]\nname = 'a'\nstates = [{ owner = 'computer' }]",
            "unknown owner 'computer': did you mean 'computing'?",
        ),
        (
            "[[learners]]\nname = 'a'\nstates = [{ probabilty = 1 }]",
            "unknown key in learners[0].states[0] 'probabilty'",
        ),
    ],
)
def test_a_bad_file_gets_one_line_with_the_fix(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(job_file(tmp_path, text))
    assert message in str(caught.value)
    assert "job.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load(tmp_path / "nowhere.toml")


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"job\.toml is not TOML"):
        load(tmp_path / "job.toml")


def test_a_file_of_states_is_an_owner(tmp_path: Path) -> None:
    file = tmp_path / "states.toml"
    file.write_text(
        "heat = 0.5\n[[states]]\n[[states]]\nowner = 'computing'\nrate = '9 samples/s'"
    )
    table = load_states(file)
    assert [state.owner for state in table.states] == ["idle", "computing"]
    assert table.states[1].rate == 9.0
    with pytest.raises(ConfigError, match="give a file of states"):
        load_states(tmp_path / "none.toml")
