"""A run's configuration is a job, or says what is wrong with it."""

import tomllib
from pathlib import Path

import pytest
from flwr.app import UserConfigValue
from flwr.common.config import flatten_dict

from melisma.errors import ConfigError
from melisma.flower.job import configured
from melisma.jobs.schema import Job

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower" / "pyproject.toml"


def test_the_example_is_a_job() -> None:
    app = tomllib.loads(EXAMPLE.read_text())["tool"]["flwr"]["app"]
    asked = configured(flatten_dict(app["config"]))
    assert (asked.nodes, asked.runs) == (2, Path("runs"))
    assert (asked.job.scheme, asked.job.data.name) == ("csa", "mnist-5k")
    assert float(asked.job.deadline) == 20.0


def test_no_configuration_is_the_demo() -> None:
    assert configured({}).job == Job()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("schema", "csa", r"unknown key 'schema': did you mean 'scheme'"),
        ("data.nam", "mnist", r"unknown key in data 'nam'"),
        ("deadline", "5 parsecs", r"unknown unit 'parsecs'"),
        ("nodes", 0, r"nodes = 0: give a whole number from 1 up"),
        ("nodes", True, r"nodes = True"),
    ],
)
def test_a_wrong_key_is_named(key: str, value: UserConfigValue, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        configured({key: value})
