"""Tables II and III of the fog paper, and Fig. 4: what they show and claim."""

from collections.abc import Callable
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
    accuracy.legend(loc="upper right")
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
        amount = "" if np.isnan(collected) else f", {collected:,.0f} samples in all"
        cells = [shown(percent(data, f"{n}/{setting}"), 1) for setting in SETTINGS]
        rows.append([f"accuracy (%): {step}, {passes:g} passes{amount}", *cells])
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
    """Why B is more accurate than A, and what 4,400 samples would do."""

    def reading(batch: int, passes: int, *, few: bool) -> int:
        same = (data["readings"][:, :2] == (batch, passes)).all(axis=1)
        return int(np.flatnonzero(same & (np.isnan(data["readings"][:, 2]) != few))[0])

    eq3, judged, ten, few = (
        reading(1000, 1, few=False),
        reading(10, 1, few=False),
        reading(10, 10, few=False),
        reading(10, 10, few=True),
    )
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
        *(
            Claim(
                what=f"{setting}: accuracy with 4,400 samples, as totals and unit "
                "costs imply, and ten passes",
                printed=f"{SETTINGS_PRINTED[setting][0]:.2f} %",
                ours=mean_of(percent(data, f"{few}/{setting}")),
                rule=accuracy_rule(SETTINGS_PRINTED[setting][0]),
                unit="%",
                digits=1,
                why="batch and passes are a guess, and few seeds leave a wide interval",
            )
            for setting in SETTINGS
        ),
    ]
    return of_kind(Kind.OWN, found)


def draw_losses(drawing: Figure, data: Data) -> None:
    """Draw each device's loss over cycles in B and in D, of the first seed."""
    panels = drawing.subplots(1, 2, sharey=True)
    for ax, setting in zip(panels, "BD", strict=True):
        loss = data[f"{setting}/loss"][0]
        cycles = np.arange(1.0, len(loss) + 1)
        # A device that trains in one cycle alone is a point.
        ax.plot(cycles, loss, color="#999999", linewidth=0.8, marker=".")
        look = LOOKS[setting]
        mean = over_devices(np.mean, loss)
        ax.plot(cycles, mean, color=look.colour, marker=look.marker)
        plots.label_ends(
            ax,
            [("mean", look.colour, ends(mean)[1])],
        )
        ax.set(title=f"setting {setting}", xlabel="aggregation")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    drawing.axes[0].set_ylabel("training loss of a device (nats)")


def claims_of_losses(data: Data) -> list[Claim]:
    """Fig. 4: the average and the variance drop over time, in all devices' losses."""
    loss = data["D/loss"]
    average, variance = (
        np.array([ends(over_devices(what, run)) for run in loss])
        for what in (np.mean, np.var)
    )
    return [
        Claim(
            what="Average loss, last aggregation over first (D)",
            printed="drops",
            ours=mean_of(average[:, 1] / average[:, 0]),
            rule=at_most(0.9, weaker=1.0),
            why="devices with few samples, as on mnist-5k, learn little",
        ),
        Claim(
            what="Variance of losses between devices, last aggregation over first (D)",
            printed="drops",
            ours=mean_of(variance[:, 1] / variance[:, 0]),
            rule=at_most(0.9, weaker=1.0),
            why="all begin from one model, whose losses are alike everywhere; later "
            "few devices train, each on few samples of its own",
        ),
        Claim(
            what="Devices whose loss falls from first to last cycle (D)",
            printed="all tend to decrease",
            ours=mean_of(_falling(loss)),
            rule=at_least(100.0, weaker=90.0),
            unit="%",
            digits=0,
            why="a device may train on a handful of samples in a period, whose mean "
            "loss is then chance",
        ),
    ]


def over_devices(what: Callable[[Floats], float], loss: Floats) -> Floats:
    """Something of those that trained, in each cycle; NaN where nobody did."""
    trained = [row[~np.isnan(row)] for row in loss]
    return np.array([what(row) if row.size else np.nan for row in trained])


def ends(values: Floats) -> tuple[float, float]:
    """The first and the last that there is."""
    known = values[~np.isnan(values)]
    return float(known[0]), float(known[-1])


def _falling(loss: Floats) -> Floats:
    """Share of devices, in % for each seed, whose last loss is below their first.

    >>> _falling(np.array([[[3.0, 1.0, np.nan], [1.0, 2.0, np.nan]]])).tolist()
    [50.0]
    """
    found = []
    for run in loss:
        often = [one for one in run.T if (~np.isnan(one)).sum() > 1]
        falls = [last < first for first, last in map(ends, often)]
        found.append(100.0 * float(np.mean(falls)))
    return np.array(found)
