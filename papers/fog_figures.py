"""Figs. 5 to 8 of the fog paper: devices, periods, links, media."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy.stats import spearmanr

from melisma.maths import Floats, mean_interval
from melisma.views import plots

from .claims import Claim, Kind, at_least, at_most, exact, mean_of, near, of_kind
from .fog_runs import COSTS, ERRORS, MEDIA, TOPOLOGIES
from .fog_tables import COLOURS, LOOKS, WHY_DEAR, percent, shown
from .kit import Data

#: How the readings of the error are drawn.
ERROR_LOOKS = dict(zip(ERRORS, (LOOKS["B"], plots.Look("#CC79A7", "o")), strict=True))
PRINTED = "#D55E00"
GAP = 0.09  #: between labels of lines: panels are low
#: Rules of costs that are said to grow, or to fall.
MORE, LESS = at_least(0.005, weaker=0.0), at_most(-0.005, weaker=0.0)


def cost_bars(ax: Axes, labels: Sequence[str], costs: Sequence[Floats]) -> None:
    """Draw a bar for each label: seeds × COSTS, and the interval of the sum."""
    for x, one in enumerate(costs):
        parts = one.mean(axis=0)
        low = np.cumsum(parts) - parts
        for part, bottom, colour in zip(parts, low, COLOURS, strict=True):
            ax.bar(x, part, 0.7, bottom, color=colour)
        mean, half = mean_interval(one.sum(axis=1))
        ax.errorbar(x, mean, half, color="black", capsize=3, linewidth=1.2)
    ax.set_xticks(range(len(labels)), list(labels))
    ax.set_ylabel("cost per sample collected")
    ax.set_ylim(bottom=0.0)
    ax.grid(visible=False, axis="x")


def name_costs(ax: Axes) -> None:
    """Say which colour is which cost."""
    for name, colour in zip(COSTS, COLOURS, strict=True):
        ax.bar(0, 0, color=colour, label=name)
    ax.figure.legend(loc="outside upper right", ncols=len(COSTS))


def in_percent(ax: Axes, *, whole: bool = False) -> None:
    """Percents on the left, of a ``whole`` from 0 to 100."""
    ax.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if whole:
        ax.set(ylim=(-3.0, 103.0), yticks=(0, 25, 50, 75, 100))
    ax.yaxis.set_major_formatter(PercentFormatter(100.0, decimals=0))


def costs_of(data: Data, case: str) -> Floats:
    """Costs of a case by their parts, seeds × COSTS."""
    return np.stack([data[f"{case}/{name}"] for name in COSTS], axis=1)


def line(ax: Axes, x: Floats, values: Sequence[Floats], look: plots.Look) -> float:
    """Draw means of shares in %, with intervals; return the last mean.

    No interval reaches beyond what a share can be.
    """
    mean, half = mean_interval(np.stack(values, axis=1))
    reach = np.minimum([half, half], [mean, 100.0 - mean]).clip(min=0.0)
    ax.errorbar(
        x,
        mean,
        reach,
        color=look.colour,
        marker=look.marker,
        capsize=2,
        elinewidth=1.0,
    )
    return float(mean[-1])


def lines_by_error(
    ax: Axes, data: Data, x: Floats, what: str, *, whole: bool = False
) -> None:
    """Draw a share of cases ``error/x`` in %, a line for each reading of the error."""
    ends = []
    aside = 0.008 * (x[-1] - x[0])  # else one interval may hide the other
    for (error, look), place in zip(
        ERROR_LOOKS.items(), (x - aside, x + aside), strict=True
    ):
        values = [percent(data, f"{error}/{case}", what) for case in _keys(x)]
        ends.append((error, look.colour, line(ax, place, values, look)))
    in_percent(ax, whole=whole)
    plots.label_ends(ax, ends, GAP)


def trend(x: Floats, values: Sequence[Floats]) -> float:
    """Rank correlation of the means with x."""
    means = np.array([one.mean() for one in values])
    return float(spearmanr(x, means).statistic)


def _keys(values: Floats) -> list[str]:
    return [f"{value:g}" for value in values]


def draw_sizes(drawing: Figure, data: Data) -> None:
    """Draw offloading with its range over slots, accuracy, and costs by either error.

    What the text prints is beside it.
    """
    drawing.set_size_inches(8.4, 5.4)
    (offload, accuracy), costs = drawing.subplots(2, 2)
    n, cases = data["sizes"], _keys(data["sizes"])
    for error, look in ERROR_LOOKS.items():
        slots = [
            100.0 * data[f"{error}/{case}/sent_by_slot"].mean(axis=0) for case in cases
        ]
        low, high = zip(*((slot.min(), slot.max()) for slot in slots), strict=True)
        offload.fill_between(n, low, high, color=look.colour, alpha=0.15, linewidth=0)
    offload.hlines(80.0, n[-1] - 6.0, n[-1], color=PRINTED, linestyle=":")
    lines_by_error(offload, data, n, "sent", whole=True)
    offload.set(title="Offloaded (dotted: printed, at least)", xlabel="devices n")
    accuracy.plot(n[[0, -1]], (88.0, 92.0), color=PRINTED, linestyle=":", linewidth=1.2)
    lines_by_error(accuracy, data, n, "accuracy")
    accuracy.set(title="Accuracy (dotted: printed)", xlabel="devices n")
    for ax, error in zip(costs, ERRORS, strict=True):
        cost_bars(ax, cases, [costs_of(data, f"{error}/{case}") for case in cases])
        ax.set(title=f"Cost, {error} error", xlabel="devices n")
    name_costs(costs[0])


def by_error(claims: Callable[[str], list[Claim]]) -> list[Claim]:
    """Rows of either reading of the error: the paper's claims once, by the linear."""
    linear, convex = (claims(error) for error in ERRORS)
    return linear + of_kind(Kind.OWN, convex)


