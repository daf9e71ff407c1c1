import sys
import zipfile
from pathlib import Path

import bench_first_minute
import pytest
from tests.benchmarks.printed import row, run


@pytest.mark.slow
def test_what_a_new_user_sees_is_timed() -> None:
    printed = run("bench_first_minute.py", "--here")
    seen = [row(printed, step)[-1] for step in bench_first_minute.SEEN]
    assert seen == sorted(seen)
    assert seen[-1] < row(printed, "… its end")[0]
    assert 0 < row(printed, "--version")[0] < row(printed, "… its end")[0]


@pytest.mark.slow
def test_the_wheel_of_a_commit_is_built(tmp_path: Path) -> None:
    file = bench_first_minute.wheel("HEAD", tmp_path)
    with zipfile.ZipFile(file) as archive:
        assert "melisma/cli/__init__.py" in archive.namelist()
    assert "torch==" in (tmp_path / "constraints.txt").read_text("utf-8")


def test_a_command_that_fails_says_what_it_said(tmp_path: Path) -> None:
    failing = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    with pytest.raises(RuntimeError, match="no such thing"):
        bench_first_minute.timed(failing, tmp_path)
    with pytest.raises(RuntimeError, match="no such thing"):
        bench_first_minute.watched(failing, tmp_path)


def test_a_terminal_says_when_it_said_what(tmp_path: Path) -> None:
    says = "import sys; assert sys.stdout.isatty(); print('accuracy 80.0 %')"
    seen = bench_first_minute.watched([sys.executable, "-c", says], tmp_path)
    first, end = seen["… the first accuracy"], seen["… its end"]
    assert first is not None
    assert end is not None
    assert first <= end
    assert seen["… a learner has joined"] is None


def test_whatever_it_started_is_ended(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    waits = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        (tmp_path / "output").open("wb") as output,
        bench_first_minute.started(waits, tmp_path, output.fileno()) as process,
    ):
        assert process.poll() is None
    assert process.returncode == -9
