r"""
Reading a run with pandas
=========================

At the end of this page you will have asked a run which learners were late, which idled,
and how far its predictions were off, in a line each. It needs
``pip install 'melisma[pandas]'``.
"""

# %%
# A row for each learner and cycle
# --------------------------------

import matplotlib.pyplot as plt

import melisma as mel

job = mel.Job(cycles=10, deadline="1 s", noise=0.1)
run = mel.simulate(job, runs=None)
rows = run.to_pandas()
print(
    rows[["learner", "cycle", "samples", "steps", "predicted_s", "measured_s"]].head()
)

# %%
# ``mel.open("runs/demo").to_pandas()`` is the same for a run on disk: finished, cut
# short or still under way.
#
# By learner
# ----------

rows["off"] = 100 * (rows.predicted_s / rows.measured_s - 1)
rows["idle"] = 1 - rows.measured_s  # of a deadline of one second
print(rows.groupby("learner")[["samples", "off", "idle"]].mean().round(2))

# %%
# By kind of event
# ----------------
#
# Rows sum up what records say one by one; ``run.events`` has these, by kind.

halted = run.events(mel.Halted)
print(f"{len(halted)} of {len(rows)} learner cycles were halted at the deadline")

# %%
# A picture
# ---------

table = rows.pivot(index="learner", columns="cycle", values="measured_s")
figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
image = axes.imshow(table, aspect="auto")
axes.set(yticks=range(len(table)), yticklabels=table.index, xlabel="cycle")
figure.colorbar(image, label="done after (s)")
plt.show()