def claims_of_sizes(data: Data) -> list[Claim]:
    """Section V-C on the number of devices, by either reading of the error."""
    return by_error(lambda error: _by_size(data, error))


def _by_size(data: Data, error: str) -> list[Claim]:
    n, cases = data["sizes"], [f"{error}/{case}" for case in _keys(data["sizes"])]
    first, last = _keys(data["sizes"])[:: len(n) - 1]
    few, many = costs_of(data, cases[0]), costs_of(data, cases[-1])
    why = {
        "linear": "a cheaper device is more likely among more devices, and transfers "
        "get cheaper with n as c_ij ~ U(0, 1/n): nothing makes processing dearer",
        "convex": "γ is the same for each device: the more there are, the fewer "
        "samples each trains on, the larger each one's error, and their sum",
    }[error]
    return [
        Claim(
            what=f"{error} error: data offloaded, n = {last}",
            printed="over 80 %",
            ours=mean_of(percent(data, cases[-1], "sent")),
            rule=at_least(80.0, weaker=60.0),
            unit="%",
            digits=0,
            why=why,
        ),
        Claim(
            what=f"{error} error: unit cost steadily decreases with n (rank "
            "correlation)",
            printed="decreases",
            ours=exact(trend(n, [data[f"{case}/unit"] for case in cases])),
            rule=at_most(-0.9, weaker=0.0),
            why=why,
        ),
        *(
            Claim(
                what=f"{error} error: cost of {what}, n = {last} less n = {first}: "
                f"{so}",
                printed="< 0" if rule is LESS else "> 0",
                ours=mean_of(many[:, part] - few[:, part]),
                rule=rule,
                digits=3,
                why=why,
            )
            for part, what, so, rule in (
                (0, "processing", "actually increases", MORE),
                (1, "transfers", "drives the improvement", LESS),
                (2, "discarding", "actually increases", MORE),
            )
        ),
        *(
            Claim(
                what=f"{error} error: accuracy, n = {devices}",
                printed=f"{printed:g} %",
                ours=mean_of(percent(data, case)),
                rule=near(printed, 2.0, weaker=4.0),
                unit="%",
                digits=1,
                why={
                    "linear": "in B nearly all data are trained on by the cheapest one "
                    f"or two devices, however many there are; {WHY_DEAR}",
                    "convex": "the more devices, the fewer steps each makes between "
                    "averages",
                }[error],
            )
            for case, devices, printed in (
                (cases[0], first, 88.0),
                (cases[-1], last, 92.0),
            )
        ),
    ]


