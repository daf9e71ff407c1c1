"""`melisma serve` or `resume`, by an orchestrator that keeps every checkpoint.

orchestrator.py FOLDER serve JOB.toml …

A copy of each cycle's parameters goes to FOLDER first. Where FOLDER holds a file
``die-CYCLE-before`` or ``-after``, the process kills itself at that side of the
checkpoint, a moment that nobody outside could hit.
"""

import os
import signal
import sys
from pathlib import Path

from safetensors.torch import save_file

from melisma.cli import main
from melisma.runs.store import Checkpoint


def keep_copies(copies: Path) -> None:
    write = Checkpoint.write

    def kept(checkpoint: Checkpoint, folder: Path) -> None:
        unfinished = copies / f"{checkpoint.cycle}.part"
        save_file(checkpoint.parameters, unfinished)
        unfinished.replace(copies / f"{checkpoint.cycle}.safetensors")
        _die_if_told(copies / f"die-{checkpoint.cycle}-before")
        write(checkpoint, folder)
        _die_if_told(copies / f"die-{checkpoint.cycle}-after")

    Checkpoint.write = kept  # type: ignore[assignment, method-assign]


def _die_if_told(order: Path) -> None:
    if order.exists():
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    keep_copies(Path(sys.argv.pop(1)))
    main()
