r"""
Writing a scheme
================

At the end of this page you will have a scheme of your own that jobs, comparisons,
reports and live runs know by its name, and a test that shows whether it is any good.

A scheme is a pure function from a ``Problem`` (how long each learner takes) to an
``Allocation`` (how many samples and epochs each gets). Learner k needs
t = C²ₖ τ d + C¹ₖ d + C⁰ₖ seconds for τ passes over d samples.
"""

# %%
# The scheme
# ----------
#
# Data in proportion to speed, and for everybody as many passes as the slowest can do.

import tempfile

import matplotlib.pyplot as plt
import numpy as np

import melisma as mel


@mel.scheme("by-speed")
def by_speed(problem: mel.Problem) -> mel.Allocation:
    """Allocate samples by speed; InfeasibleError if one pass does not fit."""
    speed = 1 / problem.step_s
    samples = np.floor(speed / speed.sum() * problem.samples).astype(int)
    samples[speed.argmax()] += problem.samples - samples.sum()  # what rounding left
    steps = int(problem.steps_within(samples).min())
    if steps < 1:
        raise mel.InfeasibleError(
            f"{problem.samples} samples by speed do not fit in {problem.deadline_s} s"
        )
    return mel.Allocation(samples=samples, steps=np.full(problem.learners, steps))


# %%
# Ask it, and one that is exact
# -----------------------------
#
# ``mel.cell`` draws a radio cell of laptops and micro-controllers.

problem = mel.cell(learners=10, deadline_s=15.0)
for name in ("by-speed", "sync", "csa"):
    allocation = mel.SCHEMES[name](problem)
    trained = allocation.samples @ allocation.steps
    print(f"{name:9} {allocation.steps.max()} epochs, {trained:,} samples trained")

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
deadlines_s = np.arange(8.0, 41.0, 2.0)
for name in ("by-speed", "sync", "csa"):
    plans = [mel.SCHEMES[name](mel.cell(10, deadline_s=T)) for T in deadlines_s]
    millions = [plan.samples @ plan.steps / 1e6 for plan in plans]
    axes.plot(deadlines_s, millions, marker=".", label=name)
axes.set(xlabel="deadline (s)", ylabel="million samples trained")
axes.legend(frameon=False)
plt.show()

# %%
# What must hold
# --------------
#
# Constraints, on random problems: all work is given out, and everyone is done in
# time. ``sync`` is the exact optimum of equal epochs, so no scheme of equal epochs
# beats it; if ours did, one of the two would be wrong.

rng = np.random.default_rng(0)
for _ in range(50):
    K = int(rng.integers(2, 30))
    problem = mel.Problem(
        step_s=rng.uniform(1e-5, 1e-3, K),
        sample_s=rng.uniform(0, 1e-4, K),
        fixed_s=rng.uniform(0, 0.5, K),
        samples=5_000,
        deadline_s=float(rng.uniform(8, 20)),
    )
    ours = by_speed(problem)
    assert ours.samples.sum() == problem.samples
    assert np.all(problem.seconds(ours.samples, ours.steps) <= problem.deadline_s)
    assert ours.steps.max() <= mel.SCHEMES["sync"](problem).steps.max()
print("50 problems: all work given out, all in time, never above the optimum")

# %%
# Train with it
# -------------

job = mel.Job(cycles=5, deadline="1 s")
comparison = mel.compare(job, ["by-speed", "csa"], seeds=3, runs=tempfile.mkdtemp())
print(comparison.table())

# %%
# In a file ``my_schemes.py`` it is ``scheme = "my_schemes:by_speed"`` in any job, live
# runs too. Its answers are checked where they come in: a scheme that gives out more
# samples than there are is stopped, and named.
