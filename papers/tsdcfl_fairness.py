"""Fair transmission of the two-stage paper: pictures, tables and claims."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from melisma.maths import Floats, mean_interval
from melisma.transmission import jain
from melisma.views import plots

from .claims import Claim, Kind, at_least, at_most, exact, mean_of, near, of_kind
from .kit import Data
from .tsdcfl_transmission import at

#: Okabe and Ito's, as in ``melisma.views.plots``.
BLUE, GREEN, ORANGE, GREY = "#0072B2", "#009E73", "#D55E00", "#777777"
#: Queues that are drawn, and what stands at their axes.
QUEUES = {
    "Data Q": ("data", "fullest queue (Mbit)"),
    "Fairness H": ("fairness", "fullest queue (Mbit)"),
    "Battery E": ("battery", "fullest, share of its size"),
    "Work R": ("work", "fullest queue (Gcycles)"),
    "Server Rₛ": ("server", "work waiting (Gcycles)"),
}


def band(ax: Axes, x: Floats, values: Floats, colour: str, marker: str = "") -> None:
    """Draw the mean over the last axis as a line, the range as a band."""
    low, high = values.min(axis=-1), values.max(axis=-1)
    ax.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0)
    ax.plot(x, values.mean(axis=-1), color=colour, marker=marker, linewidth=1.2)


def name_end(ax: Axes, text: str, colour: str, height: float) -> None:
    """Write beside the right edge at a height; for axes of any scale."""
    ax.annotate(
        text,
        (1.0, height),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        annotation_clip=False,
    )


def draw_queues(drawing: Figure, data: Data) -> None:
    """Five panels over time: Q, H and E with their bounds dashed, R and R_s."""
    drawing.set_size_inches(10.2, 5.2)
    axes = drawing.subplots(2, 3, sharex=True).ravel()
    axes[5].remove()
    for ax, (title, (name, label)) in zip(axes[:5], QUEUES.items(), strict=True):
        ends = []
        for V, colour in zip(data["shown"], (ORANGE, GREEN, BLUE), strict=True):
            values = at(data, f"trace/{name}", V)
            band(ax, data["slot"], values, colour)
            if f"most/{name}" in data:
                most = float(at(data, f"most/{name}", V))
                ax.axhline(most, color=colour, linestyle="--", linewidth=1)
            ends.append((f"V = {V:g}", colour, float(values[-1].mean())))
        ax.set(title=title, ylabel=label)
        if name in ("battery", "server"):
            ax.set_ylim(bottom=0.7 if name == "battery" else 0.0)
            plots.label_ends(ax, ends)
        else:
            ax.set_yscale("log")
            for end in ends:
                name_end(ax, *end)
    axes[2].tick_params(labelbottom=True)  # nothing stands below it
    for ax in axes[2:5]:
        ax.set_xlabel("slot")


def claims_of_queues(data: Data) -> list[Claim]:
    """C4 and C5 of P2, and the bounds of this project's specification."""
    names = {
        "data": "Data queue Q over Vλ/ln 2 + 2·D_max, at its fullest with any V",
        "fairness": "Fairness queue H over Vλ/ln 2 + D_max, likewise",
        "battery": "Battery E over θ + E^H_max, likewise",
        "server": "Server's queue R_s over its bound, likewise",
    }
    found = [
        Claim(
            what=what,
            printed="finite (C5)",
            ours=exact(float(data[f"over/{name}"].max())),
            rule=at_most(1.0),
            digits=4,
        )
        for name, what in names.items()
    ]
    return [
        *found,
        Claim(
            what="Work R: mean of the last quarter over that of the half before, "
            f"V = {data['V'][-1]:g}",
            printed="finite (C5)",
            ours=mean_of(data["work grows"][-1]),
            rule=at_most(1.05),
            why="it has no bound: work arrives whatever the battery holds, and waits "
            "until the battery is charged",
        ),
        Claim(
            what="Least charge of any battery",
            printed="≥ 0 (C4)",
            ours=exact(float(data["least battery"].min())),
            rule=at_least(0.0),
            kind=Kind.GIVEN,  # no more is taken than there is
            unit="J",
        ),
    ]


# --- utility against backlog ----------------------------------------------------------


