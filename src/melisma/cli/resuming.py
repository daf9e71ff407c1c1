"""`melisma resume`: go on with a run that was cut short."""

from typing import Annotated

import typer

from melisma.cli.goes_on import dashboard_note, ray_flags, resumable
from melisma.cli.options import (
    Host,
    JsonLines,
    NodesData,
    Port,
    RayHead,
    RunFolder,
    read_job,
)
from melisma.cli.progress import run_bar
from melisma.cli.serving import (
    Certificate,
    ForPhones,
    Key,
    LocalCa,
    PhonesAt,
    PhonesFor,
    PlainHttp,
    Reach,
    orchestrate,
)
from melisma.errors import ConfigError


def resume(
    run: RunFolder,
    learners: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Go on when this many have joined.",
            show_default="as many as at its start",
        ),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    locally: Annotated[
        bool,
        typer.Option(
            help="Start its learners on this machine, as `melisma run` does.",
            show_default=False,
        ),
    ] = False,
    address: RayHead = None,
    data: NodesData = None,
    edited: Annotated[
        bool,
        typer.Option("--edited", help="Go on with a config.toml that you have edited."),
    ] = False,
    phones: ForPhones = False,
    phones_for: PhonesFor = "12h",
    phones_at: PhonesAt = None,
    local_ca: LocalCa = False,
    plain_http: PlainHttp = False,
    certificate: Certificate = None,
    key: Key = None,
    as_json: JsonLines = False,
) -> None:
    """Go on with a run that was cut short, from its last whole cycle.

    A simulated run goes on here, and one of `melisma run` starts its learners again.
    Others wait for learners to join as `melisma serve` does, unless --locally starts
    them or --address names a Ray cluster; --json then prints the result alone.
    """
    if address and locally:
        raise ConfigError("--locally or --address: its learners are here, or nodes")
    reach = Reach(
        host=host,
        port=port,
        phones=phones,
        phones_for=phones_for,
        phones_at=phones_at,
        local_ca=local_ca,
        plain_http=plain_http,
        certificate=certificate,
        key=key,
    )
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
    job, learners = read_job(config), learners or learners_of(start)
    begun_by = start.get("engine")
    locally = locally or (begun_by == local.LOCAL and not address)
    flags = f"--learners {learners} {reach.flags()}"
    if begun_by == SIMULATION or locally:
        flags = "" if begun_by in (SIMULATION, local.LOCAL) else "--locally"
    flags = ray_flags(address, data) or flags
    with run_bar(job, as_json) as watch, resumable(run, flags, as_json):
        show = dashboard_note(as_json)
        if begun_by == SIMULATION:
            records = build(job, hardware_of(start)).run(run, watch)
        elif address:
            from melisma.ray.run import run_on_ray

            records = run_on_ray(
                job,
                run,
                watch,
                show,
                address=address,
                data=data,
                gathering=watch.gathering,
            )
        elif locally:
            hardware = hardware_of(start)
            records = local.run_locally(
                job, run, watch, show, hardware=hardware, gathering=watch.gathering
            )
        else:
            code = kept(run, job)
            records = orchestrate(job, run, watch, learners, reach, as_json, code)
    print_run(job, run, records, as_json)
