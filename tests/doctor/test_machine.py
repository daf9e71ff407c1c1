"""What is found of this machine, and of machines that lack something."""

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from melisma import cgroups
from melisma.doctor import examine, machine, orchestrator, training, verdict
from melisma.doctor.examination import isolated
from melisma.doctor.finding import Finding, note, ok, trouble
from melisma.learning import products


def one(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_here_everything_is_looked_at(tmp_path: Path) -> None:
    seen = {f.check: f for f in examine(runs=tmp_path)}
    checks = ["version", "packages", "extras", "clock", "cores", "memory", "disk"]
    assert set(seen) >= {*checks, "port", "products", "gpu", "bf16", "data"}
    assert not [f for f in seen.values() if f.level == "problem"]


def test_every_finding_is_one_line_and_says_how_to_mend_it(tmp_path: Path) -> None:
    for finding in examine(runs=tmp_path):
        assert "\n" not in finding.says + finding.fix
        assert bool(finding.fix) == (finding.level != "ok")


def test_a_check_that_fails_spoils_no_other() -> None:
    def broken() -> Iterator[Finding]:
        yield ok("x", "so far")
        raise LookupError("no such sensor")

    first, second = isolated("x", broken)
    assert (first.level, second.level) == ("ok", "problem")
    assert "LookupError: no such sensor (test_machine.py" in second.says


def test_a_check_that_hangs_is_left_behind() -> None:
    ended = threading.Event()

    def hanging() -> Iterator[Finding]:
        yield ok("x", "so far")
        ended.wait(60)

    first, second = isolated("x", hanging, limit_s=0.2)
    ended.set()
    assert (first.level, second.says) == ("ok", "not done within 0 s")


def test_a_missing_package_is_told_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "NEEDED", {"no-such": "no_such_package"})
    first, _ = machine.packages()
    assert (first.level, first.facts["missing"]) == ("problem", ["no-such"])
    assert first.fix == f"{sys.executable} -m pip install no-such"


def test_a_quota_below_the_cores_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_text("0::/a\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    seen = {f.check: f for f in machine.cores()}["cores"]
    assert (seen.level, seen.facts["quota"]) == ("note", 0.5)
    assert "--threads 1" in seen.fix


def test_more_threads_than_cores_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4096")
    seen = {f.check: f for f in machine.cores()}
    assert "OMP_NUM_THREADS=4096 on" in seen["environment"].says


@pytest.mark.parametrize(("free", "level"), [(100, "problem"), (500, "note")])
def test_little_memory_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str
) -> None:
    (tmp_path / "meminfo").write_text(f"MemAvailable: {free << 10} kB\n")
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    assert one(machine.memory()).level == level


def test_a_folder_that_cannot_be_written_is_told() -> None:
    # Nobody, root included, makes files in /proc.
    found = one(machine.disk(Path("/proc/runs")))
    assert (found.level, "--runs" in found.fix) == ("problem", True)


def test_runs_do_not_go_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    found = one(machine.disk(tmp_path / "runs"))
    assert (found.level, "is a file" in found.says) == ("problem", True)


def test_a_taken_port_is_noted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = one(machine.port(taken.getsockname()[1]))
    assert (found.level, "--port 0" in found.fix) == ("note", True)


def test_products_are_measured_in_every_layout() -> None:
    measured = products.products()
    assert len(measured.seconds) == 4
    assert all(speed > 0 for speed in measured.flops.values())
    assert measured.unevenness >= 1


def made(**seconds: float) -> products.Products:
    """Products as measured: the seconds of each layout, and of one thread."""
    single_s = seconds.pop("single")
    return products.Products(
        seconds=seconds, onednn_slowdown=1.0, threads=2, single_s=single_s
    )


def test_a_slow_layout_is_noted() -> None:
    slow = made(AB=1e-3, ABt=9e-3, single=2e-3)
    found = one(training._products(slow, "OpenBLAS"))
    assert found.level == "note"
    assert "ABt takes 9 times as long" in found.says


def test_threads_that_are_in_the_way_are_noted() -> None:
    found = one(training._products(made(AB=8e-3, single=2e-3), "OpenBLAS"))
    assert (found.level, found.facts["speedup"]) == ("note", 0.25)
    assert "one thread is 4 times as fast as all" in found.says
    assert "OMP_NUM_THREADS=1" in found.fix
    assert one(training._products(made(AB=1e-3, single=2e-3), "")).level == "ok"


def test_a_gpu_that_does_not_compute_is_noted() -> None:
    found = one(training._accelerators({"no-such-device ZX": 1e9}))
    assert (found.check, found.level) == ("gpu", "note")


def job(folder: Path, text: str) -> Finding:
    (folder / "job.toml").write_text(text)
    return one(training.job(folder / "job.toml"))


def test_a_job_is_made_ready(tmp_path: Path) -> None:
    found = job(tmp_path, "scheme = 'csa'\n")
    assert found.level == "ok"
    assert "csa, " in found.says
    assert "4,000 samples of mnist-5k" in found.says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("scheme = 'cas'\n", "did you mean 'csa'"),
        ("scheme = 'csa'\nmodel = 'no_such:net'\n", "no_such"),
    ],
)
def test_a_job_that_cannot_be_trained_is_told(
    tmp_path: Path, text: str, says: str
) -> None:
    found = job(tmp_path, text)
    assert (found.level, says in found.says) == ("problem", True)


def test_data_that_would_be_downloaded_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("MELISMA_DATA", raising=False)
    assert "mnist, " in one(training.data()).says
    found = job(tmp_path, "[data]\nname = 'mnist'\n")
    assert (found.level, "downloaded" in found.fix) == ("note", True)


def test_the_verdict_counts() -> None:
    good, hint, bad = ok("a", "b"), note("a", "b", "c"), trouble("a", "b", "c")
    assert verdict([good, hint]) == "1 note, and nothing that stops training."
    assert verdict([bad, hint, hint]) == "1 problem stops training here, 2 notes."
    assert verdict([bad, bad]) == "2 problems stop training here."


#: Runs the command line where a package cannot be imported.
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
missing = sys.argv[1]
sys.meta_path.insert(0, Missing())
sys.argv = ["melisma", "doctor"]
from melisma.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("package", ["torch", "aiohttp", "msgspec"])
def test_without_a_package_it_says_so_and_goes_on(tmp_path: Path, package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, package],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    problems = [line for line in lines if line.startswith("problem")]
    assert any(f"not installed: {package}. " in line for line in problems)
    assert any(line.endswith(f"-m pip install {package}.") for line in problems)
    assert any(line.startswith("ok      disk") for line in lines)


def test_the_page_describes_every_line_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text("utf-8")
    described = set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE))
    source = "".join(
        Path(module.__file__ or "").read_text("utf-8")
        for module in (machine, training, orchestrator)
    )
    told = set(re.findall(r'(?:ok|note|trouble)\(\s*"(\w+)"', source))
    assert described == told