def draw_tradeoff(drawing: Figure, data: Data) -> None:
    """Three panels over V: utility, its distance from the best, the largest backlog."""
    drawing.set_size_inches(9.0, 3.0)
    V, utility, backlog = data["V"], data["utility"], data["backlog"]
    bound, gap = data["most/data"], data["best"] - data["utility"]
    left, middle, right = drawing.subplots(1, 3)
    band(left, V, utility, BLUE, "o")
    best, greedy = float(data["best"].mean()), data["greedy/utility"]
    left.axhline(best, color=GREY, linestyle="--", linewidth=1)
    left.axhline(float(greedy.mean()), color=ORANGE, linewidth=1)
    left.axhspan(greedy.min(), greedy.max(), color=ORANGE, alpha=0.25, linewidth=0)
    left.set(title="Utility", ylabel="Σ log₂(1 + λ·throughput)", xscale="log")
    plots.label_ends(
        left,
        [
            ("lyapunov", BLUE, float(utility[-1].mean())),
            ("hindsight", GREY, best),
            ("greedy", ORANGE, float(greedy.mean())),
        ],
    )
    band(middle, V, gap, BLUE, "o")
    line = gap[-1].mean() * V[-1] / V
    middle.plot(V[2:], line[2:], color=GREY, linestyle="--", linewidth=1)
    name_end(middle, "1/V", GREY, float(line[-1]) * 0.7)
    name_end(middle, "gap", BLUE, float(line[-1]) * 1.3)
    middle.set(title="Below hindsight", ylabel="utility missing", yscale="log")
    band(right, V, backlog, BLUE, "o")
    right.plot(V, bound, color=GREY, linestyle="--", linewidth=1)
    name_end(right, "bound", GREY, float(bound[-1]) * 1.05)
    name_end(right, "largest Q", BLUE, float(backlog[-1].mean()) / 1.15)
    right.set(title="Backlog", ylabel="largest queue (Mbit)", yscale="log")
    for ax in (left, middle, right):
        ax.set(xscale="log", xlabel="V (Mbit²)")


def table_of_tradeoff(data: Data) -> list[list[str]]:
    """One row for each V; the largest of all seeds, means of the rest."""
    heading = ["V", "utility", f"below hindsight ({data['best'].mean():.3f})"]
    heading += ["that times V", "largest Q (Mbit)", "Q_max", "largest R (Gcycles)"]
    heading += ["airtime (s per slot, of 2)", "rate while sending, share of the most"]
    rows = [heading]
    for n, V in enumerate(data["V"]):
        utility, share = data["utility"][n], data["rate share"][n]
        gap = float((data["best"] - utility).mean())
        rows.append(
            [
                f"{V:g}",
                f"{utility.mean():.3f}",
                f"{gap:.3f}",
                f"{gap * V:.1f}",
                f"{data['backlog'][n].max():.1f}",
                f"{data['most/data'][n]:.1f}",
                f"{data['work'][n].max():.0f}",
                f"{data['airtime'][n].mean():.2f}",
                f"{share.min():.2f} to {share.max():.2f}",
            ]
        )
    return rows


def slopes(V: Floats, values: Floats) -> Floats:
    """Slope of log values over log V, of each seed.

    >>> slopes(np.array([1.0, 10.0]), np.array([[2.0], [20.0]])).round(9)
    array([1.])
    """
    slope: Floats = np.polyfit(np.log(V), np.log(values), 1)[0]
    return slope


def claims_of_tradeoff(data: Data) -> list[Claim]:
    """What drift plus penalty promises; then what the prototype found."""
    large = data["V"] >= 20.0
    V = data["V"][large]
    gap = (data["best"] - data["utility"])[large]
    found = [
        Claim(
            what="Utility missing falls like a power of V, from V = 20 on",
            printed="−1 (theory)",
            ours=mean_of(slopes(V, gap)),
            rule=near(-1.0, 0.1, weaker=0.3),
        ),
        Claim(
            what="Largest backlog grows like a power of V, from V = 20 on",
            printed="1 (theory)",
            ours=mean_of(slopes(V, data["backlog"][large])),
            rule=near(1.0, 0.1, weaker=0.3),
        ),
    ]
    setting = "its setting is not known"
    last = at(data, "utility", 200.0)
    for V_of, utility, backlog in ((1.0, 2.29, 12.0), (20.0, 2.62, 34.0)):
        found.append(
            Claim(
                what=f"Utility with V = {V_of:g}, of that with V = 200",
                printed=f"{100 * utility / 2.75:.0f} % (prototype)",
                ours=mean_of(100.0 * at(data, "utility", V_of) / last),
                rule=near(round(100.0 * utility / 2.75), 3.0, weaker=10.0),
                unit="%",
                digits=1,
                why=setting,
            )
        )
        found.append(_backlog(data, V_of, backlog, setting))
    return of_kind(Kind.OWN, [*found, _backlog(data, 200.0, 291.0, setting)])


def _backlog(data: Data, V: float, printed: float, why: str) -> Claim:
    return Claim(
        what=f"Largest backlog Q with V = {V:g}",
        printed=f"{printed:g} (prototype)",
        ours=mean_of(at(data, "backlog", V)),
        rule=near(printed, 0.1 * printed, weaker=0.3 * printed),
        unit="Mbit",
        digits=1,
        why=why,
    )


