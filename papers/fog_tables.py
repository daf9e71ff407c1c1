"""Tables II and III of the fog paper, and Fig. 4: what they show and claim."""

from itertools import product

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from melisma.maths import Floats, mean_interval
from melisma.views import plots

from .claims import Claim, Kind, Rule, at_least, at_most, by, mean_of, near, of_kind
from .fog_runs import COSTS, METHODS, SETTINGS
from .kit import Data

#: Table II: accuracies in %.
METHODS_PRINTED = {
    "FogMLP": {"central": 92.58, "federated": 90.33, "aware": 90.34},
    "FogCNN": {"central": 98.39, "federated": 96.81, "aware": 96.49},
}
NAMES = {"FogMLP": "MLP", "FogCNN": "CNN"}
#: Table III: accuracy in %, costs of processing, transfers and discarding, unit cost.
SETTINGS_PRINTED = {
    "A": (82.89, (2078.0, 0.0, 0.0), 0.48),
    "B": (90.24, (367.0, 620.0, 166.0), 0.26),
    "C": (89.24, (326.0, 606.0, 67.0), 0.23),
    "D": (82.10, (225.0, 835.0, 14.0), 0.24),
}
LOOKS = {
    "A": plots.LOOKS["fog:alone"],
    "B": plots.LOOKS["fog:known"],
    "C": plots.LOOKS["fog:windows"],
    "D": plots.LOOKS["fog"],
}
#: Colours of COSTS, as everywhere.
COLOURS = tuple(plots.COSTS.values())

WHY_STEPS = (
    "the mean of ten models that each saw a tenth of the data has moved a tenth as "
    "far as one model that saw all: what counts is steps between averages"
)
WHY_DEAR = (
    "where chance makes no device cheap nearly all is discarded, and one such seed "
    "widens the interval"
)
WHY_COSTS = (
    "the printed setting cannot give it: printed transfers are 0.14 a sample and more, "
    "while c_ij ~ U(0, 1/10); nor is f printed"
)


def accuracy_rule(printed: float) -> Rule:
    """Within two points; four are weaker."""
    return near(printed, 2.0, weaker=4.0)


def percent(data: Data, case: str, what: str = "accuracy") -> Floats:
    """A share in %, one for each seed."""
    return 100.0 * data[f"{case}/{what}"]


def shown(values: Floats, digits: int) -> str:
    """Mean and 95 % interval as text."""
    mean, half = mean_interval(values)
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def table_of_methods(data: Data) -> list[list[str]]:
    """Accuracy by method and passes, printed ones beside."""
    models = [m for m in METHODS_PRINTED if f"{m}/aware/accuracy" in data]
    rows = [["method, passes", *(f"{NAMES[m]} (%)" for m in models)]]
    for method in METHODS:
        ways = [f"{method}/{p:g}" for p in data["passes"] if method != "aware"]
        for way in ways or [method]:
            cells = [shown(percent(data, f"{m}/{way}"), 1) for m in models]
            rows.append([way.replace("/", ", "), *cells])
        printed = [f"{METHODS_PRINTED[m][method]}" for m in models]
        rows.append([f"{method}, printed", *printed])
    return rows


def claims_of_methods(data: Data) -> list[Claim]:
    """Table II and the sentence on it."""
    p = int(data["converged"])
    found = []
    for model, printed in METHODS_PRINTED.items():
        if f"{model}/aware/accuracy" not in data:
            continue
        ours = {
            "central": percent(data, f"{model}/central/{p}"),
            "federated": percent(data, f"{model}/federated/{p}"),
            "aware": percent(data, f"{model}/aware"),
        }
        found += [
            Claim(
                what=f"{NAMES[model]}: accuracy, {method}",
                printed=f"{printed[method]} %",
                ours=mean_of(ours[method]),
                rule=accuracy_rule(printed[method]),
                unit="%",
                digits=1,
                why="neither network, nor batch, nor passes are printed; see the "
                "differences",
            )
            for method in ours
        ]
        found += [
            Claim(
                what=f"{NAMES[model]}: network-aware less federated",
                printed=f"{printed['aware'] - printed['federated']:+.2f} points: "
                "matches",
                ours=mean_of(ours["aware"] - ours["federated"]),
                rule=near(0.0, 1.0, weaker=2.0),
                unit="points",
                digits=1,
                why=WHY_STEPS,
            ),
            Claim(
                what=f"{NAMES[model]}: central less network-aware",
                printed=f"{printed['central'] - printed['aware']:.2f} points: only 2 "
                "% worse",
                ours=mean_of(ours["central"] - ours["aware"]),
                rule=at_most(2.0, weaker=4.0),
                unit="points",
                digits=1,
                why="central learning passes over the data as often as the study "
                "says, network-aware learning once",
            ),
        ]
    return found


