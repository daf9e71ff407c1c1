"""Which peers can run here, by the packages and the environments that there are.

Most peers are installed in the environment that runs the benchmark (``.venv-bench``).
One whose packages conflict with those has ``peers/NAME.txt``, from which ``make`` sets
up ``.venv-NAME``; a benchmark starts that environment's Python on a script in
``peers``, hands it the problem in a file and reads the answer as JSON from its output.
"""

import importlib.util
import platform
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def lack_of(packages: Mapping[str, str]) -> str:
    """Return what is not installed and how to get it, or "" if all is there.

    ``packages`` maps the modules that a peer imports to the packages that have them.
    """
    absent = [
        package
        for module, package in packages.items()
        if not importlib.util.find_spec(module)
    ]
    if not absent:
        return ""
    return (
        f"{', '.join(absent)} is not installed (`make .venv-bench/ready`, if there is "
        f"a wheel for {platform.machine()})"
    )


def python_of(name: str, root: Path = ROOT) -> Path:
    """Return the Python of ``.venv-NAME``; FileNotFoundError if it is not set up."""
    environment = root / f".venv-{name}"
    if not (environment / "ready").exists():
        raise FileNotFoundError(
            f"{environment.name} is not set up (`make {environment.name}/ready`)"
        )
    return environment / "bin" / "python"
