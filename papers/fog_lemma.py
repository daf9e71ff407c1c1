"""Lemma 1 of the fog paper: how far a device's gradient is from the true one.

    δ_i ≡ ‖∇L_i(w | G_i(t)) − ∇L(w)‖ ≤ γ/√G_i(t)

A model is trained; on the way, G samples are drawn of the training set with
replacement, the distribution 𝒟, and the gradient of their mean loss is held against
that of the whole set. From the same model a device then takes τ such steps, each on G
new samples, beside one that has the whole gradient: how far their losses are apart is
what the paper takes to be proportional to 1/√G.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from melisma.learning import data as datasets
from melisma.learning import models
from melisma.maths import Floats, Ints, mean_interval

from .claims import Claim, mean_of, near
from .kit import Data, Spread, in_order

Rows = Sequence[int] | Ints | slice


@dataclass(frozen=True, slots=True, kw_only=True)
class LemmaStudy:
    """Every number that the measurement of Lemma 1 depends on."""

    dataset: str = "mnist-5k"
    model: str = "FogMLP"
    rate: float = 0.01
    batch: int = 10
    sizes: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200, 500)  #: G
    passes: tuple[int, ...] = (0, 1, 10)  #: of training, before it is measured
    steps: int = 10  #: τ
    draws: int = 5  #: of the samples, for each G
    seeds: int = 8


class LemmaTrial(NamedTuple):
    """One model, trained from one seed."""

    study: LemmaStudy
    seed: int


class Descending:
    """A model as a vector, its loss and gradient on any rows of the training set."""

    def __init__(self, study: LemmaStudy, seed: int) -> None:
        train = datasets.load(study.dataset).train
        whole = train[np.arange(len(train))]
        self._model = models.build(study.model, seed)
        self._x, self._y = whole["x"].float() / 255.0, whole["y"].long()
        self.samples = len(train)

    def start(self) -> torch.Tensor:
        """Return the model as it is before training."""
        return parameters_to_vector(self._model.parameters()).detach().clone()

    def loss(self, w: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Return the mean loss at ``w``, whose graph leads to the parameters."""
        vector_to_parameters(w, self._model.parameters())
        return cross_entropy(self._model(self._x[rows]), self._y[rows])

    def gradient(self, w: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Return the gradient of the mean loss."""
        loss = self.loss(w, rows)
        parts = torch.autograd.grad(loss, list(self._model.parameters()))
        return torch.cat([part.reshape(-1) for part in parts])


def lemma(trial: LemmaTrial) -> tuple[Floats, Floats]:
    """δ, and the distance of losses after τ steps: passes × sizes, means over draws."""
    study, seed = trial
    rng, here, every = np.random.default_rng(seed), Descending(*trial), slice(None)
    w, done = here.start(), 0
    delta = np.zeros((len(study.passes), len(study.sizes)))
    apart = np.zeros_like(delta)
    for k, passes in enumerate(study.passes):
        for _ in range(passes - done):
            order = rng.permutation(here.samples)
            for rows in np.array_split(order, here.samples // study.batch):
                w = w - study.rate * here.gradient(w, rows)
        done = passes
        true, v = here.gradient(w, every), w
        for _ in range(study.steps):
            v = v - study.rate * here.gradient(v, every)
        level = float(here.loss(v, every).detach())
        for g, size in enumerate(study.sizes):
            for _ in range(study.draws):
                rows = rng.integers(here.samples, size=size)
                delta[k, g] += float((here.gradient(w, rows) - true).norm())
                u = w
                for _ in range(study.steps):
                    rows = rng.integers(here.samples, size=size)
                    u = u - study.rate * here.gradient(u, rows)
                apart[k, g] += abs(float(here.loss(u, every).detach()) - level)
    return delta / study.draws, apart / study.draws


def run_lemma(study: LemmaStudy, spread: Spread = in_order) -> Data:
    """``delta`` and ``apart``: seeds × passes × sizes."""
    found = spread(lemma, [LemmaTrial(study, seed) for seed in range(study.seeds)])
    delta, apart = (np.array(values) for values in zip(*found, strict=True))
    return {
        "sizes": np.array(study.sizes, dtype=np.float64),
        "passes": np.array(study.passes, dtype=np.float64),
        "delta": delta,
        "apart": apart,
    }


def power(sizes: Floats, values: Floats) -> Floats:
    """Return p of values ∝ Gᵖ, by least squares of the logarithms, for each seed."""
    return np.array(np.polyfit(np.log(sizes), np.log(values).T, 1)[0])


def claims_of_lemma(data: Data) -> list[Claim]:
    """δ falls with 1/√G, before, in and after training; losses too."""
    sizes, claims = data["sizes"], list[Claim]()
    for k, passes in enumerate(data["passes"]):
        delta, after = data["delta"][:, k], f"after {passes:g} passes"
        claims += [
            Claim(
                what=f"power of G in δ, {after}",
                printed="−1/2 (Lemma 1)",
                ours=mean_of(power(sizes, delta)),
                rule=near(-0.5, 0.02, weaker=0.1),
                digits=3,
                why="not tested: gradients of few samples may have heavy tails, of "
                "which the mean norm lies below the root of its mean square",
            ),
            Claim(
                what=f"power of G in |L(w_i) − L(v)| after τ steps, {after}",
                printed="−1/2 (Theorem 1 with Lemma 1)",
                ours=mean_of(power(sizes, data["apart"][:, k])),
                rule=near(-0.5, 0.05, weaker=0.2),
                digits=3,
                why="not tested: noise that averages out along the gradient costs loss "
                "in proportion to its square, 1/G",
            ),
        ]
    return claims


def table_of_lemma(data: Data) -> list[list[str]]:
    """γ = δ·√G by G."""

    def cell(k: int, g: int) -> str:
        gamma = data["delta"][:, k, g] * np.sqrt(data["sizes"][g])
        mean, half = mean_interval(gamma)
        return f"{mean:.2f} ± {half:.2f}"

    heads = [f"δ·√G after {passes:g} passes" for passes in data["passes"]]
    rows = [
        [f"{size:g}", *(cell(k, g) for k in range(len(heads)))]
        for g, size in enumerate(data["sizes"])
    ]
    return [["G", *heads], *rows]


def draw_lemma(drawing: Figure, data: Data) -> None:
    """Draw δ and the distance of losses over G, with a line of 1/√G."""
    drawing.set_size_inches(8.0, 3.2)
    left, right = drawing.subplots(1, 2)
    sizes = data["sizes"]
    for ax, name, label in (
        (left, "delta", "δ, distance of gradients"),
        (right, "apart", "distance of losses after τ steps"),
    ):
        for k, passes in enumerate(data["passes"]):
            mean, half = mean_interval(data[name][:, k])
            ax.errorbar(
                sizes, mean, half, marker="o", capsize=2, label=f"{passes:g} passes"
            )
            ax.plot(sizes, mean[-1] * np.sqrt(sizes[-1] / sizes), "k:", linewidth=0.8)
        ax.set(xscale="log", yscale="log", xlabel="samples of a gradient, G")
        ax.set_ylabel(label)
    left.legend(title="after")
