r"""
Coded and fog runs
==================

At the end of this page you will have trained with exact gradients although one worker
in six is dead, and moved data to where training is cheap.
"""

# %%
# Gradient codes: nobody waits for a straggler
# --------------------------------------------
#
# Workers compute gradients of more than their own part of the data, and send weighted
# sums, so that the full gradient can be decoded from those that answer. The job draws a
# worker in each iteration that is eight times slower.

import tempfile

import matplotlib.pyplot as plt

import melisma as mel

workers = [
    {"name": "two-cores", "count": 2, "rate": "200 samples/s", "bandwidth": "20 MB/s"},
    {"name": "four-cores", "count": 2, "rate": "400 samples/s", "bandwidth": "20 MB/s"},
    {
        "name": "eight-cores",
        "count": 2,
        "rate": "800 samples/s",
        "bandwidth": "20 MB/s",
    },
]
coded = mel.Job(
    name="coded",
    scheme="coded",
    stragglers=1,
    cycles=10,
    deadline="60 s",
    samples=2000,
    shard=5,
    training={"rate": 0.1, "momentum": 0.9},
    straggling={"number": 1, "slower": 8},
    learners=workers,
)
codes = ["coded:uncoded", "coded:cyclic", "coded:two-stage"]
comparison = mel.compare(coded, codes, seeds=3, runs=tempfile.mkdtemp())
print(comparison.table())

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for outcome in comparison.finished:
    time_s = outcome.over_seeds("time_s").mean(axis=0)
    loss = outcome.over_seeds("loss").mean(axis=0)
    axes.plot(time_s, loss, marker=".", label=outcome.scheme)
axes.set(xlabel="time (s)", ylabel="loss")
axes.legend(frameon=False)
plt.show()

# %%
# All codes end in the same weights, since gradients are exact; what differs is the
# time, and the work done more than once. Without a code every iteration waits.
#
# Dead is a straggler too: ``slower = inf``.

dead = mel.Job(
    name="dead",
    scheme="coded:cyclic",
    stragglers=1,
    cycles=5,
    deadline="60 s",
    samples=2000,
    shard=5,
    straggling={"number": 1, "slower": float("inf")},
    learners=workers,
)
run = mel.simulate(dead, runs=None)
print(f"{run.history.metric[-1]:.1%} after {run.history.time_s[-1]:.1f} s")

# %%
# A fog: data moves to where training is cheap
# --------------------------------------------
#
# Gateways and sensors collect samples slot by slot, and process, hand on or discard
# them by an optimal plan. ``fog:alone`` moves nothing, ``fog:rolling`` plans ahead by
# what it has seen.

fog = mel.Job(
    name="fog",
    scheme="fog",
    mode="federated",
    model="FogMLP",
    cycles=3,
    deadline="5 s",
    steps=1,
    training={"rate": 0.05, "batch": 4},
    fog={"period": 10, "links": "waypoint", "discard": 10},
    learners=[
        {
            "name": "gateway",
            "count": 3,
            "rate": "60 samples/s",
            "bandwidth": "400 kB/s",
        },
        {"name": "sensor", "count": 7, "rate": "8 samples/s", "bandwidth": "100 kB/s"},
    ],
)
print(
    mel.compare(
        fog, ["fog:alone", "fog:rolling"], seeds=3, runs=tempfile.mkdtemp()
    ).table()
)

# %%
# Next: :doc:`/coding` has what each code costs, :doc:`/fog` the program that is solved
# and the theorems, and :doc:`/papers/README` what of either paper held.
