"""Two-stage coded federated edge learning: figures 5 and 6, and what stands behind."""

from dataclasses import replace
from typing import Any

from torch import nn

from .kit import Exhibit, Main, Paper
from .tsdcfl_fairness import (
    claims_of_fairness,
    claims_of_queues,
    claims_of_tradeoff,
    draw_fairness,
    draw_queues,
    draw_tradeoff,
    table_of_fairness,
    table_of_tradeoff,
)
from .tsdcfl_harvest import (
    HarvestStudy,
    claims_of_harvest,
    run_harvest,
    table_of_harvest,
)
from .tsdcfl_live import EXHIBIT as TESTBED
from .tsdcfl_rounding import claims_of_rounding, run_rounding, table_of_rounding
from .tsdcfl_theory import (
    TheoryStudy,
    claims_of_theory,
    draw_theory,
    run_theory,
    table_of_theory,
)
from .tsdcfl_times import (
    TimesStudy,
    claims_of_times,
    draw_times,
    run_times,
    table_of_times,
)
from .tsdcfl_tolerance import (
    ToleranceStudy,
    claims_of_tolerance,
    run_tolerance,
    table_of_tolerance,
)
from .tsdcfl_training import (
    TrainingStudy,
    claims_of_training,
    draw_training,
    run_training,
    table_of_training,
)
from .tsdcfl_transmission import TransmissionStudy, run_transmission
from .tsdcfl_uploads import (
    UploadsStudy,
    claims_of_uploads,
    run_uploads,
    table_of_uploads,
)


