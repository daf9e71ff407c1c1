"""Figs. 5 to 8 of the fog paper: devices, periods, links, media."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy.stats import spearmanr

from melisma.maths import Floats, mean_interval
from melisma.views import plots

from .claims import Claim, Kind, at_least, at_most, exact, mean_of, near, of_kind
from .fog_runs import COSTS, MEDIA, TOPOLOGIES
from .fog_tables import COLOURS, LOOKS, WHY_DEAR, percent, shown
from .kit import Data


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
    ax.grid(visible=False, axis="x")


def name_costs(ax: Axes) -> None:
    """Say which colour is which cost."""
    for name, colour in zip(COSTS, COLOURS, strict=True):
        ax.bar(0, 0, color=colour, label=name)
    ax.figure.legend(loc="outside upper right", ncols=len(COSTS))


def in_percent(ax: Axes, *, whole: bool = False) -> None:
    """Percents on the left, of a ``whole`` from 0 to 100."""
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    if whole:
        ax.set(ylim=(0.0, 105.0), yticks=(0, 25, 50, 75, 100))
    ax.yaxis.set_major_formatter(PercentFormatter(100.0, decimals=0))


def costs_of(data: Data, case: str) -> Floats:
    """Costs of a case by their parts, seeds × COSTS."""
    return np.stack([data[f"{case}/{name}"] for name in COSTS], axis=1)


def line(
    ax: Axes, x: Floats, values: Sequence[Floats], look: plots.Look = LOOKS["B"]
) -> float:
    """Draw means with intervals; return the last."""
    mean, half = mean_interval(np.stack(values, axis=1))
    ax.errorbar(x, mean, half, color=look.colour, marker=look.marker, capsize=2)
    return float(mean[-1])


def trend(x: Floats, values: Sequence[Floats]) -> float:
    """Rank correlation of the means with x."""
    means = np.array([one.mean() for one in values])
    return float(spearmanr(x, means).statistic)


def _keys(values: Floats) -> list[str]:
    return [f"{value:g}" for value in values]


def draw_sizes(drawing: Figure, data: Data) -> None:
    """Draw offloading with its range over slots, costs, and accuracy."""
    drawing.set_size_inches(9.6, 3.0)
    offload, costs, accuracy = drawing.subplots(1, 3)
    n, cases = data["sizes"], _keys(data["sizes"])
    slots = [100.0 * data[f"{case}/sent_by_slot"].mean(axis=0) for case in cases]
    offload.fill_between(
        n,
        [slot.min() for slot in slots],
        [slot.max() for slot in slots],
        color=LOOKS["B"].colour,
        alpha=0.15,
        linewidth=0,
    )
    line(offload, n, [percent(data, case, "sent") for case in cases])
    offload.set(title="Offloaded", xlabel="devices n")
    cost_bars(costs, cases, [costs_of(data, case) for case in cases])
    name_costs(costs)
    costs.set(title="Cost", xlabel="devices n")
    line(accuracy, n, [percent(data, case) for case in cases])
    accuracy.set(title="Accuracy", xlabel="devices n")
    in_percent(offload, whole=True)
    in_percent(accuracy)


def claims_of_sizes(data: Data) -> list[Claim]:
    """Section V-C on the number of devices."""
    n, cases = data["sizes"], _keys(data["sizes"])
    first, last = cases[0], cases[-1]
    few, many = costs_of(data, first), costs_of(data, last)
    why = (
        "a cheaper device is more likely among more devices, and transfers get cheaper "
        "with n as c_ij ~ U(0, 1/n): nothing makes processing dearer"
    )
    return [
        Claim(
            what=f"Data offloaded, n = {last}",
            printed="over 80 %",
            ours=mean_of(percent(data, last, "sent")),
            rule=at_least(80.0, weaker=60.0),
            unit="%",
            digits=0,
            why=why,
        ),
        Claim(
            what="Unit cost steadily decreases with n (rank correlation)",
            printed="decreases",
            ours=exact(trend(n, [data[f"{case}/unit"] for case in cases])),
            rule=at_most(-0.9, weaker=0.0),
            why="what the cheapest device costs varies much from seed to seed",
        ),
        *(
            Claim(
                what=f"Cost of {what}, n = {last} less n = {first}: actually increases",
                printed="> 0",
                ours=mean_of(many[:, part] - few[:, part]),
                rule=at_least(0.005, weaker=0.0),
                digits=3,
                why=why,
            )
            for part, what in ((0, "processing"), (2, "discarding"))
        ),
        *(
            Claim(
                what=f"Accuracy, n = {case}",
                printed=f"{printed:g} %",
                ours=mean_of(percent(data, case)),
                rule=near(printed, 2.0, weaker=4.0),
                unit="%",
                digits=1,
                why="in B nearly all data are trained on by the cheapest one or two "
                f"devices, however many there are; {WHY_DEAR}",
            )
            for case, printed in ((first, 88.0), (last, 92.0))
        ),
    ]


def draw_periods(drawing: Figure, data: Data) -> None:
    """Draw costs in B at two costs of discarding, and accuracies."""
    drawing.set_size_inches(10.2, 3.0)
    dear, cheap, accuracy = drawing.subplots(1, 3)
    cases, label = _keys(data["periods"]), "slots between aggregations τ"
    for ax, name, f in zip(
        (dear, cheap), ("B", "cheap"), data["discards"], strict=True
    ):
        cost_bars(ax, cases, [costs_of(data, f"{name}/{case}") for case in cases])
        ax.set(title=f"Cost, setting B, f = {f:g}/√t", xlabel=label)
    name_costs(cheap)
    ends = []
    for name, text, look in (
        ("B", "B", LOOKS["B"]),
        ("D", "D", LOOKS["D"]),
        ("cheap", f"B, f = {data['discards'][1]:g}/√t", plots.LOOKS["fog:windows"]),
    ):
        values = [percent(data, f"{name}/{case}") for case in cases]
        end = line(accuracy, data["periods"], values, look)
        ends.append((text, look.colour, end))
    accuracy.set(title="Accuracy", xlabel=label, xscale="log")
    accuracy.set_xticks(data["periods"], cases)
    accuracy.minorticks_off()
    in_percent(accuracy)
    plots.label_ends(accuracy, ends)


def claims_of_periods(data: Data) -> list[Claim]:
    """Section V-C on the period of aggregation; a cheaper f and D are readings."""
    dear, cheap = data["discards"]
    return [
        *_costs_by_period(data, "B", dear),
        *of_kind(Kind.OWN, _costs_by_period(data, "cheap", cheap)),
        *_right_by_period(data, "B"),
        *of_kind(Kind.OWN, _right_by_period(data, "D")),
    ]


def _costs_by_period(data: Data, name: str, f: float) -> list[Claim]:
    cases = _keys(data["periods"])
    few, many = (costs_of(data, f"{name}/{case}") for case in (cases[0], cases[-1]))
    change = f"τ = {cases[-1]} less τ = {cases[0]}, f = {f:g}/√t"
    why = (
        "f decides: where it is dear at the end of a period, too, nothing is discarded "
        "at any τ; where it is cheap there, less is processed, and less is sent as well"
    )
    return [
        Claim(
            what=f"Unit cost, {change}: smaller",
            printed="< 0",
            ours=mean_of((many - few).sum(axis=1)),
            rule=at_most(-0.01, weaker=0.0),
            digits=3,
            why=why,
        ),
        Claim(
            what=f"Transfer cost, {change}: relatively constant",
            printed="about 0",
            ours=mean_of(many[:, 1] - few[:, 1]),
            rule=near(0.0, 0.005, weaker=0.02),
            digits=3,
            why=why,
        ),
        *(
            Claim(
                what=f"Cost of {what}, {change}: decreases",
                printed="< 0",
                ours=mean_of(many[:, part] - few[:, part]),
                rule=at_most(-0.005, weaker=0.0),
                digits=3,
                why=why,
            )
            for part, what in ((0, "processing"), (2, "discarding"))
        ),
    ]


def _right_by_period(data: Data, setting: str) -> list[Claim]:
    first, *_, last = _keys(data["periods"])
    right = {case: percent(data, f"{setting}/{case}") for case in (first, "20", last)}
    why = (
        "averaging often does not keep a device from making its steps: each goes on "
        "from the mean, and the rarer that is, the farther they drift apart; in B one "
        "device has most of the data, and τ is of no account"
    )
    return [
        Claim(
            what=f"Accuracy in {setting}, τ = 20 less τ = {first}: improves until "
            "about 20",
            printed="> 0",
            ours=mean_of(right["20"] - right[first]),
            rule=at_least(0.5, weaker=0.0),
            unit="points",
            why=why,
        ),
        Claim(
            what=f"Accuracy in {setting}, τ = {last} less τ = 20: not above it",
            printed="< 0",
            ours=mean_of(right[last] - right["20"]),
            rule=at_most(-0.5, weaker=0.0),
            unit="points",
            why=why,
        ),
    ]


def draw_densities(drawing: Figure, data: Data) -> None:
    """Draw what is processed and offloaded, costs, and accuracy."""
    drawing.set_size_inches(9.6, 5.2)
    (processed, offload), (costs, accuracy) = drawing.subplots(2, 2)
    rho, cases = data["densities"], _keys(data["densities"])
    panels = (
        (
            processed,
            "Processed",
            [100.0 - percent(data, c, "discarded") for c in cases],
        ),
        (offload, "Offloaded", [percent(data, c, "sent") for c in cases]),
        (accuracy, "Accuracy", [percent(data, c) for c in cases]),
    )
    for ax, title, values in panels:
        line(ax, rho, values)
        ax.set(title=title, xlabel="density of links ρ")
        in_percent(ax, whole=ax is not accuracy)
    cost_bars(costs, cases, [costs_of(data, case) for case in cases])
    name_costs(costs)
    costs.set(title="Cost", xlabel="density of links ρ")


def claims_of_densities(data: Data) -> list[Claim]:
    """Section V-C on connectivity."""
    rho, cases = data["densities"], _keys(data["densities"])
    sparse, half, whole = "0.2", "0.5", "1"
    discarded = {c: percent(data, c, "discarded") for c in (sparse, whole)}
    why = (
        "who has no cheap neighbour discards once f/√t is below its own cost, and f is "
        "not printed"
    )
    return [
        Claim(
            what=f"Unit cost at ρ = {sparse} over ρ = 1: reasonably robust above 0.1",
            printed="about 1",
            ours=mean_of(data[f"{sparse}/unit"] / data[f"{whole}/unit"]),
            rule=at_most(1.2, weaker=2.0),
            why=why,
        ),
        Claim(
            what="Data offloaded rises with ρ (rank correlation)",
            printed="rises",
            ours=exact(trend(rho, [percent(data, case, "sent") for case in cases])),
            rule=at_least(0.9, weaker=0.0),
            why="which links there are varies from seed to seed",
        ),
        Claim(
            what="Accuracy at ρ = 1 less ρ = 0.5: benefits from connectivity",
            printed="> 0",
            ours=mean_of(percent(data, whole) - percent(data, half)),
            rule=at_least(0.5, weaker=0.0),
            unit="points",
            digits=1,
            why=WHY_DEAR,
        ),
        Claim(
            what=f"Data discarded at ρ = {sparse} less ρ = 1: increases slightly",
            printed="a little > 0",
            ours=mean_of(discarded[sparse] - discarded[whole]),
            rule=near(5.0, 5.0, weaker=15.0),
            unit="points",
            digits=0,
            why=why,
        ),
        Claim(
            what=f"Discard cost at ρ = {sparse} less ρ = 1: the opposite trend",
            printed="< 0",
            ours=mean_of(data[f"{sparse}/discard"] - data[f"{whole}/discard"]),
            rule=at_most(-0.005, weaker=0.0),
            digits=3,
            why="a linear cost of discarding grows with what is discarded; the paper "
            "names an error that falls with what was trained on (Lemma 1)",
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
