"""The engine in a real browser, held to PyTorch as the Python learner uses it."""

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.browser.engines import asked, gap
from tests.browser.pages import MODULES, opened, serving
from tests.web.browser import Page
from torch import Tensor, nn

from melisma.errors import ConfigError
from melisma.learning.losses import LOSSES
from melisma.learning.models import build
from melisma.learning.optimisers import OPTIMISERS
from melisma.learning.outline import check_training
from melisma.learning.parameters import with_buffers
from melisma.learning.samples import Batch
from melisma.learning.settings import Buffers, Training

pytestmark = pytest.mark.browser

#: Of the way that PyTorch's parameters went in ten batches.
NEAR = 1e-4


@pytest.fixture(scope="module")
def url_of_modules() -> Iterator[Any]:
    with serving() as server:
        yield server


@pytest.fixture
def lab(page: Page, url_of_modules: Any) -> Page:
    """A page that can import the engine."""
    opened(page, url_of_modules)
    return page


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.Tanh(),
        nn.Linear(120, 84),
        nn.Tanh(),
        nn.Linear(84, 10),
    )


def normalised() -> nn.Module:
    """Every kind of normalisation, groups, strides, and what else images see."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.Conv2d(8, 12, 3, padding=2, dilation=2, groups=4),
        nn.GroupNorm(3, 12),
        nn.LeakyReLU(0.1),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 16),
        nn.BatchNorm1d(16),
        nn.GELU(),
        nn.LayerNorm(16),
        nn.Linear(16, 10),
    )


class Words(nn.Module):
    """A bag of words: the mean of embeddings, each looked at by itself first."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 12, padding_idx=0)
        self.each = nn.Sequential(nn.LayerNorm(12), nn.Linear(12, 16), nn.GELU("tanh"))
        self.last = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.each(self.words(x)).mean(dim=1))  # type: ignore[no-any-return]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(samples: int = 312) -> Batch:
    """Bytes, as MNIST's: ten batches of 32, of which the last is smaller."""
    x = torch.randint(0, 256, (samples, 1, 28, 28), generator=seeded(1))
    y = torch.randint(0, 10, (samples,), generator=seeded(2))
    return {"x": x.to(torch.uint8), "y": y}


def tokens() -> Batch:
    x = torch.randint(0, 40, (312, 9), generator=seeded(3))
    return {"x": x, "y": torch.randint(0, 4, (312,), generator=seeded(4))}


NETWORKS: dict[str, tuple[Callable[[], nn.Module] | str, Callable[[], Batch]]] = {
    "TwoNN": ("TwoNN", images),
    "ThreeNN": ("ThreeNN", images),
    "ConvNet": ("ConvNet", images),
    "LeNet": (lenet, images),
    "normalised": (normalised, images),
    "words": (Words, tokens),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_ten_batches_lead_where_pytorch_goes(lab: Page, name: str) -> None:
    model, batch = NETWORKS[name]
    found = gap(lab, build(model, 5), batch(), Training(batch=32))
    assert found.parameters <= NEAR
    assert found.loss <= 1e-5
    assert found.judged <= 1e-4


def test_statistics_that_stay_on_the_device_begin_and_go_on_there(lab: Page) -> None:
    training = Training(batch=32, buffers=Buffers.LOCAL)
    model = with_buffers(build(normalised, 5), training.buffers)
    assert max(gap(lab, model, images(), training)) <= NEAR


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3))


def numbers(samples: int = 40) -> Batch:
    x = torch.randn(samples, 6, generator=seeded(6))
    return {"x": x, "y": torch.randint(0, 3, (samples,), generator=seeded(7))}


@pytest.mark.parametrize(
    "how",
    [
        {"arguments": {"momentum": 0.9}},
        {"arguments": {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}},
        {"arguments": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}},
        {"arguments": {"maximize": True}},
        {"optimiser": "Adam", "rate": 0.01},
        {
            "optimiser": "adam",
            "arguments": {"betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1},
        },
        {"optimiser": "Adam", "arguments": {"amsgrad": True}},
        {"optimiser": "AdamW", "arguments": {"weight_decay": 0.2}},
        {"clip": 0.1},
        {"proximal": 2.0},
        {"proximal": 2.0, "clip": 0.5, "optimiser": "AdamW"},
    ],
    ids=str,
)
def test_every_optimiser_steps_as_pytorchs(lab: Page, how: dict[str, Any]) -> None:
    training = Training(**{"rate": 0.05, "batch": 4, **how})
    assert gap(lab, build(small, 8), numbers(), training).parameters <= NEAR


