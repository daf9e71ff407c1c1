r"""
Comparing schemes honestly
==========================

At the end of this page you will know which of three schemes brings a model to a target
sooner on your devices, by how much, and how sure that is.
"""

# %%
# The same devices, the same data, several seeds
# ----------------------------------------------
#
# A seed draws the initial model, the data of each learner and the order of batches. All
# schemes get the same seeds, so that a difference is theirs. One seed is an anecdote.

import tempfile

import matplotlib.pyplot as plt
import numpy as np

import melisma as mel
from melisma.maths.statistics import mean_interval

job = mel.Job(
    cycles=12,
    deadline="0.5 s",
    learners=[
        {
            "name": "laptop",
            "count": 2,
            "rate": "8000 samples/s",
            "bandwidth": "20 MB/s",
        },
        {
            "name": "jetson",
            "count": 3,
            "rate": "2500 samples/s",
            "bandwidth": "10 MB/s",
        },
        {"name": "pi", "count": 5, "rate": "600 samples/s", "bandwidth": "3 MB/s"},
    ],
)
comparison = mel.compare(job, ["csa", "eta", "sync"], seeds=5, runs=tempfile.mkdtemp())
print(comparison.table())

# %%
# Means stand with their 95 % intervals. Where intervals overlap widely, the table has
# not decided anything: take more seeds.
#
# Ask what you care about: the time to a target
# ---------------------------------------------
#
# Accuracy after the last cycle favours whoever trains longest. What a user waits for
# is the time until the model is good enough. Seeds are paired: the difference is
# taken seed by seed, and its interval is what decides.


def time_to(target: float, history: mel.History) -> float:
    """Return the first time at the target, interpolated between cycles."""
    reached = np.maximum.accumulate(history.metric)
    return float(np.interp(target, [0, *reached], [0, *history.time_s]))


times = {
    outcome.scheme: np.array([time_to(0.85, h) for h in outcome.histories])
    for outcome in comparison.finished
}
for other in ("eta", "sync"):
    mean, half = mean_interval(times[other] - times["csa"])
    verdict = "csa is sooner" if mean > half else "not decided"
    print(f"{other} − csa: {mean:+.2f} ± {half:.2f} s to 85 %: {verdict}")

# %%
# Look at it
# ----------

figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for outcome in comparison.finished:
    accuracy = 100 * outcome.over_seeds("metric")
    time_s = outcome.over_seeds("time_s").mean(axis=0)
    mean, half = mean_interval(accuracy)
    (line,) = axes.plot(time_s, mean, label=outcome.scheme)
    axes.fill_between(
        time_s, mean - half, mean + half, color=line.get_color(), alpha=0.2
    )
axes.set(xlabel="time (s)", ylabel="test accuracy (%)")
axes.legend(frameon=False)
plt.show()

# %%
# What makes such a comparison fair
# ---------------------------------
#
# * Everybody is tuned, or nobody: a learning rate that suits one scheme is a thumb on
#   the scale. The :doc:`league </papers/peers>` tunes all over the same small grid.
# * The deadline is part of the question. Ask at several.
# * What is measured says where: commit, processor, versions. The folder of a comparison
#   has them, with every run and the job as it was read.
