"""`melisma join`, by a learner that does a test a favour.

learner.py FAVOURS ADDRESS --name NAME …    FAVOURS is JSON:

    keep      a folder: leave every update there that is made
    steady    tell a fixed low speed, so that nothing depends on the machine's
    hold      [cycle, file]: the first time in that cycle, make ``file`` once the update
              is made, and send it when somebody has taken the file away
"""

import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from melisma.cli import main
from melisma.fleets.messages import Speeds, TrainRequest, Update
from melisma.launch import joining
from melisma.learner.fog import FogLearner
from melisma.learner.source import Caller

favours: dict[str, Any] = {}


class Favour(FogLearner):
    def speeds(self, task: str, drifted: bool) -> Speeds:
        speeds = super().speeds(task, drifted)
        if favours.get("steady"):
            return Speeds(step_s=0.01, sample_s=0.001, fixed_s=0.1)
        return speeds

    def train(self, request: TrainRequest, caller: Caller) -> Update:
        update = super().train(request, caller)
        if keep := favours.get("keep"):
            _keep(update, Path(keep), self.name)
        cycle, file = favours.get("hold", (0, ""))
        if cycle == request.cycle:
            del favours["hold"]  # once: the cycle may be run again
            Path(file).touch()
            while Path(file).exists():
                time.sleep(0.01)
        return update


def _keep(update: Update, folder: Path, name: str) -> None:
    """Leave a whole file, or none: this process may be killed at any moment."""
    file = f"{update.cycle}.{name}.{uuid.uuid4().hex}.safetensors"
    unfinished = folder / f"{file}.part"
    save_file(update.parameters, unfinished, {"samples": str(update.samples)})
    unfinished.replace(folder / file)


if __name__ == "__main__":
    favours = json.loads(sys.argv.pop(1))
    vars(joining)["FogLearner"] = Favour  # what `melisma join` will find
    sys.argv.insert(1, "join")
    main()