# --- fairness -------------------------------------------------------------------------


def draw_fairness(drawing: Figure, data: Data) -> None:
    """Each worker's throughput under both policies, and Jain's index."""
    drawing.set_size_inches(8.0, 3.2)
    each, index = drawing.subplots(1, 2, width_ratios=(2.2, 1))
    policies = {
        "lyapunov": (data["throughput"][-1], BLUE),
        "greedy": (data["greedy/throughput"], ORANGE),
    }
    workers = np.arange(1, data["rate"].size + 1, dtype=np.float64)
    for place, (name, (throughput, colour)) in enumerate(policies.items()):
        mean, half = mean_interval(throughput)
        x = workers + 0.36 * (place - 0.5)
        each.bar(x, mean, 0.34, yerr=half, color=colour, label=name, capsize=2)
        mean, half = mean_interval(jain(throughput))
        index.bar(place, float(mean), 0.6, yerr=float(half), color=colour, capsize=2)
        index.text(place, float(mean) + 0.03, f"{mean:.3f}", ha="center", color=colour)
    each.legend()
    each.set(title="Throughput", ylabel="Mbit per slot")
    ticks = [f"{m}\n≤ {r:g} Mbit/s" for m, r in enumerate(data["rate"], start=1)]
    each.set_xticks(workers, ticks, fontsize=8)
    each.set_xlabel("worker (2 and 4 harvest little energy)")
    index.set(title="Jain's index", ylim=(0, 1.1))
    index.set_xticks((0, 1), list(policies))
    for ax in (each, index):
        ax.grid(axis="x", visible=False)


def table_of_fairness(data: Data) -> list[list[str]]:
    """One row for each policy."""
    rows = [["policy", "Mbit per slot, all workers", "utility", "Jain's index"]]
    rows[0] += ["worst worker (Mbit per slot)", "airtime (s per slot)"]
    rows[0].append("rate while sending, share of the most")
    names = ("throughput", "utility", "airtime", "rate share")
    last = {name: data[name][-1] for name in names}
    policies = {f"lyapunov, V = {data['V'][-1]:g}": last} | {
        text: {name: data[f"{policy}/{name}"] for name in last}
        for policy, text in (
            ("greedy", "greedy"),
            ("printed", "as the paper prints it"),
        )
    }
    for text, of in policies.items():
        sent, share = of["throughput"], of["rate share"]
        index, silent = jain(sent), np.isnan(share).any()
        rows.append(
            [
                text,
                f"{sent.sum(axis=1).mean():.2f}",
                f"{of['utility'].mean():.3f}",
                "" if silent else f"{index.mean():.3f}",
                f"{sent.min(axis=1).mean():.3f}",
                f"{of['airtime'].mean():.2f}",
                "" if silent else f"{share.min():.2f} to {share.max():.2f}",
            ]
        )
    return rows


def claims_of_fairness(data: Data) -> list[Claim]:
    """Section 4.3: throughput and fairness."""
    fair, greedy = data["throughput"][-1], data["greedy/throughput"]
    as_printed = data["printed/throughput"].sum(axis=1)
    V = f"V = {data['V'][-1]:g}"
    return [
        Claim(
            what="Throughput of P4 to P7 as printed, of greedy's",
            printed="the most",
            ours=mean_of(100.0 * as_printed / greedy.sum(axis=1)),
            rule=at_least(100.0, weaker=0.0),
            unit="%",
            digits=1,
            why="P6 as printed stores no energy, so that nothing is ever sent",
        ),
        Claim(
            what=f"Throughput of the corrected rules above greedy's, {V}",
            printed="the most",
            ours=mean_of(100.0 * (fair.sum(axis=1) / greedy.sum(axis=1) - 1.0)),
            rule=at_least(0.0),
            kind=Kind.OWN,
            unit="%",
            digits=1,
        ),
        Claim(
            what=f"Utility of the corrected rules, of the best in hindsight, {V}",
            printed="the most",
            ours=mean_of(100.0 * data["utility"][-1] / data["best"]),
            rule=at_least(99.0, weaker=90.0),
            kind=Kind.OWN,
            unit="%",
        ),
        Claim(
            what=f"Jain's index of the corrected rules above greedy's, {V}",
            printed="fairer",
            ours=mean_of(jain(fair) - jain(greedy)),
            rule=at_least(0.0),
            kind=Kind.OWN,
            digits=3,
        ),
        Claim(
            what=f"Worst worker's throughput over that under greedy, {V}",
            printed="fairer",
            ours=mean_of(fair.min(axis=1) / greedy.min(axis=1)),
            rule=at_least(1.0),
            kind=Kind.OWN,
        ),
    ]