def small_cnn() -> nn.Module:
    """A small convolutional network for CIFAR-10, where minutes count."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 10),
    )


# In full for a GPU (MELISMA_DEVICE=cuda).
MNIST = TrainingStudy(dataset="mnist", model="TwoNN", anew=1_000)
CIFAR = TrainingStudy(dataset="cifar10", model="CifarCNN", anew=1_000)


def quick(study: TrainingStudy, **changes: Any) -> TrainingStudy:
    """Return a look at a training: a quarter of the batch, few iterations and seeds."""
    small: dict[str, Any] = {
        "samples": 192,
        "iterations": 400,
        "every": 10,
        "tested": 500,
        "seeds": 5,
        "anew": 80,
        "checked": 5,
    }
    return replace(study, **small | changes)


MNIST_QUICK = quick(MNIST)
CIFAR_QUICK = quick(CIFAR, model="melisma_papers.tsdcfl:small_cnn")
CIFAR_EMBEDDED = replace(CIFAR_QUICK, dataset="mnist-5k", model="FogMLP")
#: Iterations after which rounding shows.
ROUNDED = 200
TRAINING = (
    "{model} on {dataset}, {iterations:,} iterations of {samples} samples in float64, "
    "rate {rate:g}, momentum {momentum:g}; mean and 95 % interval of {seeds} seeds. CR "
    "and FR: cyclic and fractional repetition, told s; TSDCFL: the paper's scheme; "
    "ours: all start, and the finished help. Told: s and the speeds, M₁ and T_comp the "
    "best; predicted: all that, and who starts, from what earlier iterations of the "
    "run showed, planned anew after as many iterations as came before, {anew} at most. "
    "The target is {target:.0%} of the accuracy in the end. Models are compared after "
    "{checked} iterations."
)
TRANSMISSION = TransmissionStudy()


PAPER = Paper(
    key="tsdcfl",
    title="TSDCFL: two-stage coded federated edge learning",
    citation='X. Wang, X. Zhong, J. Ning, H. Li, T. Yang, Y. Yang, "Two-Stage Coded '
    'Federated Edge Learning: A Dynamic Partial Gradient Coding Perspective".',
    differences=(
        "The text prints no number of Figures 5 and 6: claims are what it says of "
        "them (the same, lower, better). Values marked *prototype*, *expected* and "
        "*theory* are those of this project's specification.",
        "Time is virtual, in units of the ideal iteration (nobody straggles, all work "
        "is shared out perfectly); gradients are real, encoded and decoded. A "
        "straggler is 8 times slower for a whole iteration, or dead; speeds vary by 5 "
        "%. The paper had seven machines, and does not say how slow its stragglers "
        "were.",
        "An epoch of the paper is one iteration, as in its formulas. One of 768 "
        "samples has a batch of 128, as printed, for each of six partitions; the quick "
        "studies have 32 for each. The paper names 10,000 iterations, which the full "
        "studies have, and an initial rate of 0.01, which stays here; momentum and "
        "networks are our choice.",
        "CIFAR-10 is two of its five training batches, 20,000 of 50,000 images, and "
        "all 10,000 of the test set, of which a study evaluates as many as it says.",
        "All schemes descend along the same gradients, as the paper says of them. So "
        "one descent is trained for all of them, by the plain sum and in float64; each "
        "scheme's own gradients, encoded and decoded, are descended along for some "
        "iterations, and its model held against the plain one.",
        "Stragglers are predicted from history, as the paper has it, in the rows that "
        "its claims are held against (*predicted*): each run begins with an empty "
        "history and equal loads, and plans by nothing but the answers that came "
        "before, as training does (`foreseen` of [choice.py](../../src/melisma/"
        "coding/choice.py)): s, speeds, T_comp, M₁ and who starts, which the paper "
        "draws at random. A plan lasts longer than in training, which plans anew after "
        "10 iterations.",
        "Rows that are *told* know s, the number of stragglers, and the speeds, as "
        "heterogeneity-aware coding does; CR and FR, whose loads are equal, are told "
        "s. M₁ and T_comp are not printed: told, TSDCFL has the best of them, for 8 "
        "random choices of who starts; T_comp may be 0, which is no stage one at all. "
        "Rows with M₁ = 3 and 4 wait for the usual end of stage one. Its stage two is "
        "a ring code with random coefficients.",
        "Decoding takes the earliest answers that are enough, for all schemes.",
        "Theorem 1 and Lemma 4 are judged as printed and as corrected "
        "([how](../../papers/tsdcfl_theory.py)), on least squares, where L, ζ and F* "
        "are exact. The theorem names no largest step, and its proof lost an L and a "
        "τ; the lemma's constant lost squares (3·D_max for 3·D_max², and two squares "
        "of sums).",
        "Fair transmission is as corrected in [transmission.md](../transmission.md); "
        "the paper prints no setting and no figure of it, so those exhibits have "
        "names of ours. Its rules as printed are one row.",
        "Setting testbed has the paper's six workers on the [emulated testbed]"
        "(../testbed.md), each core a twentieth of one here, or simulated; one "
        "straggler, drawn in each iteration, is told to be eight times slower. It was "
        "measured once, eight minutes for three trials, beside other work of idle "
        "priority.",
    ),
    main=(
        Main(
            "Epoch by epoch it learns what the others learn",
            "Figure 6",
            "Model of any scheme, apart from that of plain descent, in 10⁻¹² of its "
            "length: the same accuracy and loss by epochs",
        ),
        Main(
            "Its iterations are shorter than cyclic repetition's",
            "Figure times",
            "Iteration time of TSDCFL, predicted, below CR's, two stragglers",
        ),
        Main(
            "Its iterations are shorter than fractional repetition's",
            "Figure times",
            "Iteration time of TSDCFL, predicted, below FR's, two stragglers",
        ),
        Main(
            "Workers are better utilised",
            "Figure times",
            "Workers' busy time, share of TSDCFL, predicted, above FR's, two "
            "stragglers",
        ),
        Main(
            "It tolerates stragglers",
            "Figure times",
            "Iterations that TSDCFL, predicted, ends though 2 of 6 are dead",
        ),
        Main(
            "Its second stage decodes whatever s are missing (Lemma 2)",
            "Table tolerance",
            "Patterns of s stragglers decoded, where M − M₁ < s",
        ),
        Main(
            "Fair transmission admits the most data",
            "Figure fairness",
            "Throughput of P4 to P7 as printed, of greedy's",
        ),
        Main(
            "Fair transmission shortens uploads",
            "Table uploads",
            "Time of the uploads, below that without fairness",
        ),
        Main(
            "Its gradients converge (Theorem 1)",
            "Figure theory",
            "Mean ‖∇F‖² over the printed bound, Lη = 2.2 and ζ = 0 (up to 10⁶)",
        ),
    ),
    exhibits=(
        Exhibit(
            name="5",
            title="CIFAR-10: accuracy, loss and iteration time",
            file="fig5_cifar",
            caption=TRAINING,
            quick=CIFAR_QUICK,
            embedded=CIFAR_EMBEDDED,
            full=CIFAR,
            run=run_training,
            draw=draw_training,
            table=table_of_training,
            claims=claims_of_training,
        ),
        Exhibit(
            name="6",
            title="MNIST: accuracy, loss and iteration time",
            file="fig6_mnist",
            caption=TRAINING,
            quick=MNIST_QUICK,
            embedded=replace(MNIST_QUICK, dataset="mnist-5k"),
            full=MNIST,
            run=run_training,
            draw=draw_training,
            table=table_of_training,
            claims=claims_of_training,
        ),
        Exhibit(
            kind="Table",
            name="rounding",
            title="how far rounding alone drives models apart",
            file="rounding",
            caption="{model} on {dataset}, {iterations} iterations of {samples} "
            "samples, without codes and stragglers: gradients summed at once, and in "
            "six pieces; how far models are apart, of their length.",
            quick=replace(CIFAR_QUICK, iterations=ROUNDED),
            embedded=replace(CIFAR_EMBEDDED, iterations=ROUNDED),
            full=replace(CIFAR, iterations=ROUNDED),
            run=run_rounding,
            table=table_of_rounding,
            claims=claims_of_rounding,
        ),
        Exhibit(
            name="times",
            title="iteration times of all schemes (5e and 6e, in numbers)",
            file="times",
            caption="{iterations:,} iterations, one or two stragglers in each; 95 % "
            "intervals. Predicted: planned from an empty history on, anew after {anew} "
            "iterations at most. Busy: share of their time in which workers compute; "
            "work: how many times the data was computed; both with slow stragglers. "
            "The picture has slow ones.",
            quick=TimesStudy(),
            full=TimesStudy(),
            run=run_times,
            draw=draw_times,
            table=table_of_times,
            claims=claims_of_times,
        ),
        Exhibit(
            kind="Table",
            name="tolerance",
            title="what stage two bears (Lemmas 1 and 2, Eq. 16)",
            file="tolerance",
            caption="All sets of workers that may start, all of them that may have "
            "finished, all patterns of s missing in stage two; {partitions} "
            "partitions. Predicted: all plans of {iterations} iterations in which s "
            "are dead, made from an empty history on, anew after {anew} at most.",
            quick=ToleranceStudy(),
            full=ToleranceStudy(),
            run=run_tolerance,
            table=table_of_tolerance,
            claims=claims_of_tolerance,
        ),
        Exhibit(
            name="theory",
            title="Theorem 1 and Lemma 4, as printed and corrected",
            file="theory",
            caption="Least squares with a ridge of {ridge:g} from {dataset}'s digits, "
            "7 × 7 pixels, to their classes; {iterations} iterations of {samples} "
            "samples, one of six workers dead in each, decoded from a ring, M₁ = "
            "{first}; mean of {seeds} seeds. Late answers: a quadratic with L = "
            "{curvature:g}, gradients {delay} steps old. Lemma 4: {slots:,} slots, "
            "at most 6 or {crowded_mbit:g} Mbit a worker in each.",
            quick=TheoryStudy(),
            full=TheoryStudy(),
            run=run_theory,
            draw=draw_theory,
            table=table_of_theory,
            claims=claims_of_theory,
        ),
        Exhibit(
            name="queues",
            title="fair transmission: queues and their bounds",
            file="queues",
            caption="The fullest queue of any worker in windows of {window} slots; "
            "line: mean of {seeds} seeds, band: their range, dashed: the bound. The "
            "battery's is 1 for every V. The server's bound is far above the picture; "
            "R has none.",
            quick=TRANSMISSION,
            full=TRANSMISSION,
            run=run_transmission,
            draw=draw_queues,
            claims=claims_of_queues,
        ),
        Exhibit(
            name="tradeoff",
            title="fair transmission: utility against backlog",
            file="tradeoff",
            caption="{slots:,} slots from empty queues and batteries, means from slot "
            "{settled:,} on; mean of {seeds} seeds, band: their range. Hindsight is "
            "a linear program that knows all slots.",
            quick=TRANSMISSION,
            full=TRANSMISSION,
            run=run_transmission,
            draw=draw_tradeoff,
            table=table_of_tradeoff,
            claims=claims_of_tradeoff,
        ),
        Exhibit(
            name="fairness",
            title="fair transmission: log-utility against greedy",
            file="fairness",
            caption="The largest V; mean of {seeds} seeds, with intervals of 95 %.",
            quick=TRANSMISSION,
            full=TRANSMISSION,
            run=run_transmission,
            draw=draw_fairness,
            table=table_of_fairness,
            claims=claims_of_fairness,
        ),
        Exhibit(
            kind="Table",
            name="uploads",
            title="fair transmission: uploads of coded cycles",
            file="uploads",
            caption="{workers} workers, gradients of 8 Mbit ready within {ready_s:g} "
            "s, {channels} channels unless said; a cycle ends with gradient {needed}. "
            "{cycles} cycles, {seeds} seeds. Nothing owed: without fairness; short "
            "slots: {slot_s:g} s.",
            quick=UploadsStudy(),
            full=UploadsStudy(),
            run=run_uploads,
            table=table_of_uploads,
            claims=claims_of_uploads,
        ),
        Exhibit(
            kind="Table",
            name="harvest",
            title="fair transmission: coded training on harvested energy",
            file="harvest",
            caption="{cycles} iterations of {model} on {dataset}, ten workers with "
            "batteries of {battery_j:g} J that begin full, {channels} channels, one "
            "straggler {slower:g} times slower in each iteration; mean and 95 % "
            "interval of {seeds} seeds.",
            quick=HarvestStudy(),
            full=HarvestStudy(),
            run=run_harvest,
            table=table_of_harvest,
            claims=claims_of_harvest,
        ),
        TESTBED,
    ),
)
