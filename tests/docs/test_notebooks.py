"""Tutorials as the notebooks that one takes away, run in a kernel: an event loop."""

import json
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from sphinx_gallery.notebook import python_to_jupyter_cli

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["0_quickstart", "1_own_task", "6_pandas"])
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    shutil.copytree(TUTORIALS, tmp_path, dirs_exist_ok=True)
    script = tmp_path / f"plot_{name}.py"
    # Its last line is a value, which a notebook shows.
    script.write_text(script.read_text("utf-8") + "\n# %%\n# Shown:\n\nrun\n", "utf-8")
    python_to_jupyter_cli([str(script)])
    text = script.with_suffix(".ipynb").read_text("utf-8")
    notebook: Any = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    (shown,) = code[-1].outputs
    assert "<table>" in shown["data"]["text/html"]
    assert "Traceback" not in json.dumps(code)
