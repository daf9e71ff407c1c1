"""The report that a run leaves."""

import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from melisma import views as runs
from melisma.cli import main
from melisma.errors import DataError, MelismaError
from melisma.jobs.files import dump
from melisma.jobs.schema import Job
from melisma.runs import records
from melisma.runs.records import Record
from melisma.units import Deadline

EVIL = "<b>m</b> $x^$ \N{SNOWMAN}\N{MUSICAL SYMBOL G CLEF}"


def at(time_s: float, cycle: int, kind: Any, **facts: Any) -> Record:
    record: Record = kind(time_s=time_s, task="made", cycle=cycle, **facts)
    return record


def happened(
    learners: list[str], cycles: int, predicted_s: float | None = 1.0
) -> Iterator[Record]:
    """Each cycle: the first learner halts, the last is refused, the others finish."""
    order = {"samples": 80, "steps": 3, "predicted_s": predicted_s}
    work = {"samples": 60, "batches": 7, "loss": 0.5}
    *honest, liar = learners
    for n in range(1, cycles + 1):
        t = 10.0 * n
        for name in learners:
            yield at(t, n, records.Allocated, learner=name, **order)
        for k, name in enumerate(honest):
            kind = records.Trained if k else records.Halted
            yield at(t + 0.25, n, records.Downloaded, learner=name)
            yield at(t + 1.0, n, kind, learner=name, **work)
            yield at(t + 1.25, n, records.Uploaded, learner=name)
        why = {"reason": f"false: {EVIL}", "offence": True}
        yield at(t + 1.0, n, records.Dropped, learner=liar, **why)
        yield at(
            t + 2.0,
            n,
            records.Aggregated,
            learners=len(honest),
            samples=60 * len(honest),
            cycle_s=1.25,
            max_staleness=0,
            mean_staleness=0.0,
            truancy=0.0,
            utilisation=0.625,
        )
        yield at(t + 2.0, n, records.Evaluated, metrics={"accuracy": 0.875}, loss=None)


