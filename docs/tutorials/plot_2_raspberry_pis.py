r"""
Five Raspberry Pis on a table
=============================

At the end of this page five devices will have joined an orchestrator, trained by a
deadline, and left a model and a report; one will have been unplugged on the way.

You need the devices, a network and Melisma on each (``pip install melisma``;
:doc:`/deploy` makes it a service). This page plays the five devices by processes of the
machine that built it, as slow as Pis. Everything else is real: sockets, benchmarks,
deadlines, the kill.
"""

# %%
# On your laptop: serve
# ---------------------
#
# On the command line it is ``melisma serve job.toml --host 0.0.0.0 --learners 5``,
# which prints what the devices join with. In Python:

import subprocess
import sys
import tempfile

import matplotlib.pyplot as plt

import melisma as mel

job = mel.Job(name="table", scheme="csa", samples=2000, deadline="4 s", cycles=5)
pis: list[subprocess.Popen[bytes]] = []


def watch(record: object) -> None:
    """Unplug the fifth Pi after the second cycle."""
    if isinstance(record, mel.Evaluated) and record.cycle == 2:
        pis[4].kill()


server = mel.serve(job, learners=5, runs=tempfile.mkdtemp(), watch=watch)
server.__enter__()  # in a script of your own: `with mel.serve(…) as server:`
invitation = server.invite()
print(invitation)

# %%
# This one is an address, since only this machine may join. With ``host="0.0.0.0"`` it
# is a join string, ``melisma://TOKEN@HOST:8765#FINGERPRINT``: the token lets in, and
# the fingerprint of the server's certificate says whom to trust, so treat it as a
# password. ``melisma token add pi1`` makes one for a single device.
#
# On each device: join
# --------------------
#
# .. code-block:: console
#
#     $ MELISMA_JOIN='melisma://…' melisma join --name pi1
#
# Real Pis need no more. Ours are told how slow they are.


def join(number: int) -> subprocess.Popen[bytes]:
    """Start a learner that trains and sends as a Raspberry Pi does."""
    command = [sys.executable, "-m", "melisma", "join", invitation]
    command += ["--name", f"pi{number}", "--rate", f"{400 + 100 * number} samples/s"]
    return subprocess.Popen(
        [*command, "--bandwidth", "3 MB/s"], stderr=subprocess.DEVNULL
    )


pis += [join(number) for number in range(1, 6)]

# %%
# Unplug one
# ----------
#
# After the second cycle the fifth Pi loses its power: ``watch``, above, sees every
# record as it is written. The run goes on without it: its share of a cycle is lost,
# and no more.

run = server.wait()

for dropped in run.events(mel.Dropped):
    print(f"cycle {dropped.cycle}: {dropped.learner} dropped: {dropped.reason}")
for left in run.events(mel.Left):
    print(f"cycle {left.cycle}: {left.learner} left")

# %%
# What came of it
# ---------------

for cycle, (time_s, accuracy) in enumerate(
    zip(run.history.time_s, run.history.metric, strict=True), start=1
):
    print(f"cycle {cycle}: {accuracy:.1%} after {time_s:.1f} s")

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
for row in run.learner_cycles:
    if row.measured_s is not None:
        start = 4 * (row.cycle - 1)
        axes.barh(row.learner, row.measured_s, left=start, height=0.6, color="C0")
axes.set(xlabel="time (s), four to a cycle")
plt.show()

print("report:", run.report().name)

server.__exit__(None, None, None)
for pi in pis:
    pi.terminate()
    pi.wait()

# %%
# The report opens offline; ``melisma dashboard runs`` shows the same in the browser,
# and shows runs that are under way. If the orchestrator itself had been killed,
# ``melisma resume`` would have gone on from the last whole cycle:
# :doc:`/howto/resume`.
