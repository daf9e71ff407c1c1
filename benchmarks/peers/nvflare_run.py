"""NVFlare's own simulator: FedAvg by its recipe, or the FedBuff of its edge mode.

    python nvflare_run.py fedavg FOLDER
    python nvflare_run.py fedbuff FOLDER

FedBuff's job has the parts of NVFlare's ``EdgeFedBuffRecipe``, which cannot be imported
without torchvision; its evaluator, which needs that, is not used here.
"""

import sys
from pathlib import Path
from typing import Any

from nvflare.app_opt.pt.job_config.model import PTModel
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.edge.aggregators.model_update_dxo_factory import ModelUpdateDXOAggrFactory
from nvflare.edge.assessors.buff_device_manager import BuffDeviceManager
from nvflare.edge.assessors.buff_model_manager import BuffModelManager
from nvflare.edge.assessors.model_update import ModelUpdateAssessor
from nvflare.edge.tools.edge_job import EdgeJob
from nvflare.recipe.sim_env import SimEnv

from peers.emulated import Perceptron, setting
from peers.nvflare_parts import Device, Evaluator

CLIENT = Path(__file__).with_name("nvflare_client.py")


def fedavg(learners: int) -> tuple[Any, int]:
    """Return the job and its number of clients: processes, all in every round."""
    recipe = FedAvgRecipe(
        name="fedavg",
        model=Perceptron(),
        min_clients=learners,
        num_rounds=setting()["rounds"],
        train_script=str(CLIENT),
    )
    recipe._ensure_client_apps_prepared()
    return recipe._job, learners


def fedbuff(learners: int) -> tuple[Any, int]:
    """Return the same of devices that are all at work always, threads of one client.

    Every update makes a version, as in NVFlare's own example, and moves the model by as
    much as one of ``updates`` in a buffer. A buffer of several would leave devices idle
    for good: the simulator ignores who is selected twice for one version.
    """
    numbers = setting()
    versions = 20 * numbers["rounds"]
    job = EdgeJob(name="fedbuff", edge_method="edge")
    job.configure_simulation(Device(), num_devices=learners, num_workers=learners)
    job.configure_client(ModelUpdateDXOAggrFactory(), versions, update_timeout=500)
    persistor = job.to_server(PTModel(Perceptron()), id="persistor")["persistor_id"]
    assessor = ModelUpdateAssessor(
        persistor_id=persistor,
        model_manager_id=job.to_server(
            BuffModelManager(num_updates_for_model=1, global_lr=1 / numbers["updates"]),
            id="model_manager",
        ),
        device_manager_id=job.to_server(
            BuffDeviceManager(device_selection_size=learners), id="device_manager"
        ),
        max_model_version=versions,
    )
    job.configure_server(assessor)
    return job, 1


def main(way: str, folder: str) -> None:
    """Run one of them in ``folder``, to its end."""
    learners = len(setting()["sample_s"])
    job, clients = {"fedavg": fedavg, "fedbuff": fedbuff}[way](learners)
    job.to_server(Evaluator(), id="benchmark")
    SimEnv(num_clients=clients, workspace_root=folder).deploy(job)


if __name__ == "__main__":
    main(*sys.argv[1:])
