"""`melisma costs`: measure what moving data costs in a fog, on emulated devices."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from melisma.cli.options import PLATFORM, Devices, JobFile, Json, names_in, read_job
from melisma.cli.output import json_line, line, stopped
from melisma.cli.progress import slot_bar
from melisma.errors import unknown
from melisma.units import Seconds

if TYPE_CHECKING:
    from melisma.testbed import Device


def costs(
    job_file: JobFile = None,
    out: Annotated[
        Path,
        typer.Option(dir_okay=False, metavar="FILE.csv", help="New file to write."),
    ] = Path("costs.csv"),
    devices: Devices = PLATFORM,
    link: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Link of every device: ethernet, wifi or lte.",
            show_default="each device's own",
        ),
    ] = None,
    slots: Annotated[
        int, typer.Option(min=1, metavar="N", help="Slots to measure.")
    ] = 30,
    samples: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Samples that go to each other device in a slot."
        ),
    ] = 20,
    slot: Annotated[
        str, typer.Option(metavar="TIME", help="Length of a slot at least: '1 s'.")
    ] = "1 s",
    as_json: Json = False,
) -> None:
    """Measure a fog's costs on emulated devices, slot by slot; needs root.

    Each device trains the job's model for real while it sends samples to all others
    over its link. The file has the seconds that a sample took; a job uses it by
    costs = "FILE.csv" in [fog] (docs/fog.md). Ctrl-C keeps the slots so far.
    """
    job, slot_s = read_job(job_file), float(Seconds.of(slot))
    emulated = _devices(devices, link)
    from melisma.cli.tables import show_costs
    from melisma.fog import traces
    from melisma.launch.costs import measure

    try:
        with slot_bar("costs", slots, as_json) as watch:
            measure(
                job,
                emulated,
                out,
                slots=slots,
                samples=samples,
                slot_s=slot_s,
                watch=watch,
            )
    except KeyboardInterrupt:
        if out.exists():
            stopped(f"Stopped; the slots so far are in {out}.")
        raise
    trace = traces.read(out)
    if as_json:
        json_line({"file": str(out), "slots": trace.slots, "devices": trace.devices})
        return
    show_costs(trace, [device.name for device in emulated])
    line(f'Use it by costs = "{out}" in [fog].')


def _devices(names: str, link: str | None) -> "list[Device]":
    """Return the devices of these names, over another link if one is given."""
    from melisma.testbed import DEVICES
    from melisma.testbed.links import LINKS

    chosen = names_in(names)
    for name in chosen:
        if name not in DEVICES:
            raise unknown("device", name, DEVICES)
    if link is None:
        return [DEVICES[name] for name in chosen]
    if link not in LINKS:
        raise unknown("link", link, LINKS)
    return [replace(DEVICES[name], link=LINKS[link]) for name in chosen]