def printed_costs(setting: str) -> tuple[Floats, float]:
    """Table III's costs by the sample, and samples: total over unit cost."""
    _, costs, unit = SETTINGS_PRINTED[setting]
    samples = sum(costs) / unit
    return np.array(costs) / samples, samples


def draw_settings(drawing: Figure, data: Data) -> None:
    """Unit costs by their parts and accuracies, printed ones beside."""
    drawing.set_size_inches(8.0, 3.2)
    costs, accuracy = drawing.subplots(1, 2, width_ratios=(1.3, 1))
    for x, setting in enumerate(SETTINGS):
        ours = np.stack([data[f"{setting}/{name}"] for name in COSTS], axis=1)
        unit, half = mean_interval(data[f"{setting}/unit"])
        for place, parts, alpha in (
            (x - 0.19, ours.mean(axis=0), 1.0),
            (x + 0.19, printed_costs(setting)[0], 0.45),
        ):
            low = np.cumsum(parts) - parts
            for part, bottom, colour in zip(parts, low, COLOURS, strict=True):
                costs.bar(place, part, 0.34, bottom, color=colour, alpha=alpha)
        costs.errorbar(x - 0.19, unit, half, color="black", capsize=3, linewidth=1.2)
        mean, half = mean_interval(percent(data, setting))
        look = LOOKS[setting]
        accuracy.errorbar(
            x, mean, half, color=look.colour, marker=look.marker, capsize=3
        )
        accuracy.hlines(
            SETTINGS_PRINTED[setting][0], x - 0.3, x + 0.3, color="#D55E00", linewidth=1
        )
    for name, colour in zip(COSTS, COLOURS, strict=True):
        costs.bar(0, 0, color=colour, label=name)
    costs.legend(title="left: ours, right and pale: printed")
    costs.set(title="Cost", ylabel="cost per sample collected")
    costs.set_ylim(bottom=0.0)
    accuracy.hlines([], 0, 0, color="#D55E00", linewidth=1, label="printed")
    accuracy.legend(loc="lower left")
    accuracy.set(title="Accuracy")
    accuracy.yaxis.set_major_locator(MaxNLocator(integer=True))
    accuracy.yaxis.set_major_formatter(PercentFormatter(100.0, decimals=0))
    for ax in (costs, accuracy):
        ax.set_xticks(range(len(SETTINGS)), list(SETTINGS))
        ax.set_xlabel("setting")
        ax.grid(visible=False, axis="x")


def table_of_settings(data: Data) -> list[list[str]]:
    """Table III by the sample, ours and printed."""
    heading = ["setting", "", "accuracy (%)", "median", *COSTS, "unit cost", "samples"]
    rows = [heading]
    for setting, (accuracy, _, unit) in SETTINGS_PRINTED.items():
        costs, samples = printed_costs(setting)
        rows.append(
            [
                setting,
                "ours",
                shown(percent(data, setting), 1),
                f"{np.median(percent(data, setting)):.1f}",
                *(shown(data[f"{setting}/{name}"], 3) for name in (*COSTS, "unit")),
                f"{data[f'{setting}/collected'].mean():,.0f}",
            ]
        )
        parts = [f"{part:.3f}" for part in costs]
        printed = ["printed", f"{accuracy:.1f}", "", *parts, f"{unit:.2f}"]
        rows.append([setting, *printed, f"{samples:,.0f} (total / unit cost)"])
    return rows


def claims_of_settings(data: Data) -> list[Claim]:
    """Table III and the text on it."""
    return [
        *(_accuracy(data, setting) for setting in SETTINGS),
        *(claim for setting in SETTINGS for claim in _costs(data, setting)),
        *_comparisons(data),
    ]


def _accuracy(data: Data, setting: str) -> Claim:
    printed = SETTINGS_PRINTED[setting][0]
    return Claim(
        what=f"{setting}: accuracy",
        printed=f"{printed:.2f} %",
        ours=mean_of(percent(data, setting)),
        rule=accuracy_rule(printed),
        unit="%",
        digits=1,
        why=f"{WHY_STEPS if setting == 'A' else WHY_DEAR}; batch and passes are not "
        "printed, and see the other readings",
    )


