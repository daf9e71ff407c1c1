r"""
Your own model and data
=======================

At the end of this page you will have trained a PyTorch model of your own on data of
your own, simulated and for real, and have it back as a PyTorch model.

A *task* is a value: a model, named arrays, a loss, metrics, an optimiser. Ours lies in
a file, ``wards.py``, since learners in other processes must be able to import it:

.. literalinclude:: /tutorials/wards.py
   :language: python

"""

# %%
# Try it in a simulation
# ----------------------
#
# A job names the task as ``module:function``. Whatever is wrong with it, a column
# that is missing or a loss that does not fit, is said now, in one line, before
# anything trains.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import melisma as mel

job = mel.Job(
    name="wards",
    task="wards:illness",
    scheme="csa",
    cycles=4,
    deadline="1 s",
    shard=10,
    learners=[
        {"name": "laptop", "rate": "2000 samples/s", "bandwidth": "20 MB/s"},
        {"name": "pi", "count": 2, "rate": "500 samples/s", "bandwidth": "3 MB/s"},
    ],
)
simulated = mel.simulate(job, runs=None)
print("r² by cycle:", [round(r2, 3) for r2 in simulated.history.metrics["r2"]])

# %%
# Train it for real
# -----------------
#
# Three processes on this machine, each slowed down to its device's rate, benchmark
# themselves, join over the network and train. The run leaves a folder.

folder = Path(tempfile.mkdtemp())
run = mel.run(job, runs=folder)
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for label, history in (("simulated", simulated.history), ("live", run.history)):
    axes.plot(range(1, 5), history.metrics["r2"], marker="o", label=label)
axes.set(xlabel="cycle", ylabel="r²", xticks=range(1, 5))
axes.legend(frameon=False)
plt.show()

print(sorted(path.name for path in run.folder.iterdir()))

# %%
# Take the model away
# -------------------
#
# ``run.model`` is the module that the task makes, with the trained parameters in it.
# Without Melisma, the same parameters are a safetensors file.

from safetensors.torch import load_file
from wards import illness, patients

test = patients(slice(342, None))
predicted = run.model(torch.from_numpy(test["x"])).squeeze(1)
error = (predicted - torch.from_numpy(test["y"])).abs().mean()
print(f"mean error {error:.3f}, as the run says: {run.history.metrics['mae'][-1]:.3f}")

net = illness().model()
net.load_state_dict(load_file(run.folder / "model.safetensors"))

# %%
# Next: :doc:`plot_2_raspberry_pis` trains it on other machines, and
# :doc:`/tasks` has what else a task may say.
