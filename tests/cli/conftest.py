import sys
from pathlib import Path

import pytest
from tests.cli.running import Melisma, Result

from melisma.cli import main


@pytest.fixture
def melisma(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Melisma:
    """The command line in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())

    def run(*words: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["melisma", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return Result(int(ended.value.code or 0), *capsys.readouterr())

    return run
