"""From a Flower run's configuration to a run of ours on its SuperNodes."""

from flwr.app import UserConfig
from flwr.serverapp import Grid

from melisma.flower.fleet import FlowerLearners
from melisma.flower.job import configured
from melisma.jobs.live_task import LiveTask
from melisma.launch.serve import orchestrate_on
from melisma.runs.records import ACCURACY, Evaluated, Metrics, Record
from melisma.runs.store import run_folder
from melisma.views import scores


def run(grid: Grid, run_config: UserConfig) -> None:
    """Train, and leave model, records and report in a new folder of the run's name.

    Says a line for each cycle, which Flower passes on to who follows the run's log.
    """
    config = configured(run_config)
    job = config.job

    def learners_of(task: LiveTask) -> FlowerLearners:
        return FlowerLearners(
            grid,
            task.announcement,
            task.served,
            nodes=config.nodes,
            deadline_s=task.task.deadline_s,
            late=job.late,
            audit=task.audit(),
        )

    metric = ACCURACY

    def say(record: Record) -> None:
        nonlocal metric
        if isinstance(record, Metrics):
            metric = record.metrics[0]
        if isinstance(record, Evaluated):
            done = f"cycle {record.cycle} of {job.cycles}"
            value = scores.text(metric, record.metrics.get(metric.name))
            print(f"{done}: {value} after {record.time_s:.0f} s")

    with run_folder(config.runs, job.name) as folder:
        orchestrate_on(learners_of, job, folder, say, engine="flower")
        print(f"Run: {folder.resolve()}")