@pytest.mark.parametrize("loss", ["mse", "mae", "huber", "bce"])
def test_every_loss_falls_as_pytorchs(lab: Page, loss: str) -> None:
    y = 3 * torch.rand(40, 3, generator=seeded(9))
    batch = {"x": numbers()["x"], "y": y / 3 if loss == "bce" else y}
    found = gap(lab, build(small, 8), batch, Training(batch=4, loss=loss))
    assert max(found) <= NEAR


def test_without_targets_inputs_are_what_is_to_be_given(lab: Page) -> None:
    model = nn.Sequential(nn.Linear(6, 3), nn.Sigmoid(), nn.Linear(3, 6))
    batch = {"x": numbers()["x"]}
    found = gap(lab, build(model, 8), batch, Training(batch=4, loss="mse"))
    assert max(found) <= NEAR


def test_classes_of_each_place_are_judged(lab: Page) -> None:
    model = nn.Sequential(nn.Conv2d(2, 5, 3, padding=1), nn.ELU(), nn.Conv2d(5, 3, 1))
    y = torch.randint(0, 3, (40, 4, 5), generator=seeded(2))
    y[:, 0] = -100  # which counts for nothing
    batch = {"x": torch.randn(40, 2, 4, 5, generator=seeded(3)), "y": y}
    assert max(gap(lab, build(model, 8), batch, Training(batch=4))) <= NEAR


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Linear(6, 4), nn.Softmax(dim=1), nn.Linear(4, 3)],
        [nn.Linear(6, 4, bias=False), nn.LogSoftmax(dim=-1), nn.Linear(4, 3)],
        [nn.Unflatten(1, (2, 3)), nn.Linear(3, 4), nn.ReLU(), nn.Flatten()],
        [nn.Linear(6, 3), nn.BatchNorm1d(3, affine=False, momentum=0.3)],
        [
            nn.Linear(6, 12),
            nn.LayerNorm(12, elementwise_affine=False),
            nn.Linear(12, 3),
        ],
        [nn.Linear(6, 27), nn.Unflatten(1, (3, 3, 3)), nn.MaxPool2d(2, 1, dilation=2)],
        [
            nn.Linear(6, 18),
            nn.Unflatten(1, (2, 3, 3)),
            nn.AvgPool2d(2, stride=1, padding=1, count_include_pad=False),
            nn.Flatten(),
        ],
    ],
    ids=str,
)
def test_every_layer_learns_as_pytorchs(lab: Page, layers: list[nn.Module]) -> None:
    model = nn.Sequential(*layers, nn.Flatten())
    assert max(gap(lab, build(model, 3), numbers(), Training(batch=4))) <= NEAR


def test_a_correction_is_added_to_every_gradient(lab: Page) -> None:
    model = build(small, 8)
    h = {n: torch.full_like(p, 0.1) for n, p in model.named_parameters()}
    found = gap(lab, model, numbers(), Training(batch=4), correction=h)
    assert found.parameters <= NEAR


def test_every_order_begins_without_momentum_and_at_its_own_rate(lab: Page) -> None:
    training = Training(batch=4, arguments={"momentum": 0.9}, proximal=1.0)
    found = gap(lab, build(small, 8), numbers(), training, rates=[0.05, 0.02, 0.01])
    assert max(found) <= NEAR


def test_a_batch_larger_than_all_before_finds_its_place(lab: Page) -> None:
    training = Training(batch=4, optimiser="Adam", proximal=1.0)
    # A bias before batch norm has no effect: Adam makes steps of its rounding errors.
    first = nn.Linear(6, 7, bias=False)
    model = nn.Sequential(first, nn.BatchNorm1d(7), nn.Linear(7, 3))
    found = gap(lab, build(model, 8), numbers(), training, sizes=[4, 2, 11, 3, 20])
    assert max(found) <= NEAR


def test_a_network_beyond_all_memory_is_refused_by_name(lab: Page) -> None:
    arguments = {"in_features": 30_000, "out_features": 30_000, "bias": False}
    layer = {"kind": "Linear", "name": "0", "arguments": arguments}
    message = lab.look(
        f"""(async () => {{
          const {{ openEngine }} = await import("/static/engine/engine.js");
          const training = {{ optimiser: "sgd", rate: 0.1, batch: 1, loss: "mse" }};
          const net = (await openEngine()).network([{json.dumps(layer)}], training);
          const x = {{ shape: [1, 30000], data: new Float32Array(30000) }};
          return net.train(x).catch((error) => `${{error.name}}: ${{error.message}}`);
        }})()"""
    )
    assert message.startswith("ShortOfMemory: 72")


