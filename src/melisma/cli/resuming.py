"""`melisma resume`: go on with a run that was cut short."""

from melisma.cli import options
from melisma.cli.goes_on import resumable
from melisma.cli.live import Cluster, train_live
from melisma.cli.progress import run_bar
from melisma.cli.serving import Reach, orchestrate
from melisma.errors import ConfigError


@options.grouped
def resume(
    run: options.RunFolder,
    *,
    learners: options.LearnersAgain = None,
    reach: Reach,
    locally: options.Locally = False,
    cluster: Cluster,
    edited: options.Edited = False,
    as_json: options.JsonLines = False,
) -> None:
    """Go on with a run that was cut short, from its last whole cycle.

    A simulated run goes on here, and one of `melisma run` starts its learners again.
    Others wait for learners to join as `melisma serve` does, unless --locally starts
    them or --address names a Ray cluster; --json then prints the result alone.
    """
    if cluster.address and locally:
        raise ConfigError("--locally or --address: its learners are here, or nodes")
    from melisma.cli.tables import print_run
    from melisma.launch import local
    from melisma.launch.api import hardware_of
    from melisma.launch.bundling import kept
    from melisma.launch.serve import learners_of
    from melisma.launch.simulate import SIMULATION, build
    from melisma.runs.start import accept_config, started

    config = local.resumable(run)
    if edited:
        accept_config(run)
    start = started(run)  # before its job is believed
    job, learners = options.read_job(config), learners or learners_of(start)
    begun_by = start.get("engine")
    if cluster.address:
        flags = cluster.flags()
    elif begun_by in (SIMULATION, local.LOCAL):
        flags = ""
    else:
        flags = "--locally" if locally else f"--learners {learners} {reach.flags()}"
    with run_bar(job, as_json) as watch, resumable(run, flags, as_json):
        if begun_by == SIMULATION:
            records = build(job, hardware_of(start)).run(run, watch)
        elif cluster.address or locally or begun_by == local.LOCAL:
            hardware = hardware_of(start)
            records = train_live(job, run, watch, as_json, cluster, hardware)
        else:
            code = kept(run, job)
            records = orchestrate(job, run, watch, learners, reach, as_json, code)
    print_run(job, run, records, as_json)
