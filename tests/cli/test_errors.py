"""What goes wrong is told in one line: no tracebacks, and no keys that are ignored."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.running import Melisma, quick_job

from melisma import __version__
from melisma.launch.loops import blocking, stoppable

#: Code of a user's own that raises, wherever it is called.
RAISES = "def made(*given):\n    raise RuntimeError('my file is gone')\n"


@pytest.mark.parametrize("key", ["model", "task", "scheme"])
def test_own_code_that_raises_is_told_with_its_line(
    tmp_path: Path, melisma: Melisma, key: str
) -> None:
    (tmp_path / "failing.py").write_text(RAISES)
    done = melisma("simulate", quick_job(tmp_path, f"{key} = 'failing:made'\n"))
    said = f"melisma: {key} 'failing:made' fails: RuntimeError: my file is gone "
    assert (done.code, done.err) == (2, f"{said}(failing.py, line 2)\n")


def test_of_what_was_not_foreseen_the_traceback_is_kept(
    tmp_path: Path, melisma: Melisma, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def build(*given: object) -> None:
        raise LookupError("no such layer")

    monkeypatch.setattr("melisma.launch.simulate.build", build)
    done = melisma("simulate", quick_job(tmp_path))
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "melisma: LookupError: no such layer (test_errors.py, line " in done.err
    (kept,) = tmp_path.glob("melisma-*.txt")
    assert str(kept) in done.err
    assert kept.read_text().startswith("Traceback")


@pytest.mark.parametrize(
    "words",
    [
        ["simulate"],
        ["run"],
        ["serve", "job.toml"],
        ["join", "127.0.0.1:9"],
        ["benchmark"],
        ["compare"],
        ["testbed", "--devices", "pi-4"],
    ],
)
def test_a_package_that_is_missing_is_named_with_what_installs_it(
    tmp_path: Path, words: list[str]
) -> None:
    quick_job(tmp_path)
    script = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            raise ModuleNotFoundError('No module', name='torch')\n"
        "sys.meta_path.insert(0, Missing())\n"
        f"sys.argv = ['melisma', *{words}]\n"
        "from melisma.cli import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("melisma: torch is not installed, which this needs: ")
    assert last.endswith("-m pip install torch")


def test_a_name_is_short_enough_for_a_folder(tmp_path: Path, melisma: Melisma) -> None:
    (tmp_path / "job.toml").write_text(f"name = '{'x' * 300}'\n")
    done = melisma("simulate", "job.toml")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "has 300 bytes, and is to be a folder: give at most 100" in done.err


@pytest.mark.parametrize("names", [("pi", "pi"), ("pi-1", "pi")])
def test_two_learners_of_one_name_are_refused(
    tmp_path: Path, melisma: Melisma, names: tuple[str, str]
) -> None:
    speed = "rate = '100 samples/s'\nbandwidth = '1 MB/s'\n"
    first, second = names
    text = f"[[learners]]\nname = '{first}'\n{speed}"
    text += f"[[learners]]\nname = '{second}'\ncount = {1 + (first != second)}\n{speed}"
    done = melisma("simulate", quick_job(tmp_path, text))
    assert f"two learners have the name '{first}'" in done.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scheme = 'dab'\n", "samples has no effect under 'dab' .* or use 'csa'"),
        (
            "scheme = 'fedavg'\nepochs_at_most = 9\n",
            r"epochs_at_most has no .* \(steps",
        ),
        ("epochs_at_most = 0\n", "epochs_at_most is 0: give 1 up"),
        ("budget = 5.0\n", "budget has no effect: .* or scheme = 'energy-most'"),
        ("[data]\nsplit = 'iid'\nalpha = 0.3\n", "data.alpha .* mode = 'federated'"),
        ("[data]\nsplit = 'labels'\n", "data.split .* mode = 'federated'"),
        ("[aggregation]\ntrim = 0.2\n", "trim has no .* rule = 'trimmed-mean'"),
        ("[participation]\nover = 2.0\n", "over has no .* rule = 'over-commit'"),
        ("[training]\nfloor = 0.2\n", "training.floor has no effect: .* a schedule"),
        (
            "mode = 'federated'\n[data]\nclasses = 3\n",
            "data.classes has no effect: .* give split = 'labels'",
        ),
        ("code = 'cyclic'\n", "code has no effect under 'csa': .* or use 'coded'"),
        ("look_every = 3\n", "look_every has no effect .* use late = 'overrun'"),
        ("staleness_at_most = 3\n", "staleness_at_most has no .* late = 'carry'"),
        ("changing = 0.1\n", r"changing has no effect .* \[\[learners\]\] with states"),
        ("[fog]\nperiod = 3\n", "fog has no effect under 'csa': .* or use 'fog'"),
        ("[asynchronous]\nbuffer = 3\n", "asynchronous has no effect under 'csa'"),
        (
            "scheme = 'coded'\n[aggregation]\nmomentum = 0.9\n",
            "aggregation has no effect under 'coded': .* or use 'csa'",
        ),
    ],
)
def test_a_key_without_effect_is_refused(
    tmp_path: Path, melisma: Melisma, text: str, message: str
) -> None:
    done = melisma("simulate", quick_job(tmp_path, text))
    assert done.code == 2
    assert re.search(message, done.err)


def test_a_job_tried_under_another_scheme_may_have_keys_of_its_own(
    tmp_path: Path, melisma: Melisma
) -> None:
    job = quick_job(tmp_path, "steps = 1\nshard = 20\n")
    assert melisma("simulate", job, "--scheme", "dab").code == 0


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--rate", "-5 samples/s", "--rate '-5 samples/s': give a rate above 0"),
        ("--bandwidth", "0 MB/s", "--bandwidth '0 MB/s': give a rate above 0"),
        ("--bandwidth", "fast", "--bandwidth: 'fast' is not a number and a unit"),
        ("--allow", "nonsense", "--allow 'nonsense': give module:function"),
        ("--allow", "no_such:net", "--allow 'no_such:net': there is no module"),
    ],
)
def test_values_of_join_are_checked_before_it_dials(
    melisma: Melisma, flag: str, value: str, message: str
) -> None:
    done = melisma("join", "127.0.0.1:9", flag, value)
    assert done.code == 2
    assert message in done.err


def test_ctrl_c_ends_a_computation_between_two_awaits() -> None:
    reached = []

    async def computing() -> None:
        signal.raise_signal(signal.SIGINT)
        reached.append("what asyncio alone would go on to")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stoppable():
        blocking(computing())
    assert (reached, signal.getsignal(signal.SIGINT)) == ([], before)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["schemes"],
        ["simulate", "--help"],
        ["simulate", "--scheme", "cas"],
        ["simulate", "job.toml"],
        ["serve", "job.toml"],
        ["run", "no-such-job.toml"],
        ["compare", "--schemes", "cas"],
        ["papers", "--help"],
        ["simulat"],
    ],
)
def test_who_does_not_train_imports_nothing_heavy(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "job.toml").write_text("scheme = 'coded:none'\n")
    heavy = ("torch", "scipy", "matplotlib", "pandas", "networkx", "aiohttp")
    code = f"import sys\nsys.argv = ['melisma', *{words}]\n"
    code += "from melisma.cli import main\ntry:\n    main()\nexcept SystemExit:\n"
    code += f"    print([name for name in {heavy} if name in sys.modules])\n"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_the_version_is_printed(melisma: Melisma) -> None:
    done = melisma("--version")
    assert (done.code, done.out) == (0, f"melisma {__version__}\n")
