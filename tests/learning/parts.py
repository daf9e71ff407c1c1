"""Models to take parts of, and samples to try them with."""

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from melisma.learning.losses import LOSSES
from melisma.learning.models import perceptron
from melisma.learning.submodels import Example, Part, submodel_of


class Residual(nn.Module):
    """Convolutions of three kinds, norms of two, a sum and a view."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.groups = nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16)
        self.wide = nn.Conv2d(16, 20, 1)
        self.each = nn.Conv2d(20, 20, 3, padding=1, groups=20)
        self.hidden, self.out = nn.Linear(20 * 9, 12), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.norm(self.first(x)))
        a = a + F.relu(self.groups(self.second(a)))
        a = F.max_pool2d(self.each(self.wide(a)), 2)
        out: Tensor = self.out(self.hidden(a.view(a.size(0), -1)).relu())
        return out


class Joined(nn.Module):
    """Two branches side by side, as in DenseNet, and a mean over the image."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 1), nn.Conv2d(3, 6, 3, padding=1)
        self.mix, self.out = nn.Conv2d(14, 10, 1), nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        a = torch.cat([self.one(x).relu(), self.two(x).relu()], dim=1)
        out: Tensor = self.out(self.mix(a).relu().mean((2, 3)))
        return out


class Attentive(nn.Module):
    """Tokens, places, attention of four heads, an encoder; the head is tied."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, width)
        self.places = nn.Parameter(torch.randn(6, width))
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        layer = nn.TransformerEncoderLayer(width, 4, 40, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(width, 11, bias=False)
        self.out.weight = self.tokens.weight

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        a = self.tokens(x) + self.places
        seen, _ = self.attention(a, a, a, attn_mask=mask)
        out: Tensor = self.out(self.encoder(a + seen).mean(1))
        return out


MODELS: dict[str, Callable[[], nn.Module]] = {
    "perceptron": lambda: perceptron(27, 20, 15, 5),
    "residual": Residual,
    "joined": Joined,
    "flat": lambda: nn.Sequential(
        *(nn.Conv2d(3, 7, 2), nn.BatchNorm2d(7), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(7 * 25, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 5)),
    ),
}
SHAPES = {"perceptron": (3, 3, 3)}


def made(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return Attentive() if name == "attentive" else MODELS[name]()


def example(name: str, samples: int = 4) -> Example:
    rng = torch.Generator().manual_seed(1)
    y = torch.randint(0, 5, (samples,), generator=rng)
    if name == "attentive":
        x = torch.randint(0, 11, (samples, 6), generator=rng)
    else:
        x = torch.randn(samples, *SHAPES.get(name, (3, 6, 6)), generator=rng)
    return Example(LOSSES["cross-entropy"], {"x": x, "y": y})


def part(model: nn.Module, written: str, name: str) -> Part:
    return submodel_of(written).part(model, example(name))


class Drawn(nn.Module):
    """Layers one after another, of which some take two of the values before them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = random.Random(seed)
        self.layers, self.steps = nn.ModuleList(), list[tuple[str, int, int]]()
        widths = [3]
        for _ in range(rng.randint(4, 9)):
            a, b = (rng.randrange(len(widths)) for _ in range(2))
            kinds = ["conv", "conv", "each", "norm", "groups", "cat", "relu"]
            kinds += ["add", "mul"] if widths[a] == widths[b] and a and b else []
            kind, n = rng.choice(kinds), widths[a]
            wide = rng.choice([n, 6, 8, 12])
            made: nn.Module = nn.Identity()
            match kind:
                case "conv":
                    made = nn.Conv2d(n, wide, 3, padding=1)
                case "each":
                    made = nn.Conv2d(n, n, 3, padding=1, groups=n)
                case "norm":
                    made = nn.BatchNorm2d(n)
                case "groups":
                    made = nn.GroupNorm(2 if n % 2 == 0 else 1, n)
            # One group alone is a mean over channels, of which a part has fewer.
            if kind == "groups" and n % 2:
                kind, made = "relu", nn.Identity()
            self.layers.append(made)
            self.steps.append((kind, a, b))
            widths.append(
                {"conv": wide, "cat": widths[a] + widths[b]}.get(kind, widths[a])
            )
        self.flat = rng.random() < 0.5
        self.hidden = nn.Linear(widths[-1] * (9 if self.flat else 1), 7)
        self.out = nn.Linear(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for layer, (kind, a, b) in zip(self.layers, self.steps, strict=True):
            match kind:
                case "add":
                    made = values[a] + values[b]
                case "mul":
                    made = values[a] * values[b].sigmoid()
                case "cat":
                    made = torch.cat([values[a], values[b]], dim=1)
                case "relu":
                    made = values[a].relu()
                case _:
                    made = layer(values[a])
            values.append(made)
        last = F.avg_pool2d(values[-1], 2)
        last = last.flatten(1) if self.flat else last.mean((2, 3))
        out: Tensor = self.out(F.gelu(self.hidden(last)))
        return out