def draw_periods(drawing: Figure, data: Data) -> None:
    """Draw costs and accuracies by either error, the linear one at two f."""
    drawing.set_size_inches(8.4, 5.4)
    panels = drawing.subplots(2, 2)
    periods, label = _keys(data["periods"]), "slots between aggregations τ"
    ends, accuracy, places = [], panels[1, 1], np.arange(float(len(periods)))
    looks = {**ERROR_LOOKS, "cheap": plots.LOOKS["fog:windows"]}
    for ax, way, aside in zip(
        panels.flat, ("linear", "cheap", "convex"), (-0.05, 0.0, 0.05), strict=False
    ):
        cases = [f"{way}/{case}" for case in periods]
        cost_bars(ax, periods, [costs_of(data, case) for case in cases])
        name = _way(data, way)
        ax.set(title=f"Cost, {name}", xlabel=label)
        values = [percent(data, case) for case in cases]
        end = line(accuracy, places + aside, values, looks[way])
        ends.append((name.replace(" error", ""), looks[way].colour, end))
    name_costs(panels[0, 0])
    accuracy.set(title="Accuracy", xlabel=label)
    accuracy.set_xticks(places, periods)
    in_percent(accuracy)
    plots.label_ends(accuracy, ends, GAP)


def _way(data: Data, way: str) -> str:
    """Which error, and which f."""
    dear, cheap = data["discards"]
    error, f = ("linear", cheap) if way == "cheap" else (way, dear)
    return f"{error} error, f = {f:g}/√t"


def claims_of_periods(data: Data) -> list[Claim]:
    """Section V-C on the period of aggregation, by either error; another f is ours."""
    return [
        *by_error(lambda error: _costs_by_period(data, error)),
        *of_kind(Kind.OWN, _costs_by_period(data, "cheap")),
        *by_error(lambda error: _right_by_period(data, error)),
    ]


def _costs_by_period(data: Data, way: str) -> list[Claim]:
    cases = _keys(data["periods"])
    few, many = (costs_of(data, f"{way}/{case}") for case in (cases[0], cases[-1]))
    name, change = _way(data, way), f"τ = {cases[-1]} less τ = {cases[0]}"
    why = (
        "f decides: where it is dear at the end of a period, too, nothing is discarded "
        "at any τ; where it is cheap there, less is processed, and less is sent as well"
    )
    return [
        Claim(
            what=f"{name}: unit cost, {change}: smaller",
            printed="< 0",
            ours=mean_of((many - few).sum(axis=1)),
            rule=at_most(-0.01, weaker=0.0),
            digits=3,
            why=why,
        ),
        Claim(
            what=f"{name}: transfer cost, {change}: relatively constant",
            printed="about 0",
            ours=mean_of(many[:, 1] - few[:, 1]),
            rule=near(0.0, 0.005, weaker=0.02),
            digits=3,
            why=why,
        ),
        *(
            Claim(
                what=f"{name}: cost of {what}, {change}: decreases",
                printed="< 0",
                ours=mean_of(many[:, part] - few[:, part]),
                rule=LESS,
                digits=3,
                why=why,
            )
            for part, what in ((0, "processing"), (2, "discarding"))
        ),
    ]


def _right_by_period(data: Data, error: str) -> list[Claim]:
    first, *_, last = _keys(data["periods"])
    right = {case: percent(data, f"{error}/{case}") for case in (first, "20", last)}
    why = (
        "averaging often does not keep a device from making its steps: each goes on "
        "from the mean, and the rarer that is, the farther they drift apart; where one "
        "device has most of the data, as by the linear error, τ is of no account"
    )
    return [
        Claim(
            what=f"{error} error: accuracy, τ = 20 less τ = {first}: improves until "
            "about 20",
            printed="> 0",
            ours=mean_of(right["20"] - right[first]),
            rule=at_least(0.5, weaker=0.0),
            unit="points",
            why=why,
        ),
        Claim(
            what=f"{error} error: accuracy, τ = {last} less τ = 20: not above it",
            printed="< 0",
            ours=mean_of(right[last] - right["20"]),
            rule=at_most(-0.5, weaker=0.0),
            unit="points",
            why=why,
        ),
    ]


