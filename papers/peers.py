"""The league: algorithms of others and ours on printed settings, by time to target.

melisma papers run peers
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from .claims import Claim
from .kit import Data, Exhibit, Paper
from .peers_options import (
    PAIR,
    OptionsStudy,
    claims_of_options,
    run_options,
    table_of_options,
)
from .peers_runs import run_league
from .peers_settings import EMBEDDED, LeagueStudy
from .peers_views import (
    claims_of_fedprox,
    claims_of_league,
    claims_of_links,
    claims_of_nvflare,
    draw_league,
    summary,
    table_of_league,
)

#: Who is in every race.
ALWAYS = (
    "FedAvg",
    "FedAvgM",
    "FedProx",
    "FedNova",
    "FedAsync",
    "FedBuff",
    "FedCompass",
    "Ringmaster",
    "Ringleader",
)
OURS = ("csa", "dab", "csa, auto")
OF_LEARNERS = ("SCAFFOLD", "FedAdam")  #: where data lies on them
#: Where some of many are chosen.
CHOOSING = ("FedAvg, drops", "TiFL", "Oort")


NVFLARE = LeagueStudy(
    setting="nvflare",
    dataset="cifar10",
    entrants=(*ALWAYS, *OURS),
    learners=16,
    rates=(0.001, 0.0025, 0.006),
    works=(1.0, 0.25),
    target=0.47,
    horizon_s=4932.0,
    tuning=1,
)
FEDCOMPASS = LeagueStudy(
    setting="fedcompass",
    dataset="mnist",
    entrants=(*ALWAYS, *OURS),
    learners=5,
    rates=(0.0003, 0.001, 0.003),
    works=(1.0, 0.25),
    target=0.9,
    horizon_s=120.0,
    every=0.4,
    tuning=3,
)
FEDCOMPASS_10 = replace(
    FEDCOMPASS, setting="fedcompass_dirichlet", learners=10, tuning=1
)
FEDCOMPASS_20 = replace(FEDCOMPASS, learners=20, horizon_s=60.0, tuning=1)
RINGLEADER = LeagueStudy(
    setting="ringleader",
    dataset="mnist",
    entrants=(*ALWAYS, *OURS),
    learners=100,
    rates=(0.05, 0.3, 1.5),
    works=(1.0, 4.0),
    target=0.9,
    horizon_s=2000.0,
    outer=(10.0, 100.0),
    momentum=0.9,
    every=5,
    tuning=1,
)
FEDPROX = LeagueStudy(
    setting="fedprox",
    dataset="mnist",
    entrants=(
        "FedAvg",
        "FedAvgM",
        "FedProx",
        "FedNova",
        *OF_LEARNERS,
        *CHOOSING,
        *OURS,
    ),
    learners=1000,
    rates=(0.03, 0.1, 0.3),
    works=(1.0, 0.2),
    target=0.8,
    horizon_s=5_000.0,
    tuning=1,
)
FEDNOVA = LeagueStudy(
    setting="fednova",
    dataset="cifar10",
    entrants=(*ALWAYS, *OF_LEARNERS, *OURS),
    learners=16,
    rates=(0.001, 0.003, 0.01),
    works=(1.0, 0.5),
    target=0.4,
    horizon_s=2200.0,
    tuning=1,
)
TESTBED = LeagueStudy(
    setting="testbed",
    dataset="mnist",
    entrants=(*ALWAYS, *OURS),
    learners=12,
    rates=(0.1, 0.3, 1.0),
    works=(1.0, 0.2),
    target=0.95,
    horizon_s=12.0,
    every=0.25,
    tuning=1,
)
THOUSAND = LeagueStudy(
    setting="thousand",
    dataset="mnist",
    entrants=(*ALWAYS, *OF_LEARNERS, *CHOOSING, *OURS),
    learners=1000,
    rates=(0.1, 0.3, 1.0),
    works=(1.0, 0.5),
    target=0.9,
    horizon_s=400.0,
    tuning=1,
)


LINKS = LeagueStudy(
    setting="links",
    dataset="mnist",
    entrants=(
        *("FedAvg", "FedAvgM", "FedProx", "FedBuff", "BCRS", "HeteroFL"),
        *(*OURS, "csa-options"),
    ),
    learners=20,
    rates=(0.03, 0.1, 0.3),
    works=(1.0, 0.5),
    target=0.95,
    horizon_s=1200.0,
    tuning=1,
)


def options_of(*races: LeagueStudy) -> OptionsStudy:
    """Return the same races of `PAIR` alone."""
    alone = tuple(replace(race, entrants=PAIR) for race in races)
    return OptionsStudy(races=alone, seeds=races[0].seeds)


OPTIONS = options_of(TESTBED, FEDPROX)


def quick(study: LeagueStudy, **changes: Any) -> LeagueStudy:
    """Return a look at a race: few entrants and seeds, on the embedded digits."""
    usual = ("FedAvg", "FedBuff", "csa")
    few = tuple(name for name in usual if name in study.entrants)
    small: dict[str, Any] = {
        "dataset": EMBEDDED,
        "entrants": few,
        "rates": study.rates[1:2],
        "seeds": 2,
        "tuning": 1,
        "learners": min(study.learners, 30),
    }
    return replace(study, **small | changes)


def exhibit_of(
    study: LeagueStudy,
    title: str,
    caption: str,
    *,
    name: str = "",
    claims: Callable[[Data], list[Claim]] = claims_of_league,
    **changes: Any,
) -> Exhibit[LeagueStudy]:
    """Return a race as an exhibit; ``changes`` are those of its quick study."""
    name = name or study.setting
    return Exhibit(
        kind="Setting",
        name=name,
        title=title,
        file=name,
        caption=caption + " Target {target:g} by {horizon_s:g} s; mean and 95 % "
        "interval of {seeds} seeds; ours in bold. In the picture, the best of ours, "
        "the four best of theirs, and FedAvg.",
        quick=quick(study, **changes),
        full=study,
        run=run_league,
        draw=draw_league,
        table=table_of_league,
        claims=claims,
    )


PAPER = Paper(
    key="peers",
    summary=summary,
    title="The league: time to target beside other systems' algorithms",
    citation="Settings that others printed, and three of our own; algorithms of others "
    "as they are in [docs/aggregation.md](../aggregation.md) and "
    "[docs/asynchronous.md](../asynchronous.md), held against independent "
    "implementations in tests.",
    differences=(
        "Every algorithm has up to twelve points to choose from, ours no more than "
        "theirs: three rates of learning, two amounts of work in a round (ours: the "
        "deadline T* by which that much is done by all together, if nobody idles), and "
        "settings of its own; the column *tuned* has the one that was soonest on seeds "
        "that are not raced (`tuning` in a study).",
        "Times are interpolated between evaluations; a run that does not reach the "
        "target by the horizon counts as the horizon. *At the end* is the accuracy at "
        "the horizon: of algorithms that were tuned to be soon, not to end "
        "well.",
        "Asynchronous algorithms are evaluated after every K·`every` updates of K "
        "learners: what they reach before the first of these counts as reached then.",
        "NVFlare's edge example: 20,000 of 50,000 images, so 1,250 in a task in place "
        "of 3,125, as long as printed; times spread by 1 %, the network's too.",
        "FedCompass: three of eighteen combinations, all at exponential speeds, none "
        "faster than 15 ms a step. Among five silos the best of ours is sooner than "
        "FedProx in the mean and on seven seeds of ten, and up to four times as late "
        "on the others. On the two of these that were looked at, the fastest silo does "
        "ten times the slowest one's work, on classes of its own, which may be why: "
        "FedProx's all do the same, as far as time allows, and end better.",
        "Ringleader: times spread log-normally by 10 %, in place of added half-normal "
        "noise; a shorter horizon; gradients of every sixth training sample. The paper "
        "shows ‖∇f‖² alone, which is small as well for a network that has died and "
        "says the same of every image: raced by it, Ringmaster came first with "
        "one that was right on 21 % of them, on the seed that was looked at. Accuracy "
        "decides here, and ‖∇f‖² stands beside it. Two things were chosen by hand, on "
        "the seed of tuning: outer rates of Ringmaster and Ringleader, and for ours "
        "DiLoCo's momentum of 0.9 in place of 0.5, with which csa was later. csa's and "
        "dab's cycles last 19 s; auto's as long as nearly all need for two batches, "
        "which is too long.",
        "FedProx prints no times: a round has 100 s here, of which models travel for "
        "10, and less with less work; a straggler's epochs are a state that is drawn "
        "in each round. Asynchronous schemes take no states. Its dropping of "
        "stragglers ends a run here as soon as a round has nobody left. Speeds are "
        "drawn anew in each round, so there is nothing to plan by: the best of ours is "
        "first by less than chance, and SCAFFOLD and TiFL, whose accuracy goes up and "
        "down less, end better.",
        "FedNova: the strided LeNet in place of VGG-11; a client's epochs, drawn once, "
        "are its speed. FedNova stands still there at rates from 0.001 to 0.03. This "
        "may be why: on the seed that was looked at, Dirichlet(0.1) gives a client 52 "
        "of 20,000 images, and its two steps are stretched to the length of all "
        "others', so that its change counts 0.92, that of the largest, with 3,344, "
        "0.085. "
        "SCAFFOLD diverges there, for reasons that were not looked for.",
        "A thousand devices with about sixty images each: Ringmaster is first, and "
        "would be sooner by far with a greater η than it may choose from: on the seed "
        "of tuning 53 s at K·η = 10, in place of 98. This may be why: it adds every "
        "change as it comes, so that a round of all is a thousand small moves, each "
        "learnt from a model a round old at most, and ten times as long together as "
        "the mean of all; a deadline makes one move of their mean, which cannot be so "
        "long. With DiLoCo's momentum of 0.9 csa takes 87 s there, and at a rate of 2 "
        "in place of 0.7 it learns nothing. Where devices are many, have little data "
        "and may all be trusted, take `async:ringmaster`. auto waits until nearly all "
        "have time for two batches, which is far too long here.",
        "Slow links: BCRS without its overlap-weighted mean, shares of 1 to 100 %; "
        "HeteroFL's widths by who is slower. csa-options has six codecs to choose "
        "from, and T* of models in eight bits.",
        "In the race of NVFlare's devices csa had to give out all samples, which only "
        "its longer deadline had time for, and neither csa nor dab could choose "
        "FedNova's weights.",
    ),
    exhibits=(
        exhibit_of(
            NVFLARE,
            "NVFlare's edge example",
            "{learners} devices of three speeds, {dataset}, LeNet with strides.",
            claims=claims_of_nvflare,
            learners=16,
            target=0.8,
            horizon_s=2500.0,
            rates=(0.003,),
        ),
        exhibit_of(
            FEDCOMPASS,
            "FedCompass's MNIST",
            "{learners} silos of exponential speeds, a few classes each, {dataset}.",
            claims=partial(
                claims_of_league,
                why="the mean of the seeds' ratios: see the differences",
            ),
            target=0.8,
            horizon_s=20.0,
        ),
        exhibit_of(
            FEDCOMPASS_10,
            "FedCompass's MNIST, ten silos by two Dirichlets",
            "{learners} silos of exponential speeds, {dataset} by two Dirichlets.",
            name="fedcompass10",
            target=0.5,
            horizon_s=20.0,
        ),
        exhibit_of(
            FEDCOMPASS_20,
            "FedCompass's MNIST, twenty silos",
            "{learners} silos of exponential speeds, a few classes each, {dataset}.",
            name="fedcompass20",
            target=0.8,
            horizon_s=20.0,
        ),
        exhibit_of(
            RINGLEADER,
            "Ringleader's workers",
            "{learners} workers, the k-th taking k s for a gradient of four samples; "
            "{dataset}, Dirichlet(0.1), as much for all.",
            horizon_s=500.0,
            target=0.6,
        ),
        exhibit_of(
            FEDPROX,
            "FedProx's stragglers",
            "{learners} phones with two classes each, ten a round, of which nine do "
            "one to nine epochs of ten; logistic regression, {dataset}.",
            claims=claims_of_fedprox,
            entrants=("FedAvg", "FedProx", "csa"),
            learners=100,
            horizon_s=2000.0,
            target=0.5,
        ),
        exhibit_of(
            FEDNOVA,
            "FedNova's unequal epochs",
            "{learners} clients, {dataset} by Dirichlet(0.1), two to four epochs in "
            "100 s.",
            learners=16,
            target=0.6,
        ),
        exhibit_of(
            TESTBED,
            "The thesis's devices",
            "{learners} devices from a Raspberry Pi to a graphics card, to which "
            "shards of {dataset} are sent.",
            learners=12,
            target=0.85,
            horizon_s=3.0,
        ),
        exhibit_of(
            THOUSAND,
            "A thousand devices",
            "{learners} devices whose speeds and links are log-normal over two orders "
            "of magnitude; {dataset} by Dirichlet(0.3).",
            claims=partial(
                claims_of_league,
                why="many small moves in place of a large one: see the differences",
            ),
            learners=100,
            target=0.7,
        ),
        exhibit_of(
            LINKS,
            "Slow links",
            "{learners} devices with log-normal speeds and links of about 3 MB/s, over "
            "which a model of 36.7 MB travels; {dataset} by Dirichlet(0.5).",
            claims=claims_of_links,
            learners=10,
            entrants=("FedAvg", "BCRS", "HeteroFL", "csa", "csa-options"),
            target=0.8,
            horizon_s=800.0,
        ),
        Exhibit(
            kind="Setting",
            name="options",
            title="Choosing what travels where links do not bind",
            file="options",
            caption="csa and csa-options alone in races from above, each tuned; mean "
            "and 95 % interval of {seeds} seeds.",
            quick=options_of(
                quick(TESTBED, learners=12, target=0.85, horizon_s=3.0),
                quick(THOUSAND, learners=100, target=0.7),
            ),
            full=OPTIONS,
            run=run_options,
            table=table_of_options,
            claims=claims_of_options,
        ),
    ),
)
