r"""
Quickstart
==========

At the end of this page you will have trained a model on ten unlike devices by a
deadline, seen who did what, and read its accuracy. Nothing is downloaded: the digits
ship with a dependency.
"""

import matplotlib.pyplot as plt

import melisma as mel

# %%
# A job says who learns what, and by when
# ---------------------------------------
#
# Learners are given by how fast they train and how fast their links are. Here two
# laptops, three Jetsons and five Raspberry Pis have one second for each cycle: to
# receive data and model, to train, and to send the model back.

job = mel.Job(
    scheme="csa",
    deadline="1 s",
    cycles=8,
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

# %%
# Simulate it
# -----------
#
# Gradients are real, time is virtual. ``runs=None`` keeps the run in memory; give a
# folder to keep it on disk, with a report and a model to take away.

run = mel.simulate(job, runs=None)
for cycle, (time_s, accuracy) in enumerate(
    zip(run.history.time_s, run.history.metric, strict=True), start=1
):
    print(f"cycle {cycle}: {accuracy:.1%} after {time_s:.2f} s")

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.plot(run.history.time_s, [100 * a for a in run.history.metric], marker="o")
axes.set(xlabel="time (s)", ylabel="test accuracy (%)")
plt.show()

# %%
# Who did what
# ------------
#
# ``csa`` gave every learner as much data as it can train on, for nearly the same number
# of passes: nobody idles, and nobody is more than one pass ahead.

first = [row for row in run.learner_cycles if row.cycle == 1]
for row in first:
    print(f"{row.learner:9} {row.samples:4} samples, {row.steps} epochs")

# %%
# The same for real
# -----------------
#
# ``mel.run(job)`` trains with a process for each learner, each as slow as its device,
# and the same loop, records and reports; ``mel.serve(job)`` with other machines. The
# tutorial on five Raspberry Pis does that.