def draw_densities(drawing: Figure, data: Data) -> None:
    """Draw what is processed and offloaded, accuracy, and costs by either error."""
    drawing.set_size_inches(8.4, 7.6)
    panels = drawing.subplots(3, 2)
    rho, label = data["densities"], "density of links ρ"
    shares = {
        **data,
        **{
            f"{error}/{case}/processed": 1.0 - data[f"{error}/{case}/discarded"]
            for error, case in product(ERRORS, _keys(rho))
        },
    }
    for ax, title, what in (
        (panels[0, 0], "Processed", "processed"),
        (panels[0, 1], "Offloaded", "sent"),
        (panels[1, 0], "Accuracy", "accuracy"),
    ):
        lines_by_error(ax, shares, rho, what, whole=what != "accuracy")
        ax.set(title=title, xlabel=label)
    for ax, error in zip(panels[2], ERRORS, strict=True):
        cases = [f"{error}/{case}" for case in _keys(rho)]
        cost_bars(ax, _keys(rho), [costs_of(data, case) for case in cases])
        ax.set(title=f"Cost, {error} error", xlabel=label)
    ends = []
    for error, look in ERROR_LOOKS.items():
        discard = np.stack([data[f"{error}/{case}/discard"] for case in _keys(rho)], 1)
        mean, half = mean_interval(discard)
        panels[1, 1].errorbar(
            rho,
            mean,
            half,
            color=look.colour,
            marker=look.marker,
            capsize=2,
            elinewidth=1.0,
        )
        ends.append((error, look.colour, float(mean[-1])))
    panels[1, 1].set(
        title="Cost of discarding",
        xlabel=label,
        ylabel="per sample collected",
        ylim=(0.0, None),
    )
    plots.label_ends(panels[1, 1], ends, GAP)
    name_costs(panels[2, 0])


def claims_of_densities(data: Data) -> list[Claim]:
    """Section V-C on connectivity, by either reading of the error."""
    return by_error(lambda error: _by_density(data, error))


def _by_density(data: Data, error: str) -> list[Claim]:
    rho, cases = data["densities"], [f"{error}/{c}" for c in _keys(data["densities"])]
    sparse, half, whole = (f"{error}/{case}" for case in ("0.2", "0.5", "1"))
    discarded = {c: percent(data, c, "discarded") for c in (sparse, whole)}
    why = (
        "who has no cheap neighbour discards once f/√t is below its own cost, and f is "
        "not printed"
    )
    return [
        Claim(
            what=f"{error} error: unit cost at ρ = 0.2 over ρ = 1: reasonably robust "
            "above 0.1",
            printed="about 1",
            ours=mean_of(data[f"{sparse}/unit"] / data[f"{whole}/unit"]),
            rule=at_most(1.2, weaker=2.0),
            why=why,
        ),
        Claim(
            what=f"{error} error: data offloaded rises with ρ (rank correlation)",
            printed="rises",
            ours=exact(trend(rho, [percent(data, case, "sent") for case in cases])),
            rule=at_least(0.9, weaker=0.0),
            why="which links there are varies from seed to seed",
        ),
        Claim(
            what=f"{error} error: accuracy at ρ = 1 less ρ = 0.5: benefits from "
            "connectivity",
            printed="> 0",
            ours=mean_of(percent(data, whole) - percent(data, half)),
            rule=at_least(0.5, weaker=0.0),
            unit="points",
            digits=1,
            why={
                "linear": WHY_DEAR,
                "convex": "what a device trains on hardly depends on its links, and "
                "steps between averages do not, either",
            }[error],
        ),
        Claim(
            what=f"{error} error: data discarded at ρ = 0.2 less ρ = 1: increases "
            "slightly",
            printed="a little > 0",
            ours=mean_of(discarded[sparse] - discarded[whole]),
            rule=near(5.0, 5.0, weaker=15.0),
            unit="points",
            digits=0,
            why=why,
        ),
        Claim(
            what=f"{error} error: discard cost at ρ = 0.2 less ρ = 1: the opposite "
            "trend",
            printed="< 0",
            ours=mean_of(data[f"{sparse}/discard"] - data[f"{whole}/discard"]),
            rule=LESS,
            digits=3,
            why={
                "linear": "a linear error grows with what is discarded; "
                "the paper names one that falls with what was trained on (Lemma 1)",
                "convex": "what links take from where it is dear they bring to where "
                "it is cheap; how much the errors of both change, f and γ decide",
            }[error],
        ),
    ]


