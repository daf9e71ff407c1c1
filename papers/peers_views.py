"""What a race shows: its table, its picture and its claims."""

import numpy as np
from matplotlib.figure import Figure

from melisma.maths import Floats, mean_interval
from melisma.views import plots

from .claims import Claim, Kind, at_least, at_most, mean_of, near
from .kit import Cells, Data
from .peers_entrants import ENTRANTS, Point

#: Of the best of ours, the four best of theirs, and FedAvg.
LOOKS = (
    ("#0072B2", "o"),
    ("#D55E00", "P"),
    ("#009E73", "D"),
    ("#CC79A7", "*"),
    ("#E69F00", "s"),
    ("#999999", "x"),
)

NOT_REACHED = "not reached"
ALGORITHM = "algorithm"  #: heads the table of a race


def names_in(data: Data) -> list[str]:
    """Return the entrants of a race, in their order."""
    return [name for name in ENTRANTS if f"{name}/reached_s" in data]


def times_s(data: Data, name: str) -> Floats:
    """Return an entrant's times to the target; the horizon where it was not reached."""
    reached: Floats = np.minimum(data[f"{name}/reached_s"], data["horizon_s"])
    return reached


def best_of(data: Data, *, ours: bool) -> str:
    """Return who is first of ours, or of theirs, by mean time."""
    names = [name for name in names_in(data) if ENTRANTS[name].ours == ours]
    return min(names, key=lambda name: float(times_s(data, name).mean()))


def table_of_league(data: Data) -> Cells:
    """Every entrant, the soonest first."""
    by_gradient = any(key.endswith("/gradient") for key in data)
    rows = [
        [
            ALGORITHM,
            "tuned",
            "s to the target",
            "reached in",
            "at the end",
            "MB sent",
            "device-s",
            "idle",
            *(["‖∇f‖² at the end"] if by_gradient else []),
        ]
    ]
    digits = 0 if float(data["horizon_s"][0]) > 500 else 1
    for name in sorted(names_in(data), key=lambda n: float(times_s(data, n).mean())):
        own, work, rate = data[f"{name}/tuned"]
        reached = data[f"{name}/reached_s"]
        there = int((reached < data["horizon_s"]).sum())
        rows.append(
            [
                f"**{name}**" if ENTRANTS[name].ours else name,
                ENTRANTS[name].told(Point(int(own), int(work), float(rate))),
                _text(times_s(data, name), digits) if there else NOT_REACHED,
                f"{there} of {len(reached)}",
                _at_end(data[f"{name}/curve"]),
                _text(data[f"{name}/sent_bytes"] / 1e6, 0),
                _text(data[f"{name}/device_s"], 0),
                f"{100 * data[f'{name}/idle'].mean():.0f} %",
                *([_at_end(data[f"{name}/gradient"])] if by_gradient else []),
            ]
        )
    return rows


def summary(tables: dict[str, Cells]) -> Cells:
    """Who is first of ours and of theirs, where."""
    rows = [["setting", "ours", "s to the target", "theirs", "s to the target"]]
    for title, (heading, *entrants) in tables.items():
        if heading[0] != ALGORITHM:  # no race of all
            continue
        ours = [row for row in entrants if row[0].startswith("**")]
        theirs = [row for row in entrants if row not in ours]
        pair = (ours[0], theirs[0])  # tables have the soonest first
        cells = [cell for row in pair for cell in (row[0].strip("*"), row[2])]
        if entrants[0][2] != NOT_REACHED:  # else nobody is first
            first = 2 if entrants[0] in theirs else 0
            cells[first] = f"**{cells[first]}**"
        rows.append([title, *cells])
    return rows


def _at_end(curves: Floats) -> str:
    end: Floats = curves[:, -1]
    return _text(end, 3) if np.isfinite(end).all() else "not all ran"


def _text(values: Floats, digits: int) -> str:
    mean, half = mean_interval(values)
    return f"{mean:,.{digits}f} ± {half:,.{digits}f}"


