from pathlib import Path

from melisma.runs.store import run_folder


def test_runs_of_one_name_are_numbered(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        with run_folder(tmp_path / "runs", "demo") as folder:
            (folder / "something").touch()
            names.append(folder.name)
    assert names == ["demo", "demo-2", "demo-3"]


def test_an_empty_run_leaves_no_folder(tmp_path: Path) -> None:
    with run_folder(tmp_path, "demo") as folder:
        pass
    assert not folder.exists()