def _costs(data: Data, setting: str) -> list[Claim]:
    _, totals, unit = SETTINGS_PRINTED[setting]
    costs, _ = printed_costs(setting)
    # A only processes: that is its unit cost.
    parts = [] if setting == "A" else list(zip(COSTS, totals, costs, strict=True))
    found = [
        Claim(
            what=f"{setting}: {name} cost per sample",
            printed=f"{whole:g} in all: {part:.3f}",
            ours=mean_of(data[f"{setting}/{name}"]),
            rule=near(round(float(part), 3), 0.02, weaker=0.05),
            digits=3,
            why=WHY_COSTS,
        )
        for name, whole, part in parts
    ]
    found.append(
        Claim(
            what=f"{setting}: unit cost",
            printed=f"{unit}",
            ours=mean_of(data[f"{setting}/unit"]),
            rule=near(unit, 0.02, weaker=0.1),
            digits=3,
            why=WHY_COSTS,
        )
    )
    return found


def _comparisons(data: Data) -> list[Claim]:
    unit = {setting: data[f"{setting}/unit"] for setting in SETTINGS}
    right = {setting: percent(data, setting) for setting in SETTINGS}
    return [
        Claim(
            what="Unit cost saved from A to B",
            printed="46 %",
            ours=mean_of(100.0 * (1.0 - unit["B"] / unit["A"])),
            rule=by(46.0),
            unit="%",
            digits=0,
            why=WHY_COSTS,
        ),
        Claim(
            what="Unit cost of C less that of B: minor changes",
            printed="-0.03",
            ours=mean_of(unit["C"] - unit["B"]),
            rule=near(0.0, 0.03, weaker=0.06),
            digits=3,
            why="the first window has no averages to go by, and works alone",
        ),
        Claim(
            what="Unit cost saved from A to D: significantly lower",
            printed="50 %",
            ours=mean_of(100.0 * (1.0 - unit["D"] / unit["A"])),
            rule=by(50.0),
            unit="%",
            digits=0,
            why="what capacities do not let through is discarded at f, which is not "
            "printed",
        ),
        Claim(
            what="Accuracy of B less that of A: improves",
            printed="7.35 points",
            ours=mean_of(right["B"] - right["A"]),
            rule=by(7.35),
            unit="points",
            digits=1,
            why=WHY_STEPS,
        ),
        Claim(
            what="Accuracy of B less that of C: minor changes",
            printed="1.00 points",
            ours=mean_of(right["B"] - right["C"]),
            rule=near(0.0, 1.0, weaker=2.0),
            unit="points",
            digits=1,
            why="the first window of C works alone, with few steps between averages; "
            + WHY_DEAR,
        ),
        Claim(
            what="Accuracy of A less that of D: comparable, A above",
            printed="0.79 points",
            ours=mean_of(right["A"] - right["D"]),
            rule=near(0.79, 2.0, weaker=4.0),
            unit="points",
            digits=1,
            why="D discards more than A, which discards nothing, but still collects "
            f"samples on few devices, and these make more steps between averages; "
            f"{WHY_DEAR}",
        ),
    ]


def table_of_readings(data: Data) -> list[list[str]]:
    """Accuracies by batch, passes and samples; unit costs by f and how costs last."""
    rows = [["reading", *SETTINGS]]
    for n, (batch, passes, collected) in enumerate(data["readings"]):
        step = f"batch {batch:g}" if batch < 1000 else "one gradient a slot, Eq. (3)"
        half = np.isnan(collected)
        amount = "half of the training set" if half else f"{collected:,.0f} samples"
        cells = [shown(percent(data, f"{n}/{setting}"), 1) for setting in SETTINGS]
        often = "once" if passes == 1 else f"{passes:g} times"
        rows.append([f"accuracy (%): {step}, {often} over {amount}", *cells])
    rows.append(["accuracy (%): printed", *_printed(0)])
    for (s, lasting), (k, f) in product(
        enumerate(("once", "for each slot")), enumerate(data["discards"])
    ):
        cells = [shown(draws, 3) for draws in data["unit_costs"][s, k]]
        rows.append([f"unit cost: f = {f:g}/√t, costs drawn {lasting}", *cells])
    rows.append(["unit cost: printed", *_printed(2)])
    return rows