def draw_media(drawing: Figure, data: Data) -> None:
    """Draw costs by topology, a panel for each medium."""
    panels = drawing.subplots(1, 2, sharey=True)
    n = int(data["devices"][0])
    for ax, medium in zip(panels, MEDIA, strict=True):
        costs = [data[f"{n}/{medium}/{topology}"] for topology in TOPOLOGIES]
        cost_bars(ax, TOPOLOGIES, costs)
        ax.set_title(medium)
    name_costs(panels[0])
    panels[1].set_ylabel("")


def table_of_media(data: Data) -> list[list[str]]:
    """Costs of every medium, topology and number of devices."""
    rows = [["devices", "medium", "topology", *COSTS, "unit cost"]]
    for n in data["devices"].astype(int):
        for medium in MEDIA:
            for topology in TOPOLOGIES:
                costs = data[f"{n}/{medium}/{topology}"]
                cells = [shown(part, 3) for part in (*costs.T, costs.sum(axis=1))]
                rows.append([str(n), medium, topology, *cells])
    return rows


def claims_of_media(data: Data) -> list[Claim]:
    """Section V-D, of a model of both media that was made to show it: all is given."""
    n = int(data["devices"][0])
    at = {(m, t): data[f"{n}/{m}/{t}"] for m in MEDIA for t in TOPOLOGIES}
    unit = {key: costs.sum(axis=1) for key, costs in at.items()}
    model = "the traces are not public; of a model made to show what the paper reports"
    social, tree = at["WiFi", "social"], at["WiFi", "hierarchical"]
    lte = unit["LTE", "hierarchical"] - unit["LTE", "social"]
    found = [
        *(
            Claim(
                what=f"{medium}, {topology}: {name} over {other} cost; the largest",
                printed="> 1",
                ours=mean_of(
                    at[medium, topology][:, one] / at[medium, topology][:, two]
                ),
                rule=at_least(1.0),
                why=model,
            )
            for medium, name, other, one, two in (
                ("LTE", "processing", "transfer", 0, 1),
                ("WiFi", "transfer", "processing", 1, 0),
            )
            for topology in TOPOLOGIES
        ),
        *(
            Claim(
                what=f"{topology}: unit cost on WiFi over LTE; substantially higher",
                printed="> 1",
                ours=mean_of(unit["WiFi", topology] / unit["LTE", topology]),
                rule=at_least(1.5, weaker=1.0),
                why=model,
            )
            for topology in TOPOLOGIES
        ),
        Claim(
            what="LTE: unit cost, hierarchical less social, of social's; virtually the "
            "same",
            printed="about 0 %",
            ours=mean_of(100.0 * lte / unit["LTE", "social"].mean()),
            rule=near(0.0, 10.0, weaker=25.0),
            unit="%",
            digits=0,
            why=model,
        ),
        Claim(
            what="WiFi: transfer cost, hierarchical over social; noticeably higher",
            printed="> 1",
            ours=mean_of(tree[:, 1] / social[:, 1]),
            rule=at_least(1.1, weaker=1.0),
            why=model,
        ),
        Claim(
            what="WiFi: discard cost, hierarchical less social; lower",
            printed="< 0",
            ours=mean_of(tree[:, 2] - social[:, 2]),
            rule=at_most(-0.0005, weaker=0.0),
            digits=4,
            why="a device without a link, or with one dear one, discards where that "
            "costs less; in our model nearly nothing is discarded on either",
        ),
    ]
    return of_kind(Kind.GIVEN, found)