def test_nothing_is_fetched_but_the_modules(lab: Page) -> None:
    gap(lab, build(small, 8), numbers(), Training(batch=4))
    fetched = lab.look("performance.getEntriesByType('resource').map((r) => r.name)")
    origin = lab.look("location.origin")
    modules = {path.name for path in (MODULES / "engine").iterdir()}
    named = {url.removeprefix(f"{origin}/static/engine/") for url in fetched}
    assert {name for name in named if not name.startswith("data:")} == modules


def test_without_simd_the_answers_are_the_same(lab: Page) -> None:
    found = gap(lab, build(small, 8), numbers(), Training(batch=4), backend="js")
    assert max(found) <= NEAR


@pytest.mark.parametrize(("share", "alike"), [(1.0, True), (0.5, False)])
def test_values_are_dropped_in_training_alone(
    lab: Page, share: float, alike: bool
) -> None:
    model = nn.Sequential(nn.Linear(6, 7), nn.Dropout(share), nn.Linear(7, 3))
    found = gap(lab, build(model, 8), numbers(), Training(batch=4))
    assert (max(found) <= NEAR) == alike  # of half of them, others are drawn


def test_page_and_orchestrator_know_the_same_optimisers_and_losses(lab: Page) -> None:
    def takes(optimiser: str, arguments: dict[str, Any], loss: str) -> bool:
        try:
            check_training(
                Training(optimiser=optimiser, arguments=arguments, loss=loss)
            )
        except ConfigError:
            return False
        return True

    values = {
        "betas": [0.9, 0.99],
        "nesterov": False,
        "momentum": 0.5,
        "centered": True,
    }
    cases: list[tuple[str, dict[str, Any], str]]
    cases = [(name, {}, loss) for name in OPTIMISERS for loss in [*LOSSES, "hinge"]]
    for name, kind in OPTIMISERS.items():
        parameters = list(inspect.signature(kind).parameters)[2:]
        cases += [(name, {p: values.get(p, 0.0)}, "mse") for p in parameters]
    answers = lab.look(
        f"""(async () => {{
          const {{ openEngine }} = await import("/static/engine/engine.js");
          const engine = await openEngine();
          return {json.dumps(cases)}.map(([optimiser, given, loss]) => {{
            const training = {{ optimiser, arguments: given, loss, rate: 1, batch: 1 }};
            try {{ engine.network([], training); }} catch {{ return false; }}
            return true;
          }});
        }})()"""
    )
    assert answers == [takes(*case) for case in cases]
    assert any(answers)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"optimiser": "Rprop"}, "no optimiser Rprop"),
        ({"arguments": {"lookahead": 3}}, "sgd has no lookahead"),
        ({"arguments": {"nesterov": True}}, "nesterov needs momentum"),
        ({"loss": "hinge"}, "no loss hinge"),
        ({"rate": 0}, "learning rate 0"),
    ],
    ids=str,
)
def test_what_it_cannot_do_is_refused_by_name(
    lab: Page, how: dict[str, Any], message: str
) -> None:
    training = {"optimiser": "sgd", "rate": 0.1, "batch": 4, "arguments": {}}
    given = {**training, "loss": "mse", **how}
    answer = asked(lab, layers=[], training=given, parameters={}, batch={})
    assert answer["error"] == "ConfigError"
    assert message in answer["message"]


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("Hardswish", {}, "no layer Hardswish"),
        ("Linear", {"in_features": 0.5}, "in_features = 0.5"),
        ("LayerNorm", {"eps": None, "normalized_shape": [3, 1e300]}, "3,1e+300"),
    ],
)
def test_layers_that_are_none_are_refused_by_name(
    lab: Page, kind: str, arguments: dict[str, Any], message: str
) -> None:
    layer = {"kind": kind, "name": "0", "arguments": arguments}
    training = {"optimiser": "sgd", "rate": 0.1, "batch": 4, "loss": "mse"}
    answer = asked(lab, layers=[layer], training=training, parameters={}, batch={})
    assert answer["error"] == "ConfigError"
    assert message in answer["message"]