def _printed(column: int) -> list[str]:
    return [f"{SETTINGS_PRINTED[setting][column]}" for setting in SETTINGS]


def claims_of_readings(data: Data) -> list[Claim]:
    """Why B is more accurate than A, where all samples are collected."""

    def reading(batch: int, passes: int) -> int:
        same = (data["readings"][:, :2] == (batch, passes)).all(axis=1)
        return int(np.flatnonzero(same & np.isnan(data["readings"][:, 2]))[0])

    eq3, judged, ten = reading(1000, 1), reading(10, 1), reading(10, 10)
    found = [
        Claim(
            what="Larger samples make B's gradients better than A's: accuracy gained, "
            "one gradient a slot, as in Eq. (3)",
            printed="7.35 points",
            ours=mean_of(percent(data, f"{eq3}/B") - percent(data, f"{eq3}/A")),
            rule=by(7.35),
            unit="points",
            digits=1,
            why="a step over more samples is a little truer and no longer; a hundred "
            "steps of 0.01 do not get far",
        ),
        Claim(
            what="What is left of B's gain where A passes ten times, for as many steps",
            printed="7.35 points",
            ours=mean_of(percent(data, f"{judged}/B") - percent(data, f"{ten}/A")),
            rule=by(7.35),
            unit="points",
            digits=1,
            why="B is above A by its steps between averages, not by its samples",
        ),
    ]
    return of_kind(Kind.OWN, found)


def draw_losses(drawing: Figure, data: Data) -> None:
    """Draw devices' losses in B and in D, and how they vary between devices."""
    drawing.set_size_inches(9.6, 3.2)
    *panels, apart = drawing.subplots(1, 3)
    ends = []
    for ax, setting in zip(panels, "BD", strict=True):
        loss, look = data[f"{setting}/loss"], LOOKS[setting]
        cycles = np.arange(1.0, loss.shape[1] + 1)
        ax.plot(cycles, loss[0], color="#999999", linewidth=0.8)
        for where, values in ((ax, loss.mean(axis=2)), (apart, loss.var(axis=2))):
            mean, half = mean_interval(values)
            # Seeds' variances spread over decades: a mean has no lower end there.
            low = mean if where is apart else mean - half
            where.plot(cycles, mean, color=look.colour, marker=look.marker)
            where.fill_between(
                cycles, low, mean + half, color=look.colour, alpha=0.2, linewidth=0
            )
        ax.set(title=f"Setting {setting}", ylim=(0.0, 2.5))
        ends.append((setting, look.colour, float(mean[-1])))
    apart.set(title="Variance between devices", yscale="log")
    plots.label_ends(apart, ends)
    for ax in drawing.axes:
        ax.set_xlabel("aggregation")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].set_ylabel("loss of a device on its data (nats)")
    apart.set_ylabel("nats²")


def claims_of_losses(data: Data) -> list[Claim]:
    """Fig. 4: the average and the variance drop over time, in all devices' losses."""
    return [claim for setting in "BD" for claim in _losses(data, setting)]


def _losses(data: Data, setting: str) -> list[Claim]:
    first, last = data[f"{setting}/loss"][:, 0], data[f"{setting}/loss"][:, -1]
    return [
        Claim(
            what=f"{setting}: average loss, last aggregation over first",
            printed="drops",
            ours=mean_of(last.mean(axis=1) / first.mean(axis=1)),
            rule=at_most(0.9, weaker=1.0),
            why="devices with few samples, as on mnist-5k, learn little",
        ),
        Claim(
            what=f"{setting}: variance of losses between devices, last aggregation "
            "over first",
            printed="drops",
            ours=mean_of(last.var(axis=1) / first.var(axis=1).mean()),
            rule=at_most(0.9, weaker=1.0),
            why="at first devices' models are near to the one that all began with, "
            "whose losses are alike everywhere; later each fits what it trained on",
        ),
        Claim(
            what=f"{setting}: devices whose loss falls from first to last aggregation",
            printed="all tend to decrease",
            ours=mean_of(100.0 * (last < first).mean(axis=1)),
            rule=at_least(100.0, weaker=90.0),
            unit="%",
            digits=0,
            why=f"a run may learn nothing: {WHY_DEAR}",
        ),
    ]
