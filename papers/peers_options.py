"""Choosing what travels, in races where links do not bind: is it ever worse?

csa and csa-options alone, each tuned over its own grid, in settings of the league.
Where models take no time, as with FedCompass's silos and Ringleader's workers, nothing
is to be chosen and both do the same, which a test says.
"""

from dataclasses import dataclass

import numpy as np

from melisma.maths import mean_interval

from .claims import Claim, Kind, at_most, mean_of
from .kit import Cells, Data, Spread, in_order
from .peers_entrants import ENTRANTS, Point
from .peers_runs import run_league
from .peers_settings import LeagueStudy
from .peers_views import times_s

PAIR = ("csa", "csa-options")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionsStudy:
    """Every number that the comparison depends on."""

    races: tuple[LeagueStudy, ...]  #: of `PAIR`
    seeds: int  #: of each


def run_options(study: OptionsStudy, spread: Spread = in_order) -> Data:
    """Run the races one after another; results are named by the setting."""
    data: Data = {}
    for race in study.races:
        found = run_league(race, spread)
        data |= {f"{race.setting}/{name}": values for name, values in found.items()}
    return data


def races_in(data: Data) -> dict[str, Data]:
    """Return each setting's results."""
    races: dict[str, Data] = {}
    for key, values in data.items():
        setting, name = key.split("/", 1)
        races.setdefault(setting, {})[name] = values
    return races


def table_of_options(data: Data) -> Cells:
    """Both, setting by setting."""
    rows = [["setting", "algorithm", "tuned", "s to the target", "MB sent"]]
    for setting, race in races_in(data).items():
        for name in PAIR:
            own, work, rate = race[f"{name}/tuned"]
            seconds, half_s = mean_interval(times_s(race, name))
            sent, half = mean_interval(race[f"{name}/sent_bytes"] / 1e6)
            rows.append(
                [
                    setting,
                    name,
                    ENTRANTS[name].told(Point(int(own), int(work), float(rate))),
                    f"{seconds:,.1f} ± {half_s:,.1f}",
                    f"{sent:,.0f} ± {half:,.0f}",
                ]
            )
    return rows


def claims_of_options(data: Data) -> list[Claim]:
    """In no setting may it be later than csa; nothing where neither is there."""
    return [
        Claim(
            what=f"{setting}: time of csa-options over that of csa",
            printed="aim: 1 or less",
            ours=mean_of(times_s(race, "csa-options") / times_s(race, "csa")),
            kind=Kind.OWN,
            rule=at_most(1.0),
            why="what an option is worth is measured once, in the first cycle's place",
        )
        for setting, race in races_in(data).items()
        if any(np.isfinite(race[f"{name}/reached_s"]).any() for name in PAIR)
    ]