def draw_league(drawing: Figure, data: Data) -> None:
    """Draw accuracy against time, ours and the best of theirs; and the gradient."""
    theirs = [name for name in names_in(data) if not ENTRANTS[name].ours]
    theirs.sort(key=lambda name: float(times_s(data, name).mean()))
    shown = [best_of(data, ours=True), *dict.fromkeys([*theirs[:4], "FedAvg"])]
    panels = ["curve", "gradient"] if f"{shown[0]}/gradient" in data else ["curve"]
    drawing.set_size_inches(6.4, 3.6 * len(panels))
    axes = drawing.subplots(len(panels), squeeze=False)[:, 0]
    target = float(data["target"][0])
    # What errs four times as often as it may is far from the race's end.
    if (bottom := 1 - 4 * (1 - target)) > 0:
        axes[0].set_ylim(bottom, 1.0)
    for ax, what in zip(axes, panels, strict=True):
        lines: list[plots.Line] = []
        for name, look in zip(shown, LOOKS, strict=False):
            mean, half = mean_interval(data[f"{name}/{what}"])
            line = plots.Line(name, data["grid_s"], mean, half, plots.Look(*look))
            lines.append(line)
        ax.set(xlabel="virtual time (s)", ylabel="accuracy")
        if what == "gradient":
            ax.set(yscale="log", ylabel="squared norm of the gradient")
        plots.curves(ax, lines)
    axes[0].axhline(target, color="#999999", linewidth=0.8, linestyle=":")


def claims_of_league(data: Data, why: str = "unexplained") -> list[Claim]:
    """Who is first; nothing where nobody came to the target."""
    ours, theirs = best_of(data, ours=True), best_of(data, ours=False)
    both_s = np.concatenate([times_s(data, ours), times_s(data, theirs)])
    if (both_s == data["horizon_s"]).all():
        return []
    ratio = times_s(data, ours) / times_s(data, theirs)
    return [
        Claim(
            what=f"{ours} over {theirs}, the best of ours and of theirs: time to the "
            "target",
            printed="aim: 1 or less",
            ours=mean_of(ratio),
            kind=Kind.OWN,
            rule=at_most(1.0),
            why=why,
        )
    ]


def claims_of_nvflare(data: Data) -> list[Claim]:
    """The example's README, by what is printed of 50,000 images."""
    end = {name: 100 * data[f"{name}/curve"][:, -1] for name in names_in(data)}
    return [
        *claims_of_league(data),
        Claim(
            what="accuracy that FedBuff gains over FedAvg by the end (points)",
            printed="50.30 − 47.92 = 2.38",
            ours=mean_of(end["FedBuff"] - end["FedAvg"]),
            kind=Kind.OWN,
            rule=at_least(0.0, weaker=-1.0),
            why="20,000 images of 50,000; both are tuned here",
        ),
        Claim(
            what="time of the best of ours to the target, of the 82.2 min of FedAvg",
            printed="aim: 30 of 82.2 min = 0.365",
            ours=mean_of(times_s(data, best_of(data, ours=True)) / data["horizon_s"]),
            kind=Kind.OWN,
            rule=at_most(0.365, weaker=1.0),
        ),
    ]


def claims_of_links(data: Data) -> list[Claim]:
    """What there is to gain by choosing what travels."""
    return [
        *claims_of_league(data),
        Claim(
            what="times as soon as csa, csa-options",
            printed="aim: 1.5 or more",
            ours=mean_of(times_s(data, "csa") / times_s(data, "csa-options")),
            kind=Kind.OWN,
            rule=at_least(1.5, weaker=1.0),
            why="with two seeds, as the quick race has, the interval is wide",
        ),
    ]


def claims_of_fedprox(data: Data) -> list[Claim]:
    """Figure 1 of its paper at 90 % stragglers, read off."""
    end = {name: data[f"{name}/curve"][:, -1] for name in names_in(data)}
    return [
        *claims_of_league(data),
        Claim(
            what="accuracy of partial work (FedAvg that halts) in the end",
            printed="0.75 to 0.80",
            ours=mean_of(end["FedAvg"]),
            kind=Kind.OWN,
            rule=near(0.775, 0.05, weaker=0.1),
            why="all rates are tuned here, for the time to the target",
        ),
        Claim(
            what="accuracy of FedProx in the end",
            printed="0.85",
            ours=mean_of(end["FedProx"]),
            kind=Kind.OWN,
            rule=near(0.85, 0.05, weaker=0.1),
            why="all rates are tuned here, for the time to the target",
        ),
    ]