def leave(folder: Path, rows: Iterable[Record], **job: Any) -> Path:
    """Write a run's files into ``folder``."""
    folder.mkdir(exist_ok=True)
    whole = Job(name="made", deadline=Deadline(2.0), **job)
    (folder / "config.toml").write_text(dump(whole))
    with (folder / "records.jsonl").open("wb") as file:
        for row in rows:
            records.write(row, file)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rows = happened(["a", "b", EVIL], cycles=2)
    return leave(tmp_path / "made", rows, cycles=2)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder with its report."""
    rows = happened(["a", "b", EVIL], cycles=2)
    run = leave(tmp_path_factory.mktemp("runs") / "made", rows, cycles=2)
    assert runs.write(run) == run / "report.html"
    return run


def document(page: Path) -> Any:
    """Return the document in a page."""
    pattern = r'id="documents">(.*?)</script>'
    (shown,) = json.loads(re.findall(pattern, page.read_text("utf-8"), re.DOTALL)[0])
    return shown


def test_the_page_holds_the_run_and_needs_no_other_file(written: Path) -> None:
    shown = document(written / "report.html")
    assert not re.search(r"https?://", (written / "report.html").read_text("utf-8"))
    assert shown["run"]["state"] == "finished"
    assert shown["learners"] == ["a", "b", EVIL]
    assert shown["cycles"]["metrics"]["accuracy"] == [0.875, 0.875]
    assert shown["turns"]["measured_s"] == [1.25, 1.25, None] * 2


def test_what_learners_write_is_no_markup(written: Path) -> None:
    assert "<b>" not in (written / "report.html").read_text("utf-8")


def test_page_and_rows_are_all_that_is_written(written: Path) -> None:
    left = {path.name for path in written.iterdir()}
    assert left - {"config.toml", "records.jsonl"} == {"report.html", "learners.csv"}


def test_the_rows_are_one_for_each_learner_and_cycle(written: Path) -> None:
    with (written / "learners.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["cycle"], row["learner"]) for row in rows] == [
        (cycle, name) for cycle in "12" for name in ("a", "b", EVIL)
    ]
    first, _, lost = rows[:3]
    assert first == {
        "cycle": "1",
        "learner": "a",
        "samples": "80",
        "epochs": "3",
        "predicted_s": "1.0",
        "downloaded_s": "0.25",
        "trained_s": "1.0",
        "measured_s": "1.25",
        "trained": "60",
        "batches": "7",
        "halted": "1",
        "outcome": "counted",
        "distance": "",
        "planned_s": "",
        "late": "1",  # it halted
        "option": "",
        "saved_bytes": "0",
        "predicted_j": "",
        "spent_j": "",
    }
    assert (lost["outcome"], lost["measured_s"]) == (f"false: {EVIL}", "")


def test_a_learners_name_is_no_formula(tmp_path: Path) -> None:
    run = leave(tmp_path / "made", happened(["=1+1", "b"], cycles=1))
    runs.write(run)
    assert "1,'=1+1,80" in (run / "learners.csv").read_text("utf-8")


def test_a_decentralised_run_predicts_nothing(tmp_path: Path) -> None:
    rows = happened(["a", "b"], cycles=1, predicted_s=None)
    run = leave(tmp_path / "made", rows, scheme="dab")
    assert document(runs.write(run))["turns"]["predicted_s"] == [None, None]


@pytest.mark.parametrize("kept", [0, 1, 4, 8, 11])
def test_an_unfinished_run_shows_what_there_is(tmp_path: Path, kept: int) -> None:
    rows = list(happened(["a", "b", "c"], cycles=1))[:kept]
    run = leave(tmp_path / "made", rows, cycles=5)
    with (run / "records.jsonl").open("ab") as file:
        file.write(b'{"event":"upl')
    shown = document(runs.write(run))
    assert (shown["run"]["state"], shown["run"]["cycles"]) == ("cut short", 5)
    assert shown["position"] == kept


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda run: (run / "config.toml").unlink(), "made is no run"),
        (lambda run: (run / "config.toml").write_text("="), "is not TOML"),
        (lambda run: (run / "records.jsonl").unlink(), "no records at"),
        (lambda run: (run / "records.jsonl").write_text("{}\n"), "line 1"),
        (lambda run: (run / "report.html").mkdir(), "Is a directory"),
    ],
)
def test_what_is_no_run_is_named(run: Path, damage: Any, says: str) -> None:
    damage(run)
    with pytest.raises(MelismaError, match=says):
        runs.write(run)


def test_an_empty_folder_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is no run: there is no config\.toml in it"):
        runs.write(tmp_path)


def ran(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, str]:
    """Return the exit code and output of `melisma report`."""
    monkeypatch.setattr(sys, "argv", ["melisma", "report", *words])
    monkeypatch.setattr(sys, "path", sys.path.copy())
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), *capsys.readouterr()


def test_report_prints_tables_and_path(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = ran(monkeypatch, capsys, str(run))
    assert code == 0
    assert "Learners: means over their cycles" in out
    assert "20.0" in out
    assert "Cycles" in out
    assert "report.html" in out.replace("\n", "")


#: What trains, draws or serves: none of it is needed to read records.
HEAVY = (
    *("torch", "networkx", "matplotlib", "aiohttp"),
    *("melisma.jobs.building", "melisma.jobs.fog", "melisma.launch", "melisma.fleets"),
    *("melisma.algorithms", "melisma.rpc", "melisma.views.web"),
)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["csa", "fog"])
@pytest.mark.parametrize("command", ["report", "runs"])
def test_a_report_loads_nothing_that_trains_draws_or_serves(
    tmp_path: Path, command: str, scheme: str
) -> None:
    run = leave(tmp_path / "made", happened(["a", "b"], cycles=1), scheme=scheme)
    code = (
        "import sys; from melisma.cli import main\n"
        "try: main()\n"
        f"finally: print([name for name in {HEAVY} if name in sys.modules])"
    )
    folder = {"report": run, "runs": tmp_path}[command]
    words = [sys.executable, "-c", code, command, str(folder)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert {"report": "Report: ", "runs": "made"}[command] in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_report_as_json_prints_the_rows(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = ran(monkeypatch, capsys, str(run), "--json")
    rows = json.loads(out)
    assert [learner["learner"] for learner in rows["learners"]] == ["a", "b", EVIL]
    assert rows["learners"][2]["offences"] == 2
    assert len(rows["turns"]) == 6
    assert rows["cycles"][0]["off_percent"] == pytest.approx(20.0)
    assert [incident["what"] for incident in rows["incidents"]] == ["refused"] * 2


def test_report_on_no_run_is_one_line_and_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = ran(monkeypatch, capsys, str(tmp_path / "nowhere"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "nowhere is no run" in err
